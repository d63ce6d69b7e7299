"""A page to look at a router with: one file, with a slider for the budget."""

from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from skroute.base import check_affordable
from skroute.metrics._curve import check_budgets, find_router, quality_name, router_in
from skroute.metrics._report_numbers import example_rows, nearest, report_numbers, stops
from skroute.metrics._report_page import PageTexts, render
from skroute.metrics._report_table import decision_table
from skroute.utils._calls import takes
from skroute.utils._compat import Integral, Interval, Real, _safe_indexing, validate_params
from skroute.utils._once import walking
from skroute.utils._optional import import_optional


@validate_params(
    {
        "path": [str, PathLike],
        "budgets": ["array-like", None],
        "title": [str, None],
        "cost_unit": [str],
        "quality_label": [str, None],
        "show": ["array-like", None],
        "n_rows": [Interval(Integral, 0, 500, closed="both")],
        "n_budgets": [Interval(Integral, 2, 200, closed="both")],
        "confidence_level": [Interval(Real, 0.0, 1.0, closed="neither")],
        "n_resamples": [Interval(Integral, 1, None, closed="left")],
        "random_state": ["random_state"],
    },
    prefer_skip_nested_validation=True,
)
def decision_report(
    estimator: Any,
    X: Any,
    y: ArrayLike,
    *,
    path: Any,
    budgets: ArrayLike | None = None,
    title: str | None = None,
    cost_unit: str = "",
    quality_label: str | None = None,
    show: Any = None,
    n_rows: int = 12,
    n_budgets: int = 41,
    confidence_level: float = 0.95,
    n_resamples: int = 500,
    random_state: Any = 0,
    **params: Any,
) -> Path:
    """Write a page that shows what each budget buys: one file, which needs no network.

    A slider moves the budget. Beside it stand quality and cost with intervals, the best single
    choice, the random mix of equal spend and the oracle, the shares of the choices, some rows
    with what decided them, and the certificate of a :class:`~skroute.certified.CertifiedRouter`.
    It needs the extra ``skroute-ml[report]``.

    Nothing of the rows is written into the page but what `show` names: numbers of rows, estimates
    and costs are.

    Parameters
    ----------
    estimator : estimator
        A fitted decision estimator, a pipeline that ends with one, or a search over one of these.

    X : indexable of n_samples rows
        Rows that it was not fitted on.

    y : array-like of shape (n_samples,) or (n_samples, n_choices)
        The truth, as :func:`accuracy_cost_curve` takes it. All of it must be known.

    path : str or path-like
        Where to write; a file that is there is replaced.

    budgets : array-like of shape (n_budgets,), default=None
        Stops of the slider, mean costs per sample. None takes `n_budgets` even steps from the
        smallest feasible budget to the largest that is of use, and the estimator's own.

    title : str, default=None
        Heading. None takes the name of the estimator's class.

    cost_unit : str, default=""
        What costs are counted in, for example ``"USD per 1,000 requests"``.

    quality_label : str, default=None
        What quality is called. None takes the estimator's own name for it, or "Quality".

    show : array-like of str or int, default=None
        Columns of X, by name or by position, whose values of the example rows are shown. With
        None nothing of X is.

    n_rows : int, default=12
        How many example rows are shown, spread from those that money is spent on first to those
        that get it last. All numbers but these are of all rows.

    n_budgets : int, default=41
        Stops of the slider where `budgets` is None.

    confidence_level : float, default=0.95
        Nominal coverage of the intervals. Higher makes them wider.

    n_resamples : int, default=500
        Resamples of the rows for the intervals. More of them take longer.

    random_state : int, RandomState instance or None, default=0
        Draws the resamples.

    **params : keyword arguments
        Further arguments of ``predict_routed``, for example ``costs`` of each row for
        :class:`~skroute.routing.BudgetRouter`.

    Returns
    -------
    pathlib.Path
        Of the file.

    Raises
    ------
    ImportError
        Where ``vl-convert-python``, which holds Vega-Lite, is not installed.
    ValueError
        For a budget below the cheapest plan, outcomes that are not known, a column that X does
        not have, or a quality that is no mean over rows.

    See Also
    --------
    compare_with_references : The numbers over the whole range.
    reference_curves : The baselines at each stop.
    AccuracyCostDisplay : The curve alone, in matplotlib.

    Notes
    -----
    All budgets are decided from stored estimates and answers: no member is asked twice about a row,
    and no row is encoded twice. The baselines of routers with a price
    (:class:`~skroute.routing.BudgetRouter`, OCCAM) are the single choices, for which each member
    is asked about every row; of other estimators they are the cheapest and the most expensive plan,
    and a member is asked only about rows that some budget sends to it. Of a certified router the
    page shows the estimator that it wraps, and marks the budget that the promise is about.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from sklearn.linear_model import Ridge
    >>> from skroute.datasets import make_routing_problem
    >>> from skroute.metrics import decision_report
    >>> from skroute.routing import BudgetRouter
    >>> problem = make_routing_problem(400, n_features=2, random_state=0)
    >>> X, Q = problem.data, problem.quality
    >>> router = BudgetRouter(Ridge(), costs=problem.costs, budget=0.5).fit(X[:200], Q[:200])
    >>> folder = tempfile.TemporaryDirectory()
    >>> page = decision_report(
    ...     router, X[200:], Q[200:], path=Path(folder.name) / "report.html", n_resamples=20
    ... )
    >>> page.name, page.stat().st_size < 1.2e6
    ('report.html', True)
    >>> folder.cleanup()
    """
    library = import_optional("vl_convert", "decision_report")
    path = Path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"path={str(path)!r}: there is no folder {str(path.parent)!r}.")
    inner = router_in(estimator)
    certificate, walked = certified_path(inner)
    walked = walking(walked)
    shown = columns_shown(X, show)
    least, limits = walked.min_budget_, None
    if budgets is not None:
        limits = np.unique(check_budgets(budgets))
        check_affordable(float(limits[0]), least, advice="Raise the smallest of budgets.")
    _, rows = find_router(estimator, X)
    own = own_budget(inner, certificate)
    if limits is None:
        least, most = range_of(walked, rows, y, least, params)
        limits = stops(least, most, own, n_budgets)
    table = decision_table(walked, rows, y, limits, **params)
    numbers = report_numbers(
        table,
        confidence_level=confidence_level,
        n_resamples=n_resamples,
        random_state=random_state,
    )
    name = quality_name(walked)
    texts = PageTexts(
        title=title or f"{type(walked).__name__}: what each budget buys",
        cost_unit=cost_unit,
        quality_label=quality_label or ("Quality" if name is None else f"Quality ({name})"),
        confidence_level=float(confidence_level),
    )
    examples = example_rows(table, int(n_rows))
    values = shown(examples) if shown is not None else None
    page = render(
        table, numbers, texts, examples, values, certificate, nearest(limits, own), library
    )
    path.write_text(page, encoding="utf-8")
    return path


