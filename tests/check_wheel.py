"""Uses an installed skroute as a new user does, with nothing but its dependencies (`make dist`).

    python check_wheel.py README.md

It is no test of pytest: it runs where pytest is not installed.
"""

import re
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path


def use_readme(page):
    """The names that the README's first block of code makes."""
    text = Path(page).read_text(encoding="utf-8")
    code = re.search(r"```python\n(.*?)```", text, flags=re.DOTALL).group(1)
    names = {}
    exec(compile(code, page, "exec"), names)
    return names


def use_stream(router, X):
    stream = router.stream(budget_total=200, n_expected=len(X))
    for x in X:
        stream.commit(stream.route(x[None]))
    status = stream.status()
    print(f"stream: {status.n_committed} requests, {status.spent:g} of 200 spent")
    assert status.n_committed == len(X) and status.spent <= 200


def use_early_exit(X, y):
    from sklearn.ensemble import RandomForestClassifier

    from skroute.early_exit import QWYCEnsemble

    forest = RandomForestClassifier(random_state=0)
    model = QWYCEnsemble(forest, alpha=0.1, random_state=0).fit(X, y)
    _, _, cost = model.predict_routed(X)
    print(f"early exit: {cost.mean():.1f} of 100 trees evaluated for a row")
    assert cost.mean() < 100


def use_report(router, X, y):
    """A page where its extra is installed; elsewhere an error that names the extra."""
    from skroute.metrics import decision_report

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report.html"
        if find_spec("vl_convert") is not None:
            decision_report(router, X, y, path=path, n_resamples=20)
            print(f"report: {path.stat().st_size / 1e6:.1f} MB")
            return
        try:
            decision_report(router, X, y, path=path)
        except ImportError as error:
            assert "skroute-ml[report]" in str(error)
            print(f"report: {error}")
        else:
            raise AssertionError("decision_report drew a page without its extra")


def main():
    names = use_readme(sys.argv[1])
    X, y = names["X_test"], names["y_test"]
    use_stream(names["router"], X[:50])
    use_early_exit(names["X"], names["y"])
    use_report(names["router"], X, y)


if __name__ == "__main__":
    main()
