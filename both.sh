. /tmp/est/env.sh
(cd /work/main && PYTHONPATH=/work/main $PY /tmp/est/prof.py); $PY /tmp/est/prof.py x; $PY -m pytest -q -x -p no:cacheprovider tests/quality 2>&1 | tail -25
