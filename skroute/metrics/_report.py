"""A page that shows a router: one HTML file, with a slider for the budget."""

import html
import json
import os
from itertools import product
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from skroute.base import affords
from skroute.metrics._curve import (
    BudgetSweep,
    SingleChoices,
    check_budgets,
    name_of_cost,
)
from skroute.metrics._tradeoff import (
    RESAMPLING,
    check_all_known,
    check_qualities_known,
    intervals,
    random_mix,
    reference_curves,
)
from skroute.utils._compat import Integral, Interval, validate_params
from skroute.utils._optional import import_optional
from skroute.utils._plotting import COLOURS
from skroute.utils._typing import ArrayLike

# Template of the page. By its security policy the browser loads nothing but this file.
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:;
script-src 'unsafe-inline'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 62rem;
margin: 1rem auto; padding: 0 1rem }}
input {{ width: min(40rem, 75vw) }} input + span {{ display: none }}
#page {{ display: flex; flex-direction: column-reverse; overflow-x: auto }}</style>
</head>
<body><h1>{title}</h1><p>{about}</p><div id="page"></div>
<script>{library}</script>
<script type="application/json" id="spec">{spec}</script>
<script>const spec = JSON.parse(document.getElementById("spec").textContent);
// A window that is narrower than the charts side by side has them below each other.
if (innerWidth < {min_width}) {{
  const [row, curve] = spec.vconcat;
  const [table, bars] = row.hconcat;
  spec.vconcat = [table, bars, curve];
  // 175 pixels: margins, the longest label of the table, and half a point at the right.
  // All axes begin below each other.
  table.width = bars.width = curve.width = Math.min(curve.width, innerWidth - 175);
  // A smaller font, so that a number and a name fit.
  table.mark.fontSize = 11;
  // Names of choices are longer. They are on the bars.
  bars.mark = {{type: "bar", opacity: 0.5}};
  bars.encoding.y.axis =
    {{labelAlign: "left", labelPadding: -4, ticks: false, zindex: 1}};
  spec.config.legend.columns = 1;
}}
vegaEmbed("#page", spec,
{{actions: false, ast: true, renderer: "svg"}});</script></body></html>
"""
# Width in pixels of the page with the table and the bars side by side. Names have up to
# 45 letters.
_MIN_WIDTH = 1000


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
    costs: Any = None,
    **params: Any,
) -> Path:
    """Write one HTML file that shows quality and choices at each budget.

    A slider moves the budget. The page shows quality and cost with intervals, the best
    single choice, the random mix of equal cost, the oracle, the shares of the choices,
    and the certificate of a :class:`~skroute.certified.CertifiedRouter`. It needs no
    network, and has no data of single rows. The function needs the extra
    ``skroute-ml[report]``.

    Parameters
    ----------
    estimator, X, y
        As in :func:`accuracy_cost_curve`. `y` must have no missing values.

    path : str or path-like
        The file to write. An existing file is replaced.

    budgets : array-like of shape (n_budgets,), default=None
        Stops of the slider. None takes `n_budgets` evenly spaced budgets, and the
        estimator's own budget. The first is the smallest feasible budget. The last is
        the mean cost without a budget, or the mean cost of the best single choice if
        this is larger.

    title : str, default=None
        Heading. None takes the name of the estimator's class.

    cost_unit : str, default=""
        Unit of the costs, for example ``"USD per 1,000 requests"``.

    quality_label : str, default=None
        Name of the quality. None takes the estimator's own name for it, or "Quality".

    n_budgets : int, default=41
        Number of evenly spaced budgets if `budgets` is None.

    confidence_level, n_resamples, random_state
        As in :func:`bootstrap_interval`.

    costs : {array-like, dataframe} of shape (n_samples, n_choices), default=None
        Bills, as in :func:`accuracy_cost_curve`. All costs of the page are then bills.

    **params : keyword arguments
        Further arguments of ``predict_routed``.

    Returns
    -------
    pathlib.Path
        The path of the file.

    Raises
    ------
    ImportError
        If ``vl-convert-python``, which contains Vega-Lite, is not installed.
    FileNotFoundError
        If the folder of `path` does not exist.
    OSError
        If `path` is a folder, or cannot be written.
    ValueError
        For a budget below the cheapest plan, or unknown outcomes.
    TypeError
        For `sample_weight`: all rows weigh the same here.

    See Also
    --------
    compare_with_references : Numbers that summarise the whole range of budgets.
    AccuracyCostDisplay : The curve alone, in matplotlib.

    Notes
    -----
    No member is called twice about a row. The baselines of a router are its single
    choices, for which each member is called about every row. The baselines of other
    estimators are the cheapest and the most expensive plan. For a certified router the
    page shows the estimator inside, and starts at the budget of the certificate.

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
    >>> router = BudgetRouter(Ridge(), costs=problem.costs, budget=0.5)
    >>> router = router.fit(X[:200], Q[:200])
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = Path(folder.name) / "report.html"
    >>> page = decision_report(router, X[200:], Q[200:], path=path, n_resamples=20)
    >>> page.name, page.stat().st_size < 1.2e6
    ('report.html', True)
    >>> folder.cleanup()
    """
    library = import_optional("vl_convert", "decision_report")
    path = Path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(
            f"path={str(path)!r}: there is no folder {str(path.parent)!r}."
        )
    if path.is_dir():
        raise IsADirectoryError(
            f"path={str(path)!r} is a folder: give the name of a file in it."
        )
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise PermissionError(
            f"path={str(path)!r} cannot be written: give a file in another folder."
        )
    if "sample_weight" in params:
        raise TypeError(
            "decision_report takes no sample_weight: all rows weigh the same."
        )
    sweep = BudgetSweep(estimator, X, y, costs=costs, **params)
    check_qualities_known(sweep)
    about = (
        f"{sweep.n_rows} rows. Intervals of {confidence_level:.0%} are from resampled "
        "rows."
    )
    own_budget = sweep.router.make_call().budget
    # Only a certified router has a certificate.
    certificate = getattr(sweep.router, "certificate_", None)
    if certificate is not None:
        about += f" {certificate}. The page starts at the budget that this is about."
        own_budget = certificate.operating_budget
        # The page shows the router inside of the certified router.
        router = sweep.router.estimator_
        sweep = BudgetSweep(router, sweep.X, y, costs=costs, **params)
    if budgets is None:
        budgets = _default_budgets(sweep, own_budget, n_budgets)
    # The budget at each stop of the slider, sorted.
    slider_budgets = np.unique(check_budgets(budgets))
    tables = _make_tables(
        sweep,
        slider_budgets,
        confidence_level=confidence_level,
        n_resamples=n_resamples,
        random_state=random_state,
    )
    unit = f" ({cost_unit})" if cost_unit else ""
    spec = _chart_spec(
        tables,
        budget_texts=[_text(budget) + unit for budget in slider_budgets],
        start=_first_stop(slider_budgets, own_budget),
        quality_label=quality_label or sweep.quality_label or "Quality",
        unit=unit,
    )
    if not title:
        title = f"{type(sweep.router).__name__}: what each budget buys"
    page = _fill_page(
        spec, title=title, about=about, library=library.javascript_bundle()
    )
    path.write_text(page, encoding="utf-8")
    return path


def _fill_page(spec, *, title, about, library):
    """Return the HTML text of the page, with its charts and the code that draws them.

    Parameters
    ----------
    spec : dict
        The charts in Vega-Lite.
    title, about : str
        Heading, and the text below it.
    library : str
        JavaScript code that draws the charts.

    Returns
    -------
    str
    """
    return _PAGE.format(
        min_width=_MIN_WIDTH,
        title=html.escape(title),
        about=html.escape(about),
        # A browser ends a script at the text "</script". So neither the library nor the
        # data may contain it.
        library=library.replace("</script", "<\\/script"),
        spec=json.dumps(spec, allow_nan=False).replace("<", "\\u003c"),
    )


def _default_budgets(sweep, own_budget, n_budgets):
    """Return evenly spaced budgets, and the estimator's own budget.

    The docstring of `decision_report` has their range (parameter `budgets`). Larger
    budgets change no decision.

    Parameters
    ----------
    sweep : BudgetSweep
    own_budget : float
        Infinity, which is no budget, becomes the largest budget of the range.
    n_budgets : int
        Number of evenly spaced budgets.

    Returns
    -------
    ndarray of shape (n_budgets + 1,)
        The estimator's own budget is last. It may be one of the others, too.
    """
    smallest = sweep.router.min_budget_
    call = sweep.router.make_call(np.inf, **sweep.params)
    cost_without_budget = sweep.router.plan(sweep.X, call).cost.mean()
    largest = max(smallest, cost_without_budget, _cost_of_best_single(sweep))
    even_budgets = np.linspace(smallest, largest, n_budgets)
    return np.append(even_budgets, np.clip(own_budget, smallest, largest))


def _cost_of_best_single(sweep):
    """Return the mean cost of the best single choice, or 0 without single choices."""
    singles = sweep.single_choices()
    if not singles.names:
        return 0.0
    best_column = np.argmax(sweep.means(singles.quality))
    return sweep.means(singles.cost)[best_column]


def _first_stop(slider_budgets, own_budget):
    """Return the slider's position of the largest budget within the estimator's own.

    `slider_budgets` are sorted. The position is 0 if all of them are larger.
    """
    n_within = int(np.searchsorted(slider_budgets, own_budget, side="right"))
    return max(n_within - 1, 0)


# The data of the page -----------------------------------------------------------------


class ReportTables(NamedTuple):
    """Data of the page that the report writes, as rows of tables for Vega-Lite.

    Attributes
    ----------
    numbers : list of dict
        One for each stop of the slider and each line of the page's table. Its keys are
        ``"stop"`` (position of the budget), ``"what"`` (name of the line), ``"cost"``
        (mean cost of the router), ``"text"``, ``"value"``, and for numbers with an
        interval ``"low"`` and ``"high"``.

    shares : list of dict
        One for each stop and each choice, with the keys ``"stop"``, ``"choice"`` and
        ``"share"``.

    singles : list of dict
        One for each single choice, with the keys ``"name"``, ``"cost"`` and
        ``"value"``.

    names : list of str
        All choices, and then the other single choices. A name has one colour in all
        charts.

    cost_name : str
        Label of the axis of costs, such as "Mean cost per row, as billed".
    """

    numbers: list[dict[str, Any]]
    shares: list[dict[str, Any]]
    singles: list[dict[str, Any]]
    names: list[str]
    cost_name: str


def _make_tables(sweep, slider_budgets, *, confidence_level, n_resamples, random_state):
    """Compute the numbers and shares that the page shows at each stop of its slider.

    Parameters
    ----------
    sweep : BudgetSweep
    slider_budgets : ndarray of shape (n_budgets,)
        The budget at each stop of the slider, sorted.
    confidence_level, n_resamples, random_state
        As in :func:`bootstrap_interval`.

    Returns
    -------
    ReportTables
    """
    curve = sweep.curve(slider_budgets)
    singles = sweep.single_choices()
    if not singles.names:
        # Without single choices, the references are the ends of the curve: the first
        # column has the smallest budget, and the last column the largest.
        singles = SingleChoices(
            names=["cheapest plan", "most expensive plan"],
            quality=curve.row_quality[:, [0, -1]],
            cost=curve.row_cost[:, [0, -1]],
        )
    check_all_known(singles.quality, "y")
    rows_of_router = _rows_of_router(
        curve,
        singles,
        confidence_level=confidence_level,
        n_resamples=n_resamples,
        random_state=random_state,
    )
    # The keys of this dict are the names without duplicates, in order.
    unique_names = dict.fromkeys([*curve.choices, *singles.names])
    return ReportTables(
        numbers=[*rows_of_router, *_rows_of_references(curve, singles)],
        shares=_rows_of_shares(curve),
        singles=_rows_of_singles(singles),
        names=list(unique_names),
        cost_name=name_of_cost(curve).capitalize(),
    )


def _rows_of_router(curve, singles, *, confidence_level, n_resamples, random_state):
    """Return cost, quality and gain of the router at each stop of the slider.

    Each number has an interval.

    Parameters
    ----------
    curve : AccuracyCostCurve
    singles : SingleChoices
    confidence_level, n_resamples, random_state
        As in :func:`bootstrap_interval`.

    Returns
    -------
    list of dict
        As `numbers` of `ReportTables`.
    """
    results = intervals(
        _costs_qualities_and_gains,
        [curve.row_quality, curve.row_cost, singles.quality, singles.cost],
        confidence_level=confidence_level,
        n_resamples=n_resamples,
        random_state=random_state,
    )
    # Names of lines of the page's table. `results` has the intervals of the first name
    # at all stops of the slider, then those of the second name, ...
    names = ["spent per row", "router", "above the random mix"]
    stops = range(len(curve.cost))
    rows = []
    for (name, stop), interval in zip(product(names, stops), results):
        row = _row(stop, name, cost=curve.cost[stop], value=interval.estimate)
        row["text"] = _text(interval.estimate, low=interval.low, high=interval.high)
        row["low"] = _json_number(interval.low)
        row["high"] = _json_number(interval.high)
        rows.append(row)
    return rows


def _costs_qualities_and_gains(quality, cost, single_quality, single_cost):
    """Return mean costs, mean qualities, and gains above the random mix of equal cost.

    Parameters
    ----------
    quality, cost : ndarray of shape (n_budgets,)
        Means of the router.
    single_quality, single_cost : ndarray of shape (n_choices,)
        Means of the single choices.

    Returns
    -------
    ndarray of shape (3, n_budgets)
        The gain is NaN if no mix is as cheap.
    """
    mix = random_mix(single_cost, single_quality)
    # Above the cost of the most expensive mix, `interp` returns its quality.
    mix_quality = np.interp(cost, mix.cost, mix.quality, left=np.nan)
    return np.array([cost, quality, quality - mix_quality])


def _rows_of_references(curve, singles):
    """Return the quality of the references at each stop of the slider.

    Random mix and oracle may spend the mean cost of the router at the stop. The best
    single choice may spend the budget of the stop: no single choice has exactly the
    mean cost of the router.

    Parameters
    ----------
    curve : AccuracyCostCurve
    singles : SingleChoices

    Returns
    -------
    list of dict
        As `numbers` of `ReportTables`.
    """
    # Mean cost of the cheapest choice of each row. The router spends as much or more,
    # except for rounding errors, which `maximum` removes.
    smallest_cost = singles.cost.min(axis=1).mean()
    spent = np.maximum(curve.cost, smallest_cost)  # (n_budgets,)
    references = reference_curves(singles.quality, singles.cost, spent)
    rows = []
    for stop, cost in enumerate(curve.cost):
        rows.append(_row(stop, "random mix", cost=cost, value=references.random[stop]))
    largest_costs = np.maximum(curve.budget, spent)
    for stop, column in enumerate(_best_singles(singles, largest_costs)):
        # The value stays unknown (NaN) if no single choice is as cheap.
        row = _row(stop, "best single choice", cost=curve.cost[stop], value=np.nan)
        if column is not None:
            quality = singles.quality[:, column].mean()
            row["value"] = float(quality)
            row["text"] = f"{_text(quality)} by {singles.names[column]}"
        rows.append(row)
    for stop, cost in enumerate(curve.cost):
        rows.append(_row(stop, "oracle", cost=cost, value=references.oracle[stop]))
    return rows


def _best_singles(singles, largest_costs):
    """Return the column of the best single choice within each of several mean costs.

    Parameters
    ----------
    singles : SingleChoices
    largest_costs : ndarray of shape (n_budgets,)
        The mean costs.

    Returns
    -------
    list of int or None
        Columns of `singles`. None if no single choice is as cheap.
    """
    mean_costs = singles.cost.mean(axis=0)
    mean_qualities = singles.quality.mean(axis=0)
    best_columns = []
    for largest_cost in largest_costs:
        is_affordable = affords(largest_cost, mean_costs)
        if is_affordable.any():
            # A choice of quality -inf is never the best.
            affordable_qualities = np.where(is_affordable, mean_qualities, -np.inf)
            best_columns.append(int(np.argmax(affordable_qualities)))
        else:
            best_columns.append(None)
    return best_columns


def _row(stop, name, *, cost, value):
    """Return an entry of `ReportTables.numbers`, for one line and one slider stop.

    Parameters
    ----------
    stop : int
        Position of the budget.
    name : str
        Name of the line.
    cost : float
        Mean cost of the router at this budget.
    value : float
        The number. NaN is unknown.

    Returns
    -------
    dict
        As an entry of `numbers` of `ReportTables`, without an interval.
    """
    return {
        "stop": stop,
        "what": name,
        "cost": cost,
        "text": _text(value),
        "value": _json_number(value),
    }


def _rows_of_shares(curve):
    """Return `ReportTables.shares`: the share of each choice at each slider stop."""
    rows = []
    for stop, shares in enumerate(curve.route_share):
        for name, share in zip(curve.choices, shares):
            rows.append({"stop": stop, "choice": name, "share": share})
    return rows


def _rows_of_singles(singles):
    """Return `ReportTables.singles`: mean cost and quality of each single choice."""
    costs = singles.cost.mean(axis=0)
    qualities = singles.quality.mean(axis=0)
    rows = []
    for name, cost, quality in zip(singles.names, costs, qualities):
        rows.append({"name": name, "cost": cost, "value": quality})
    return rows


def _json_number(value):
    """Return a number for JSON: None in place of NaN, which JSON does not have."""
    return None if np.isnan(value) else float(value)


def _text(value, *, low=np.nan, high=np.nan):
    """Return a number as a text, with the ends of its interval unless they are NaN.

    An unknown number is a dash.
    """
    if np.isnan(value):
        return "–"
    if np.isinf(value):
        return "unlimited"
    text = f"{value:.4g}"
    if np.isfinite(low):
        text += f" ({low:.4g} to {high:.4g})"
    return text


# The charts of the page ---------------------------------------------------------------

# Vega-Lite filter that keeps the entries at the present stop of the slider.
_AT_SLIDER_STOP = {"filter": "datum.stop == stop"}
# Vega-Lite filter that keeps the qualities of the router. The key "what" of an entry of
# `ReportTables.numbers` is the name of a line of the page's table.
_OF_ROUTER = {"filter": "datum.what == 'router'"}
# Vega-Lite filter that keeps the entries that are drawn as curves, by the key "what".
_OF_CURVES = {"filter": {"field": "what", "oneOf": ["router", "random mix", "oracle"]}}
# Axis of names, in the order of the data.
_NAME_AXIS = {"type": "nominal", "sort": None, "title": None}
# Axis of numbers, which need not start at 0.
_NUMBER_AXIS = {"type": "quantitative", "scale": {"zero": False}}


def _chart_spec(tables, *, budget_texts, start, quality_label, unit):
    """Return the charts of the page in Vega-Lite, which all follow one slider.

    Parameters
    ----------
    tables : ReportTables
    budget_texts : list of str
        The budget at each stop of the slider.
    start : int
        Stop at which the page opens.
    quality_label : str
        Name of the quality.
    unit : str
        Unit of the costs in parentheses, or an empty text.

    Returns
    -------
    dict
    """
    slider = {
        "input": "range",
        "min": 0,
        "max": len(budget_texts) - 1,
        "step": 1,
        "name": "Budget ",
    }
    return {
        "data": {"values": tables.numbers},
        "params": [
            {"name": "stop", "bind": slider, "value": start},
            {"name": "budgets", "value": budget_texts},
        ],
        "title": {"text": {"expr": "'Budget: ' + budgets[stop]"}, "fontSize": 16},
        "vconcat": [
            {"hconcat": [_number_table(), _share_bars(tables)]},
            _curve_chart(tables, quality_label=quality_label, unit=unit),
        ],
        "config": {
            "view": {"stroke": None},
            # The legend is below the curves. Above them it would look like part of the
            # table.
            "legend": {
                "orient": "bottom",
                "columns": 2,
                "titleLimit": 0,
                "labelLimit": 0,
            },
            # Names are not cut: 0 is no limit.
            "axis": {"labelLimit": 0},
            "title": {"anchor": "start"},
        },
    }


def _number_table():
    """Return the page's table of numbers at the slider's stop, in Vega-Lite."""
    return {
        "title": "Cost and quality at this budget",
        "transform": [_AT_SLIDER_STOP],
        "mark": {
            "type": "text",
            "align": "left",
            "fontSize": 13,
            "dx": 6,
            "limit": 375,
        },
        "width": 380,
        "encoding": {
            "x": {"value": 0},
            "y": {**_NAME_AXIS, "field": "what"},
            "text": {"field": "text"},
        },
    }


def _colour_scale(names):
    """Return the scale of colours of choices, as in the displays, in Vega-Lite."""
    if len(names) <= len(COLOURS):
        return {"domain": names, "range": list(COLOURS[: len(names)])}
    # This scheme of Vega-Lite has colours for any number of names.
    return {"domain": names, "scheme": "turbo"}


def _share_bars(tables):
    """Return bars of the share of rows of each choice at a slider stop, in Vega-Lite.

    Parameters
    ----------
    tables : ReportTables

    Returns
    -------
    dict
    """
    colour = {
        "field": "choice",
        "type": "nominal",
        "scale": _colour_scale(tables.names),
        # The axis has the names already.
        "legend": None,
    }
    share = {
        **_NUMBER_AXIS,
        "field": "share",
        "title": "Share of the rows",
        "scale": {"domain": [0, 1]},
    }
    return {
        "title": "Which choice answers",
        "data": {"values": tables.shares},
        "transform": [_AT_SLIDER_STOP],
        "mark": "bar",
        "width": 160,
        "encoding": {
            "x": share,
            "y": {**_NAME_AXIS, "field": "choice"},
            "color": colour,
        },
    }


def _curve_chart(tables, *, quality_label, unit):
    """Return the chart of quality over cost, in Vega-Lite.

    Parameters
    ----------
    tables : ReportTables
    quality_label, unit : str
        As in `_chart_spec`.

    Returns
    -------
    dict
    """
    # The key "what" of an entry of `tables.numbers` is the name of a line of the page's
    # table. Three of these lines become curves: router, random mix and oracle.
    name = {**_NAME_AXIS, "field": "what"}
    # The title of the axis is a list of text lines: the second one is the unit, if any.
    cost_title = [tables.cost_name, unit.strip()] if unit else [tables.cost_name]
    cost = {**_NUMBER_AXIS, "field": "cost", "title": cost_title}
    quality = {**_NUMBER_AXIS, "field": "value", "title": quality_label}
    # Area between the ends of the intervals of the router's quality.
    band = {
        "transform": [_OF_ROUTER],
        "mark": {"type": "area", "opacity": 0.2},
        "encoding": {"y": {**quality, "field": "low"}, "y2": {"field": "high"}},
    }
    line_colour = {
        **name,
        "scale": {"range": ["black", "gray", "darkgray"]},
        # The legend of the dashes is the only one for the lines.
        "legend": None,
    }
    line_dash = {
        **name,
        "legend": {"title": "Lines", "symbolStrokeColor": "black"},
    }
    curves = {
        "transform": [_OF_CURVES],
        "mark": "line",
        "encoding": {"color": line_colour, "strokeDash": line_dash},
    }
    single_points = {
        "data": {"values": tables.singles},
        "mark": {
            "type": "point",
            "shape": "diamond",
            "filled": True,
            "size": 90,
            "opacity": 1,
        },
        "encoding": {
            "color": {
                **_NAME_AXIS,
                "field": "name",
                "scale": _colour_scale(tables.names),
                "legend": {
                    "title": "One choice for all rows",
                    # The scale has all choices. The legend has those that are drawn.
                    "values": [single["name"] for single in tables.singles],
                },
            }
        },
    }
    # Circle at the router's cost and quality at the present stop of the slider.
    router_point = {
        "transform": [_OF_ROUTER, _AT_SLIDER_STOP],
        "mark": {"type": "circle", "size": 130, "color": "black"},
    }
    return {
        "title": ["Quality against cost.", "The circle is the router at this budget"],
        "width": 540,
        "height": 300,
        "encoding": {"x": cost, "y": quality},
        "layer": [band, curves, single_points, router_point],
        # Lines and points of choices have separate colour scales.
        "resolve": {"scale": {"color": "independent"}},
    }
