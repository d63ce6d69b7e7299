"""A page to look at a router with: one file, with a slider for the budget."""

import html
import json
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from skroute.metrics._curve import BudgetSweep, check_budgets
from skroute.metrics._tradeoff import (
    RESAMPLING,
    check_all_known,
    intervals,
    random_mix,
    reference_curves,
)
from skroute.utils._compat import Integral, Interval, validate_params
from skroute.utils._optional import import_optional
from skroute.utils._typing import ArrayLike

# What it shows is in the file; a browser that reads it may ask for nothing else.
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:;
script-src 'unsafe-inline'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1"><title>{title}</title>
<style>body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 1rem auto;
padding: 0 1rem }} input {{ width: min(40rem, 75vw) }} input + span {{ display: none }}
#page {{ display: flex; flex-direction: column-reverse; overflow-x: auto }}</style></head>
<body><h1>{title}</h1><p>{about}</p><div id="page"></div>
<script>{library}</script>
<script type="application/json" id="spec">{spec}</script>
<script>vegaEmbed("#page", JSON.parse(document.getElementById("spec").textContent),
{{actions: false, ast: true, renderer: "svg"}});</script></body></html>
"""


@validate_params(
    {
        "path": [str, PathLike],
        "title": [str, None],
        "cost_unit": [str],
        "quality_label": [str, None],
        "n_budgets": [Interval(Integral, 2, 200, closed="both")],
        **RESAMPLING,
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
    n_budgets: int = 41,
    confidence_level: float = 0.95,
    n_resamples: int = 500,
    random_state: Any = 0,
    **params: Any,
) -> Path:
    """Write one HTML file that shows quality and choices at each budget; it needs no network.

    A slider moves the budget. Beside it stand quality and cost with intervals, the best single
    choice, the random mix of equal spend and the oracle, the shares of the choices, and the
    certificate of a :class:`~skroute.certified.CertifiedRouter`. It needs the extra
    ``skroute-ml[report]``. Nothing of single rows is written into the page.

    Parameters
    ----------
    estimator, X, y
        As in :func:`accuracy_cost_curve`; all of `y` must be known.

    path : str or path-like
        Where to write; a file that is there is replaced.

    budgets : array-like of shape (n_budgets,), default=None
        Stops of the slider. None takes `n_budgets` even steps from the smallest feasible budget to
        the largest that is of use, and the estimator's own.

    title : str, default=None
        Heading. None takes the name of the estimator's class.

    cost_unit : str, default=""
        What costs are counted in, for example ``"USD per 1,000 requests"``.

    quality_label : str, default=None
        What quality is called. None takes the estimator's own name for it, or "Quality".

    n_budgets : int, default=41
        Stops of the slider where `budgets` is None.

    confidence_level, n_resamples, random_state
        As in :func:`bootstrap_interval`.

    **params : keyword arguments
        Further arguments of ``predict_routed``, for example ``costs`` of each row.

    Returns
    -------
    pathlib.Path
        Of the file.

    Raises
    ------
    ImportError
        Where ``vl-convert-python``, which holds Vega-Lite, is not installed.
    ValueError
        For a budget below the cheapest plan, or outcomes that are not known.
    TypeError
        For `sample_weight`: all rows weigh the same here.

    See Also
    --------
    compare_with_references : The numbers over the whole range.
    AccuracyCostDisplay : The curve alone, in matplotlib.

    Notes
    -----
    No member is asked twice about a row. The baselines of routers are the single choices, for which
    each member is asked about every row; of other estimators they are the cheapest and the most
    expensive plan. Of a certified router the page shows the estimator that it wraps, and starts at
    the budget that the promise is about.

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
    path, unit = Path(path), f" ({cost_unit})" if cost_unit else ""
    if not path.parent.is_dir():
        raise FileNotFoundError(
            f"path={str(path)!r}: there is no folder {str(path.parent)!r}."
        )
    if "sample_weight" in params:
        raise TypeError(
            "decision_report takes no sample_weight: all rows weigh the same."
        )
    walk = BudgetSweep(estimator, X, y, **params)
    about = (
        f"{walk.n_rows} rows. Intervals of {confidence_level:.0%} are from resampled rows."
    )
    own = walk.router.make_call().budget
    if (certificate := getattr(walk.router, "certificate_", None)) is not None:
        about += f" {certificate}. The page starts at the budget that this is about."
        own = certificate.operating_budget
        walk = BudgetSweep(walk.router.estimator_, walk.X, y, **params)
    if budgets is None:
        least = walk.router.min_budget_
        most = max(
            least, walk.router.predict_cost(walk.X, budget=np.inf, **walk.params).mean()
        )
        budgets = [*np.linspace(least, most, n_budgets), np.clip(own, least, most)]
    limits = np.unique(check_budgets(budgets))
    numbers, shares, singles = _numbers(
        walk, limits, confidence_level, n_resamples, random_state
    )
    stops = [_text(limit) + unit for limit in limits]
    label = quality_label or walk.quality_label or "Quality"
    spec = _spec(numbers, shares, singles, stops, label, unit)
    # The largest budget that is at most the router's own.
    spec["params"][0]["value"] = max(
        int(np.searchsorted(limits, own, side="right")) - 1, 0
    )
    page = _PAGE.format(
        title=html.escape(
            title or f"{type(walk.router).__name__}: what each budget buys"
        ),
        about=html.escape(about),
        library=library.javascript_bundle().replace("</script", "<\\/script"),
        # No text in it can end the script element that it is in.
        spec=json.dumps(spec, allow_nan=False).replace("<", "\\u003c"),
    )
    path.write_text(page, encoding="utf-8")
    return path