def certified_path(router):
    """The certificate of a router that has one, and the estimator whose path is walked."""
    certificate = getattr(router, "certificate_", None)
    if certificate is None:
        return None, router
    return certificate, router.estimator_


def own_budget(router, certificate):
    """The budget that a router decides at now."""
    if certificate is not None:
        return float(certificate.operating_budget)
    return float(router._effective_budget(None))


def range_of(router, rows, y, least, params):
    """The smallest and the largest budget that is of use."""
    if takes(router, "y_true"):
        params = {"y_true": y, **params}
    return least, float(np.mean(router.predict_cost(rows, budget=np.inf, **params)))


def columns_shown(X, show):
    """From positions of rows to the texts of the columns that are shown of them, and headings."""
    if show is None:
        return None
    named = list(map(str, X.columns)) if hasattr(X, "columns") else None
    width = len(named) if named is not None else (np.shape(X)[1] if np.ndim(X) == 2 else 0)
    at = []
    for column in show:
        if isinstance(column, str) and named is not None and column in named:
            at.append(named.index(column))
        elif isinstance(column, Integral) and not isinstance(column, bool) and 0 <= column < width:
            at.append(int(column))
        else:
            known = named if named is not None else f"the positions from 0 to {width - 1}"
            raise ValueError(f"show names {column!r}, which X does not have: it has {known!r}.")
    heads = [named[k] if named is not None else f"column {k}" for k in at]

    def values(rows):
        part = _safe_indexing(X, rows)
        if hasattr(part, "iloc"):
            cells = [part.iloc[:, k].tolist() for k in at]
        elif hasattr(part, "columns"):
            cells = [part[part.columns[k]].to_list() for k in at]
        else:
            table = part.toarray() if hasattr(part, "toarray") else np.asarray(part)
            cells = [table[:, k].tolist() for k in at]
        return heads, [[_short(cell) for cell in row] for row in zip(*cells)]

    return values


def _short(cell):
    return f"{cell:.4g}" if isinstance(cell, float) else str(cell)
