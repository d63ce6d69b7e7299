"""The page of a report: numbers as data, a chart in Vega-Lite, and a template around them."""

import base64
import hashlib
import html
import json
import re
from importlib import resources
from typing import Any, NamedTuple

import numpy as np

# How the numbers over all budgets are called, and whether less is better.
_OVER_ALL = {
    "auc": "Mean quality over the range",
    "apgr": "Share of the gap recovered",
    "cpt_50": "Cost to recover 50 % of the gap",
    "cpt_80": "Cost to recover 80 % of the gap",
    "saving": "Saving at the best single choice's quality",
    "distance": "Quality short of the best single choices",
}
_WHO = ("router", "random", "single", "oracle", "gain")


class PageTexts(NamedTuple):
    """What the user calls things."""

    title: str
    cost_unit: str
    quality_label: str
    confidence_level: float


def render(table, numbers, texts, examples, values, certificate, start, library):
    """The page as a text.

    Parameters
    ----------
    table : DecisionTable
    numbers : ReportNumbers
    texts : PageTexts
    examples : ndarray of int
        Positions of the example rows.
    values : (list of str, list of list of str) or None
        Headings and texts of the columns that are shown of them.
    certificate : Certificate or None
    start : int
        Stop at which the slider stands first.
    library : module
        ``vl_convert``.
    """
    data = page_data(table, numbers, texts, examples, values, certificate, start)
    template = resources.files("skroute.metrics").joinpath("report_page.html")
    shell = template.read_text(encoding="utf-8")
    script = resources.files("skroute.metrics").joinpath("report_page.js")
    # As a parser of HTML reads it, so that the digest is that of what it runs.
    chart = library.javascript_bundle().replace("\r\n", "\n").replace("</script", "<\\/script")
    own = script.read_text(encoding="utf-8")
    parts = {
        "title": html.escape(texts.title),
        "policy": _policy(chart, own),
        "table": _table_of_stops(data),
        "data": as_json(data),
        "library": chart,
        "script": own,
    }
    # One pass: what is put in is not read again.
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], shell)


def as_json(data):
    """JSON that no text in it can break out of, inside a script element."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _policy(*scripts):
    """The page's own rule for the browser: these scripts, and nothing from anywhere."""
    digests = (hashlib.sha256(script.encode("utf-8")).digest() for script in scripts)
    allowed = " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
    return f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:"


def page_data(table, numbers, texts, examples, values, certificate, start):
    """All that the page shows, as plain lists, texts and numbers; what is not a number is None."""
    curve, single_costs = table.curve(), np.asarray(table.single_costs)
    if single_costs.ndim == 2:
        single_costs = single_costs.mean(axis=0)
    budgets = [None if np.isinf(budget) else float(budget) for budget in table.budget]
    return {
        "title": texts.title,
        "unit": texts.cost_unit,
        "qualityLabel": texts.quality_label,
        "confidence": texts.confidence_level,
        "nRows": len(table.route),
        "start": int(start),
        "budgets": budgets,
        "choices": list(table.choices),
        "quality": _intervals(numbers.quality),
        "cost": _intervals(numbers.cost),
        "gain": _intervals(numbers.gain),
        "random": _numbers(numbers.references.random),
        "single": _numbers(numbers.references.single),
        "oracle": _numbers(numbers.references.oracle),
        "drawn": {
            "x": _numbers(numbers.drawn.budget),
            "random mix": _numbers(numbers.drawn.random),
            "oracle": _numbers(numbers.drawn.oracle),
        },
        "share": [_numbers(row) for row in curve.route_share],
        "singles": [
            {"name": name, "cost": _number(cost), "quality": _number(quality)}
            for name, cost, quality in zip(
                table.singles, single_costs, table.single_quality.mean(axis=0)
            )
        ],
        "overAll": _over_all(numbers.over_all),
        "examples": _examples(table, examples, values),
        "certificate": _certificate(certificate),
    }


def _number(value):
    return float(value) if np.isfinite(value) else None


def _numbers(values):
    return [_number(value) for value in np.asarray(values, dtype=np.float64)]


def _intervals(found):
    return [[_number(one.estimate), _number(one.low), _number(one.high)] for one in found]


def _over_all(found):
    if found is None:
        return None
    return [
        {"name": title, "cells": _intervals(found[metric][who] for who in _WHO)}
        for metric, title in _OVER_ALL.items()
    ]


def _examples(table, examples, values):
    heads, cells = values or ([], [[] for _ in examples])
    rows: list[dict[str, Any]] = [
        {
            "row": int(row),
            "route": [int(choice) for choice in table.route[row]],
            "cost": _numbers(table.cost[row]),
            "quality": _numbers(table.quality[row]),
            "shown": list(map(str, cells[at])),
        }
        for at, row in enumerate(examples)
    ]
    price = None
    if table.estimates is not None:
        for one in rows:
            one["estimates"] = _numbers(table.estimates[one["row"]])
            one["planned"] = _numbers(table.planned[one["row"]])
        price = None if table.price is None else _numbers(table.price)
    return {"heads": list(map(str, heads)), "rows": rows, "price": price}


def _certificate(certificate):
    if certificate is None:
        return None
    return {
        "sentence": str(certificate),
        "promised": bool(certificate.promised),
        "single": certificate.single,
        "budget": _number(certificate.operating_budget),
    }


def _table_of_stops(data):
    """Every stop as a row, for readers without scripts and for paper."""
    lines = []
    for k, budget in enumerate(data["budgets"]):
        cells = ["unlimited" if budget is None else f"{budget:.4g}"]
        cells += [_between(data["cost"][k]), _between(data["quality"][k])]
        cells += [_plain(data[name][k]) for name in ("random", "single", "oracle")]
        lines.append("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in cells) + "</tr>")
    return "\n".join(lines)


def _plain(value):
    return "–" if value is None else f"{value:.4g}"


def _between(found):
    estimate, low, high = found
    return _plain(estimate) if low is None else f"{_plain(estimate)} ({low:.4g} to {high:.4g})"
