# The two commands of the README are `make demo` and `make test`; both make their own
# environment in $(VENV) from the repo's files. Override: make PYTHON=python3.12 VENV=env test
PYTHON ?= python3
VENV ?= .venv
MIN_VENV ?= .venv-min
CORE_VENV ?= .venv-core
DIST_VENV ?= .venv-dist
# Windows keeps the programs of an environment elsewhere.
SCRIPTS := $(if $(filter Windows_NT,$(OS)),Scripts,bin)
BIN := $(VENV)/$(SCRIPTS)

DEV := [plot,test-all,lint,doc,torch]
MIN := [plot,test-all]
# $(1) the environment, $(2) what goes in. uv fetches and unpacks many packages at once, in a
# quarter of pip's time; it is told where pip finds wheels (torch's without CUDA, where they lie
# on a disk). What uv cannot do here, pip does.
PIP = $(1)/$(SCRIPTS)/python -m pip --quiet --disable-pip-version-check
FIND_LINKS = $${PIP_FIND_LINKS-$$($(PIP) config get global.find-links 2> /dev/null || true)}
define install
$(PIP) install uv && links="$(FIND_LINKS)" \
    && UV_FIND_LINKS="$$(echo $$links | tr ' ' ,)" \
    $(1)/$(SCRIPTS)/uv pip install --quiet --python $(1)/$(SCRIPTS)/python $(2) || $(PIP) install $(2)
endef

# Real data beside the repo, where it is; tests that need it skip elsewhere.
DATA_BESIDE := $(wildcard $(abspath ../shared/data))
export SKROUTE_DATA ?= $(DATA_BESIDE)
# One worker of the tests a core: threads of BLAS and of boosting would wait for one another.
test test-slow test-interpreted test-all test-core test-min test-min-core test-nightly test-sklearn \
    coverage: export OMP_NUM_THREADS = 1
# scikit-learn's array API checks run only with this set before scipy is imported.
export SCIPY_ARRAY_API = 1
# uv leaves packages uncompiled: where images of containers forbid to keep what Python compiles,
# each process of the tests would compile all that it imports, for six seconds and more.
unexport PYTHONDONTWRITEBYTECODE

# The part of the tests that meets other versions of numpy, scipy, numba, LightGBM, HiGHS and
# scikit-learn: the kernels, the readers of fitted ensembles, the estimators' checks.
CORE_TESTS := tests/assignment tests/quality tests/feature_sets/test_lattice.py \
    tests/early_exit/test_kernels.py \
    tests/early_exit/test_readers.py tests/gating/test_boosting.py tests/gating/test_linear.py \
    tests/gating/test_objective.py \
    tests/members/test_callable.py tests/members/test_recorded.py tests/metrics \
    tests/routing/test_frugal_algorithms.py tests/test_package.py

.PHONY: demo test test-slow test-interpreted test-all test-core test-min test-min-core test-nightly test-sklearn lint doc dist bench \
    bench-short coverage clean

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: pyproject.toml constraints.txt | $(BIN)/python
	$(call install,$(VENV),-c constraints.txt -e ".[plot]")
	touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(BIN)/python
	$(call install,$(VENV),-c constraints.txt -e ".$(DEV)")
	touch $@

# The peers that the benchmarks compare with.
$(VENV)/.bench: $(VENV)/.dev
	$(call install,$(VENV),-c constraints.txt -e ".[bench]")
	touch $@

demo: $(VENV)/.demo
	$(BIN)/python examples/demo.py

PYTEST = $(BIN)/python -m pytest -n 2 --dist worksteal -q
# Tests of kernels that also run as plain Python: what is compiled must be what is written, and
# only lines that Python runs can be covered.
KERNEL_TESTS := tests/assignment tests/early_exit/test_kernels.py tests/forests/test_code_walk.py \
    tests/guarantees/test_means.py tests/quality/test_bagged_neighbors.py tests/distributed/test_passes.py

# What a contributor runs before each commit ...
test: $(VENV)/.dev
	$(PYTEST) -m "not slow"

# ... what CI adds: statistics over many draws, hostile input in bulk, whole processes ...
test-slow: $(VENV)/.dev
	$(PYTEST) -m slow

# ... and the kernels without compilation.
test-interpreted: $(VENV)/.dev
	NUMBA_DISABLE_JIT=1 $(PYTEST) -m "not slow" $(KERNEL_TESTS)

# All of it: one process imports and fits once for what is slow and what is not.
test-all: $(VENV)/.dev
	$(PYTEST)
	$(MAKE) test-interpreted

# With the oldest version of each dependency that pyproject.toml allows; `make test` has the
# newest. scikit-learn's array API needs a newer scipy (1.14) than skroute does, and numba
# throws away what another version has compiled: it keeps its own here.
MIN_PYTEST = env -u SCIPY_ARRAY_API NUMBA_CACHE_DIR=$(abspath $(MIN_VENV))/numba \
    $(MIN_VENV)/$(SCRIPTS)/python -m pytest -n 2 --dist worksteal -q -m "not slow"

