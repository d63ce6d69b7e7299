"""Write the measured numbers of README and site, and their picture, from the last full run.

    make readme

Reads ``benchmarks/results/*.json``, rewrites what stands between the markers in README.md (the
rows of `HEADLINES`), writes ``doc/measured.rst`` (every row of `ROWS`), and draws
``doc/_static/faces_light.png`` and ``faces_dark.png``. tests/test_readme.py fails while README,
page, picture and results disagree. Needs matplotlib for the picture, nothing else.
"""

import hashlib
import json
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PICTURES = {mode: ROOT / "doc" / "_static" / f"faces_{mode}.png" for mode in ("light", "dark")}
PAGE = ROOT / "doc" / "measured.rst"
MARKED = re.compile(r"(<!-- measured -->\n).*?(<!-- /measured -->)", re.DOTALL)

# What, how it is said, and the benchmark whose claims are meant; `{key}` is a claim's number,
# `{key.peer}` its peer's; `:2` asks for two significant digits, `:.2f` for two decimals.
ROWS = [
    (
        "exact assignment of 10,000 rows to 7 models, beside HiGHS's full MILP",
        "same objective, {exact-random:2} and {exact-multiples:2} times as fast",
        "assignment",
    ),
    (
        "neighbours for OCCAM's estimator, 40,000 x 512, chebyshev, beside scikit-learn's "
        "brute force",
        "same neighbours, {exact-chebyshev-uniform:2} to {exact-chebyshev-embedding:2} times as "
        "fast; euclidean {exact-euclidean-uniform:2} times",
        "quality",
    ),
    (
        "USPS, five models, measured time, three seeds: OCCAM at 60 % of the best model's cost",
        "{lost:.2f} points of accuracy lost, {mix-60:.2f} above the best random mix of two models "
        "for the same money; at every budget at least {mix:.2f} above that mix and {single:.2f} "
        "above the single best model",
        "occam",
    ),
    (
        "USPS, three convolutional nets, measured time, three seeds: OCCAM at 60 % of the largest "
        "net's time",
        "{lost:.2f} points of accuracy lost; wall clock {wall-in-turn:.2f} times the routes' costs",
        "neural",
    ),
    (
        "USPS, one net with four exits, three seeds: `QWYCEnsemble` beside the whole net",
        "{qwyc_seconds:.0%} less time, {qwyc_points:.2f} points of accuracy lost",
        "multi_exit",
    ),
    (
        "FER+ faces, four APIs, five seeds: best of three routers, cost at the best API's accuracy",
        "{saving-FERPLUS:.0f} % less; at its price {gain-FERPLUS:.1f} points more",
        "frugal",
    ),
    (
        "nine language models, 5 folds: quality at half of the best model's price",
        "{half-best:.3f}; the best model at its full price {half-best.peer:.3f}; mean cost "
        "{half-cost:.2f} of the budget",
        "llm_routing",
    ),
    (
        "cascades of language models, 300 logged rows, area of error over cost, MMLU and TriviaQA: "
        "`CascadeRouter` over five",
        "{mmlu-five:.3f} and {triviaqa-five:.3f}; published cascades {mmlu-five.peer:.3f} and "
        "{triviaqa-five.peer:.3f}, single models mixed at random {mmlu-five-singles.peer:.3f} and "
        "{triviaqa-five-singles.peer:.3f}",
        "cascades",
    ),
    (
        "ParetoBandit's log with a price list, spend over budget in the money that was paid",
        "{bias_ParetoBandit_fixed:.1%} off; a price by planned costs "
        "{bias_ParetoBandit_fixed.peer:.1%} off",
        "budgets",
    ),
    (
        "default estimate of quality, gain over the best random mix at equal spend, points, mean "
        "of 18 tables with at most 4,000 training rows, up to two folds",
        "{gain:.2f}; OCCAM's bagged neighbours {gain.peer:.2f}; {one:.0f} us for one row",
        "estimates",
    ),
    (
        "a new model with 100 scored rows, no fit: draws more than .2 points below leaving it "
        "out, on CARROT, LLMRouter and MMLU",
        "{new_CARROT_100_harm:.0%}, {new_LLMRouter_100_harm:.0%}, {new_MMLU_100_harm:.0%}; by "
        "means shrunk in blocks {new_CARROT_100_harm.peer:.0%}, {new_LLMRouter_100_harm.peer:.0%}, "
        "{new_MMLU_100_harm.peer:.0%}",
        "lifecycle",
    ),
    (
        "ParetoBandit's data, five ceilings per request, 20 seeds: reward of `OnlineBudgetRouter`",
        "{reward_2:.3f}, {reward_3:.3f}, {reward_4:.3f}, {reward_5:.3f}, {reward_6:.3f} at no more "
        "than the ceiling; ParetoBandit {reward_2.peer:.3f}, {reward_3.peer:.3f}, "
        "{reward_4.peer:.3f}, {reward_5.peer:.3f}, {reward_6.peer:.3f}; at the third the best "
        "single model has 0.923",
        "online",
    ),
    (
        "streams of 8 processes over one total, 200,000 requests, 50 kills: SQLite ledger",
        "{sqlite_storm_above:.0f} above the total, booked less counted {sqlite_storm_exact:.0f}, "
        "{sqlite_storm_used:.2%} of it used",
        "ledger",
    ),
]