def _numbers(walk, limits, confidence_level, n_resamples, random_state):
    """Numbers and shares at each stop of the slider, and the single choices, as rows of tables."""
    curve, (names, quality, cost) = walk.curve(limits), walk.single_choices()
    if not names:
        # What can be had without deciding between the two.
        names = ["cheapest plan", "most expensive plan"]
        quality, cost = curve.row_quality[:, [0, -1]], curve.row_cost[:, [0, -1]]
    check_all_known(quality, "y")
    # But for rounding the router spends no less than the cheapest plan of all.
    beside = reference_curves(
        quality, cost, np.maximum(curve.cost, cost.min(axis=1).mean())
    )

    def statistic(worth, paid, of_singles, prices):
        random = np.interp(paid, *random_mix(prices, of_singles), left=np.nan)
        return np.r_[paid, worth, worth - random]

    arrays = [curve.row_quality, curve.row_cost, quality, cost]
    sure = intervals(
        statistic, arrays, confidence_level=confidence_level,
        n_resamples=n_resamples, random_state=random_state)
    spent, router, above = np.array(sure)[:, :3].reshape(3, len(limits), 3)
    columns = {
        "spent per row": spent,
        "router": router,
        "above the random mix": above,
        "random mix": beside.random[:, np.newaxis],
        "best single choice": beside.single[:, np.newaxis],
        "oracle": beside.oracle[:, np.newaxis],
    }
    numbers = []
    for name, column in columns.items():
        for k, found in enumerate(column):
            row = {
                "stop": k,
                "what": name,
                "cost": curve.cost[k],
                "text": _text(*found),
            }
            # What is not known is None, as JSON has it.
            known = np.where(np.isnan(found), None, found)
            numbers.append(row | dict(zip(("value", "low", "high"), known)))
    shares = [
        {"stop": k, "choice": name, "share": share}
        for k, row in enumerate(curve.route_share)
        for name, share in zip(curve.choices, row)
    ]
    singles = zip(names, cost.mean(axis=0), quality.mean(axis=0))
    return (
        numbers,
        shares,
        [dict(zip(("name", "cost", "value"), one)) for one in singles],
    )


def _spec(numbers, shares, singles, budgets, label, unit):
    """The page's pictures in Vega-Lite, which all show the stop of one slider."""
    at_stop, router = (
        {"filter": "datum.stop == stop"},
        {"filter": "datum.what == 'router'"},
    )
    curved = {"filter": {"field": "what", "oneOf": ["router", "random mix", "oracle"]}}
    in_order = {"type": "nominal", "sort": None, "title": None}
    what, choice = in_order | {"field": "what"}, in_order | {"field": "choice"}
    number = {"type": "quantitative", "scale": {"zero": False}}
    x = number | {"field": "cost", "title": f"Mean cost per row{unit}"}
    y = number | {"field": "value", "title": label}
    band = {"y": y | {"field": "low"}, "y2": {"field": "high"}}
    beside = {"type": "text", "align": "left", "dx": 6, "dy": 10, "limit": 120}
    layers = [
        {
            "transform": [router],
            "mark": {"type": "area", "opacity": 0.2},
            "encoding": band,
        },
        {
            "transform": [curved],
            "mark": "line",
            "encoding": {"color": what, "strokeDash": what},
        },
        {"data": {"values": singles}, "mark": {"type": "circle", "color": "gray"}},
        {
            "data": {"values": singles},
            "mark": beside,
            "encoding": {"text": {"field": "name"}},
        },
        {
            "transform": [router, at_stop],
            "mark": {"type": "circle", "size": 130, "color": "black"},
        },
    ]
    table = {
        "transform": [at_stop],
        "mark": {"type": "text", "align": "left", "fontSize": 13},
        "width": 230,
        "encoding": {"x": {"value": 0}, "y": what, "text": {"field": "text"}},
    }
    share = {
        "field": "share",
        "title": "Share of the rows",
        "scale": {"domain": [0, 1]},
    }
    bars = {
        "data": {"values": shares},
        "transform": [at_stop],
        "mark": "bar",
        "width": 160,
        "encoding": {"x": number | share, "y": choice},
    }
    curves = {
        "width": 540,
        "height": 300,
        "encoding": {"x": x, "y": y},
        "layer": layers,
    }
    slider = {
        "input": "range",
        "min": 0,
        "max": len(budgets) - 1,
        "step": 1,
        "name": "Budget ",
    }
    return {
        "data": {"values": numbers},
        "params": [
            {"name": "stop", "bind": slider},
            {"name": "budgets", "value": budgets},
        ],
        "title": {"text": {"expr": "'Budget: ' + budgets[stop]"}, "fontSize": 18},
        "vconcat": [{"hconcat": [table, bars]}, curves],
        "config": {
            "view": {"stroke": None},
            "legend": {"orient": "top", "title": None},
        },
    }


def _text(value, low=np.nan, high=np.nan):
    """A number, with the ends of its interval where it has one."""
    if not np.isfinite(value):
        return "–" if np.isnan(value) else "unlimited"
    return f"{value:.4g}" + (f" ({low:.4g} to {high:.4g})" if np.isfinite(low) else "")