$(MIN_VENV)/.min: pyproject.toml constraints-min.txt
	$(PYTHON) -m venv $(MIN_VENV)
	$(call install,$(MIN_VENV),-c constraints-min.txt -e ".$(MIN)")
	touch $@

test-min: $(MIN_VENV)/.min
	$(MIN_PYTEST)

test-min-core: $(MIN_VENV)/.min
	$(MIN_PYTEST) $(CORE_TESTS)

# The numerical core with nothing but what it needs: what other systems and Pythons run first.
test-core: pyproject.toml
	$(PYTHON) -m venv $(CORE_VENV)
	$(call install,$(CORE_VENV),-c constraints.txt -e ".[test]")
	$(CORE_VENV)/$(SCRIPTS)/python -m pytest -n 2 --dist worksteal -q -m "not slow" $(CORE_TESTS)

# With one version of scikit-learn: make test-sklearn VERSION=1.7. TESTS names some of the tests.
# scikit-learn below 1.9 hands pytest a generator of cases, which pytest 9 warns of, and reads
# polars by a protocol that polars 1.40 deprecates.
test-sklearn: SK_VENV = .venv-sklearn-$(VERSION)
test-sklearn: pyproject.toml constraints.txt
	$(if $(VERSION),,$(error give the version of scikit-learn: make test-sklearn VERSION=1.7))
	$(PYTHON) -m venv $(SK_VENV)
	$(call install,$(SK_VENV),-c constraints.txt -e ".$(MIN)" "scikit-learn==$(VERSION).*" "pytest<9" "polars<1.40")
	NUMBA_CACHE_DIR=$(abspath $(SK_VENV))/numba $(SK_VENV)/$(SCRIPTS)/python -m pytest -n 2 \
	    --dist worksteal -q -m "not slow" $(TESTS)

# With the pre-releases of what skroute stands on.
NIGHTLY_VENV ?= .venv-nightly
test-nightly: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(NIGHTLY_VENV)
	$(call install,$(NIGHTLY_VENV),-c constraints.txt -e ".[test]")
	$(call PIP,$(NIGHTLY_VENV)) install --upgrade --pre numpy scipy scikit-learn
	$(NIGHTLY_VENV)/$(SCRIPTS)/python -m pytest -n 2 --dist worksteal -q -m "not slow" $(CORE_TESTS)

# Lines and branches; fails below the bar of setup.cfg. Kernels count where they are not compiled.
coverage: $(VENV)/.dev
	$(PYTEST) --cov --cov-config=setup.cfg --cov-report= --cov-fail-under=0
	NUMBA_DISABLE_JIT=1 $(PYTEST) --cov --cov-append --cov-config=setup.cfg --cov-report= --cov-fail-under=0 $(KERNEL_TESTS)
	$(BIN)/coverage report --rcfile=setup.cfg

# Workflows and forms run elsewhere: their schemas are checked here.
SCHEMA = $(BIN)/check-jsonschema --builtin-schema vendor.
lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python tests/check_language.py skroute
	$(BIN)/mypy
	$(SCHEMA)github-workflows .github/workflows/*.yml
	$(SCHEMA)github-issue-forms .github/ISSUE_TEMPLATE/bug.yml .github/ISSUE_TEMPLATE/feature.yml
	$(SCHEMA)readthedocs .readthedocs.yaml
	$(SCHEMA)citation-file-format CITATION.cff

# The wheel and the sdist, checked, and the wheel used where nothing but its dependencies is.
dist:
	rm -rf build dist $(DIST_VENV)
	$(PYTHON) -m venv $(DIST_VENV)
	$(call install,$(DIST_VENV),"build>=1.2" "twine>=6")
	$(DIST_VENV)/$(SCRIPTS)/python -m build --installer uv . > $(DIST_VENV)/build.log || { cat $(DIST_VENV)/build.log; exit 1; }
	$(DIST_VENV)/$(SCRIPTS)/twine check --strict dist/*
	$(PYTHON) -m venv $(DIST_VENV)/wheel
	$(call install,$(DIST_VENV)/wheel,dist/*.whl)
	cd $(DIST_VENV) && wheel/$(SCRIPTS)/python -I $(CURDIR)/tests/check_wheel.py $(CURDIR)/README.md

doc: $(VENV)/.dev
	$(BIN)/python -m sphinx -W --keep-going -b html doc doc/_build/html

BENCHMARKS := $(wildcard benchmarks/bench_*.py)

# At their own size, hours in all; each writes benchmarks/results/<name>.json.
bench: $(VENV)/.bench
	for script in $(BENCHMARKS); do $(BIN)/python $$script || exit 1; done

# Seconds each: none can rot.
bench-short: $(VENV)/.dev
	for script in $(BENCHMARKS); do $(BIN)/python $$script --short || exit 1; done

# One of them: make bench-occam, make bench-frugal, ...
bench-%: $(VENV)/.bench
	$(BIN)/python benchmarks/bench_$*.py

clean:
	rm -rf doc/_build doc/auto_examples doc/generated demo_output