# What decides, shorter, and beside whom; shown in README.
HEADLINES = [
    (
        "four emotion APIs on FER+ faces, at the accuracy of the best one",
        "{saving-FERPLUS:.0f} % of its price saved",
        "the best API, bought for every face",
        "frugal",
    ),
    (
        "nine language models, half of the best model's price: quality",
        "{half-best:.3f}",
        "{half-best.peer:.3f}, the best model at its full price",
        "llm_routing",
    ),
    (
        "one-shot routing on 18 tables: points above the best random mix at equal spend",
        "{gain:.2f}",
        "{gain.peer:.2f}, OCCAM's bagged neighbours",
        "estimates",
    ),
    (
        "cascades of five language models, 300 logged rows, area of error over cost (less is "
        "better), MMLU and TriviaQA",
        "{mmlu-five:.3f}, {triviaqa-five:.3f}",
        "{mmlu-five.peer:.3f}, {triviaqa-five.peer:.3f}, as published by Zellinger and Thomson; "
        "{mmlu-five-singles.peer:.3f}, {triviaqa-five-singles.peer:.3f}, single models mixed at "
        "random",
        "cascades",
    ),
    (
        "learning while serving under a ceiling, 20 seeds: reward at the tightest of five ceilings",
        "{reward_2:.3f}",
        "{reward_2.peer:.3f}, ParetoBandit, as published",
        "online",
    ),
    (
        "eight processes, one total, 200,000 requests, 50 of the processes killed: money above the "
        "total",
        "{sqlite_storm_above:.0f}; {sqlite_storm_used:.2%} of it used",
        "none was compared",
        "ledger",
    ),
]


class _Number:
    """A claim in a format string."""

    def __init__(self, value, peer=None):
        self.value = value
        if peer is not None:
            self.peer = _Number(peer)

    def __format__(self, spec):
        if spec.endswith(("f", "%")):
            return format(self.value, spec).replace("%", " %")
        value = float(f"{self.value:.{spec}g}")
        return f"{value:,.0f}" if abs(value) >= 10 ** (int(spec) - 1) else f"{value:.{spec}g}"


def load_results(folder=ROOT / "benchmarks" / "results"):
    """Records of all benchmarks, by name."""
    paths = sorted(folder.glob("*.json"))
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in paths}


def _claims(record):
    """Numbers of a benchmark by key; a dot in a field asks for an attribute."""
    return {
        c["key"].replace(".", "_"): _Number(c["measured"], c.get("peer")) for c in record["claims"]
    }


def summary(results):
    """Sentences on all benchmarks: verdicts, bars, machines, day."""
    every = [c for record in results.values() for c in record["claims"]]
    count = {
        verdict: sum(c["verdict"] == verdict for c in every)
        for verdict in ("ahead", "equal", "behind", "not comparable")
    }
    asked = [c["met"] for c in every if "met" in c]
    machines = {f"{r['machine']['cpu']}, {r['machine']['cores']} cores" for r in results.values()}
    dates = {record["date"] for record in results.values()}
    return (
        f"Of {len(every)} claims in {len(results)} benchmarks, skroute is ahead in "
        f"{count['ahead']}, equal in {count['equal']} and behind in {count['behind']}; "
        f"{count['not comparable']} have nothing to be compared with. {sum(asked)} of {len(asked)} "
        f"bars that were set beforehand are met. {'; '.join(sorted(machines))}; between "
        f"{min(dates)} and {max(dates)}; no GPU."
    )


def headlines(results):
    """The part of the README between the markers.

    Parameters
    ----------
    results : dict from str to dict

    Returns
    -------
    str
        Markdown.
    """
    lines = ["| what | skroute | peer | command |", "|---|---|---|---|"]
    for what, ours, theirs, name in HEADLINES:
        if name in results:
            claims = _claims(results[name])
            cells = [text.format_map(claims) for text in (what, ours, theirs)]
            lines.append(f"| {' | '.join(cells)} | `make bench-{name}` |")
    return "\n".join([*lines, "", summary(results), ""])


