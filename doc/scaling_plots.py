"""Pictures of measured scaling for the guide, drawn from the results when pages are built."""

import json
from pathlib import Path


def draw_scaling(results, folder):
    """Write the pictures that the guide shows.

    Parameters
    ----------
    results : Path
        The folder with ``scale.json`` and ``ledger.json``.
    folder : Path
        Where ``scaling_rows.svg`` and ``scaling_ledgers.svg`` go.
    """
    import matplotlib

    folder.mkdir(parents=True, exist_ok=True)
    with matplotlib.rc_context({"svg.hashsalt": "skroute", "figure.figsize": (6.0, 3.4)}):
        for name, draw in (("rows", _draw_rows), ("ledgers", _draw_ledgers)):
            figure = draw(Path(results))
            figure.savefig(folder / f"scaling_{name}.svg", metadata={"Date": None})


def _draw_rows(results):
    sizes = json.loads((results / "scale.json").read_text(encoding="utf-8"))["result"]["sizes"]
    figure, ax = _axes()
    rows = [one["rows"] for one in sizes]
    ax.plot(rows, [one["seconds"] for one in sizes], "o-", label="plan and choices")
    ax.plot(rows, [one["pass"] for one in sizes], "s--", label="one pass: read and argmax")
    ax.set(xscale="log", yscale="log", xlabel="Rows of seven values", ylabel="Seconds")
    ax.legend(frameon=False)
    return figure


def _draw_ledgers(results):
    found = json.loads((results / "ledger.json").read_text(encoding="utf-8"))["result"]
    rates = {"memory\n1 thread": 1e6 / found["memory"]["unknown number"]}
    rates |= {f"{name}\n2 processes x 4": rate for name, rate in found["rates"].items()}
    figure, ax = _axes()
    bars = ax.barh(list(rates), list(rates.values()))
    ax.bar_label(bars, [f"{rate:,.0f}" for rate in rates.values()], padding=3)
    ax.set(xscale="log", xlabel="Reserve and commit pairs a second")
    ax.set_xlim(right=4 * max(rates.values()))
    ax.invert_yaxis()
    return figure


def _axes():
    # Of no window, and kept by no list of figures.
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    figure = Figure(layout="constrained")
    FigureCanvasSVG(figure)
    ax = figure.add_subplot()
    ax.spines[["top", "right"]].set_visible(False)
    return figure, ax
