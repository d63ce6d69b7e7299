# The two commands of the README are `make demo` and `make test`; both make their own
# environment in $(VENV) from the repo's files. Override: make PYTHON=python3.12 VENV=env test
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

# Real data beside the repo, where it is; tests that need it skip elsewhere.
DATA_BESIDE := $(wildcard $(abspath ../shared/data))
export SKROUTE_DATA ?= $(DATA_BESIDE)
# scikit-learn's array API checks run only with this set before scipy is imported.
export SCIPY_ARRAY_API = 1

.PHONY: demo test lint doc bench bench-short readme coverage clean

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) -e ".[plot]"
	touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) -e ".[plot,test,lint,doc,torch]"
	touch $@

demo: $(VENV)/.demo
	$(BIN)/python examples/demo.py

test: $(VENV)/.dev
	$(BIN)/python -m pytest -n 2 --dist worksteal -q

coverage: $(VENV)/.dev
	$(BIN)/python -m pytest -n 2 --dist worksteal -q --cov --cov-config=setup.cfg

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

doc: $(VENV)/.dev
	$(BIN)/python -m sphinx -W --keep-going -b html doc doc/_build/html

bench: $(VENV)/.dev
	$(BIN)/python benchmarks/run_all.py

bench-short: $(VENV)/.dev
	$(BIN)/python benchmarks/run_all.py --short

# The README's numbers and picture, from the results of the last `make bench`.
readme: $(VENV)/.dev
	$(BIN)/python benchmarks/readme.py

# One of them: make bench-occam, make bench-frugal, ...
bench-%: $(VENV)/.dev
	$(BIN)/python benchmarks/run_all.py $*

clean:
	rm -rf doc/_build doc/auto_examples doc/generated demo_output