def measured_page(results):
    """The site's page of measured numbers.

    Parameters
    ----------
    results : dict from str to dict

    Returns
    -------
    str
        reStructuredText.
    """
    lines = [
        ".. This page is written by benchmarks/readme.py from benchmarks/results/*.json.",
        "",
        ".. _measured:",
        "",
        "Measured",
        "========",
        "",
        "One line for each thing that skroute does, with what it was compared with.",
        ":ref:`benchmarks` has every claim, the ones behind first, and how each was measured.",
        "",
        summary(results),
        "",
        ".. list-table::",
        "   :header-rows: 1",
        "   :widths: 36 36 16 12",
        "",
        "   * - what",
        "     - measured",
        "     - command",
        "     - on",
    ]
    for what, said, name in ROWS:
        if name in results:
            measured = said.format_map(_claims(results[name]))
            lines += [
                f"   * - {what}".replace("`", "``"),
                f"     - {measured}".replace("`", "``"),
                f"     - ``make bench-{name}``",
                f"     - {results[name]['date']}",
            ]
    return "\n".join(lines) + "\n"


def render(readme, results):
    """README text with its measured part replaced."""
    return MARKED.sub(lambda found: found[1] + headlines(results) + found[2], readme)


def digest(faces):
    """Short hash of what the picture shows; it is written into the picture."""
    return hashlib.sha256(json.dumps(faces, sort_keys=True).encode()).hexdigest()[:16]


def faces_of(results):
    """What the picture shows: FER+, four APIs and three routers."""
    of_set = results["frugal"]["result"]["sets"]["FERPLUS"]
    return {key: of_set[key] for key in ("best_single", "services", "curves")}


def draw(faces, path, dark):
    """Accuracy over price for four APIs and three routers."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    import numpy as np

    ink, faint = ("#e6edf3", "#8b949e") if dark else ("#1f2328", "#656d76")
    colors = ["#58a6ff", "#3fb950", "#f0883e"] if dark else ["#0969da", "#1a7f37", "#bc4c00"]
    style = {
        "text.color": ink,
        "axes.labelcolor": ink,
        "axes.edgecolor": faint,
        "xtick.color": ink,
        "ytick.color": ink,
        "font.size": 11,
        "axes.spines.top": False,
        "axes.spines.right": False,
    }
    with plt.rc_context(style):
        figure, ax = plt.subplots(figsize=(7.2, 4.0), layout="constrained")
        labels = {"GitHub(CNN)": "free CNN", "FacePP": "Face++"}
        for name, service in faces["services"].items():
            price, accuracy = service["price"], 100 * service["accuracy"]
            ax.plot(price, accuracy, "D", color=ink, markersize=7, zorder=3)
            ax.annotate(
                f"{labels.get(name, name)}, \\${price:g}",
                (price, accuracy),
                xytext=(9, 0),
                textcoords="offset points",
                va="center",
            )
        free = min(faces["services"].values(), key=lambda service: service["price"])
        ends = [free, faces["best_single"]]
        ax.plot(
            [end["price"] for end in ends],
            [100 * end["accuracy"] for end in ends],
            "--",
            color=faint,
            label="two APIs mixed at random",
        )
        for (name, curve), color in zip(faces["curves"].items(), colors):
            order = np.argsort(curve["cost"])
            cost = np.array(curve["cost"])[order]
            accuracy = 100 * np.array(curve["accuracy"])[order]
            ax.plot(cost, accuracy, "-", color=color, linewidth=2.2, label=f"skroute: {name}")
        level, price = 100 * faces["best_single"]["accuracy"], faces["best_single"]["price"]
        reached = []
        for curve in faces["curves"].values():
            order = np.argsort(curve["cost"])
            accuracy = 100 * np.array(curve["accuracy"])[order]
            at = int(np.flatnonzero(accuracy >= level)[0])
            pair = slice(at - 1, at + 1)
            reached.append(np.interp(level, accuracy[pair], np.array(curve["cost"])[order][pair]))
        ax.annotate(
            "",
            (min(reached), level),
            (price - 0.15, level),
            arrowprops={"arrowstyle": "->", "color": ink, "linewidth": 1.3},
        )
        ax.text(
            (min(reached) + price) / 2 - 0.2,
            level - 0.5,
            f"same accuracy, {100 * (1 - min(reached) / price):.0f} % less",
            ha="center",
            va="top",
        )
        ax.set(
            xlabel="mean price per 10,000 faces (US dollars)",
            ylabel="accuracy on test faces (%)",
            xlim=(-0.4, 18.2),
        )
        ax.grid(color=faint, alpha=0.25)
        ax.legend(loc="lower right", frameon=False, bbox_to_anchor=(1.0, 0.2))
        figure.savefig(path, dpi=110, transparent=True, metadata={"Description": digest(faces)})
        plt.close(figure)


def main():
    results = load_results()
    readme = ROOT / "README.md"
    readme.write_text(render(readme.read_text(encoding="utf-8"), results), encoding="utf-8")
    PAGE.write_text(measured_page(results), encoding="utf-8")
    for mode, path in PICTURES.items():
        path.parent.mkdir(exist_ok=True)
        draw(faces_of(results), path, dark=mode == "dark")
    print("README.md, doc/measured.rst and doc/_static/faces_*.png agree with benchmarks/results/")


if __name__ == "__main__":
    main()
