"""The displays: numbers, lines and labels."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import Ridge
from sklearn.metrics import balanced_accuracy_score

from skroute.certified import CertificateDisplay, PromiseMonitor
from skroute.certified._certificate import OperatingPoints
from skroute.datasets import make_routing_problem
from skroute.early_exit import ExitDisplay, TradeoffDisplay
from skroute.gating import Explanation, NextPurchase, Round
from skroute.metrics import (
    AccuracyCostDisplay,
    ComplementarityDisplay,
    OffPolicyDisplay,
    RouterDiagnosticsDisplay,
    RouteShareDisplay,
    reference_curves,
    savings,
)
from skroute.routing import BudgetRouter, DummyRouterClassifier
from skroute.utils._plotting import COLOURS, REFERENCE_COLOUR, colours_of
from tests.metrics._stub import RankRouter, problem

matplotlib = pytest.importorskip("matplotlib")
to_hex = pytest.importorskip("matplotlib.colors").to_hex
X, y = problem()


@pytest.fixture(autouse=True)
def pyplot():
    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    yield plt
    plt.close("all")


class TestAccuracyCost:
    def test_from_estimator(self):
        display = AccuracyCostDisplay.from_estimator(
            RankRouter().fit(X, y), X, y, budgets=[3, 1, 2]
        )
        assert_allclose(display.line_.get_xdata(), [1, 2, 3])
        assert_allclose(display.line_.get_ydata(), [0.5, 0.75, 1.0])
        assert display.line_.get_label() == display.name == "RankRouter"
        assert display.ax_.get_xlabel().startswith("Mean cost per row")
        assert display.ax_.get_ylabel() == "Mean quality"
        assert display.figure_ is display.ax_.figure

    def test_sample_weight_and_own_quality(self):
        display = AccuracyCostDisplay.from_estimator(
            RankRouter().fit(X, y),
            X,
            y,
            budgets=[1],
            sample_weight=np.where(y == 0, 1.0, 0.0),
            row_quality=lambda y, y_pred: 3.0 * (y == y_pred),
            name="mine",
        )
        assert_allclose(display.quality, [3.0])
        assert display.line_.get_label() == "mine"

    def test_single_choices_and_their_random_mix_stand_beside_the_curve(self):
        problem = make_routing_problem(400, n_models=3, n_features=2, random_state=0)
        X, Q = problem.data, problem.quality
        router = BudgetRouter(Ridge(), costs=problem.costs).fit(X[:200], Q[:200])
        call = {"budgets": [0.2, 0.6], "name": "router"}
        display = AccuracyCostDisplay.from_estimator(router, X[200:], Q[200:], **call)
        assert_allclose(
            list(display.singles.values()), np.c_[problem.costs, Q[200:].mean(axis=0)]
        )
        spent = display.mix_.get_xdata()
        mix = reference_curves(Q[200:], problem.costs, spent).random
        assert_allclose(display.mix_.get_ydata(), mix)
        again = AccuracyCostDisplay.from_estimator(
            router, X[200:], Q[200:], ax=display.ax_, **call
        )
        assert again.singles is None and again.mix_ is None
        asked = {"references": False, **call}
        assert AccuracyCostDisplay.from_estimator(router, X, Q, **asked).singles is None

    def test_single_choices_are_weighted_as_the_curve_is(self):
        weight = 1.0 + 4 * y
        chance = DummyClassifier(strategy="uniform", random_state=0)
        members = [("prior", DummyClassifier()), ("chance", chance)]
        router = DummyRouterClassifier(
            members, costs=[1, 2], quality="balanced_accuracy"
        ).fit(X, y)
        call = {"budgets": [None], "sample_weight": weight}
        display = AccuracyCostDisplay.from_estimator(router, X, y, **call)
        for name, member in router.named_estimators_.items():
            right = balanced_accuracy_score(y, member.predict(X), sample_weight=weight)
            assert display.singles[name][1] == pytest.approx(right)

    @pytest.mark.parametrize("per_row", [False, True])
    def test_from_predictions(self, per_row):
        costs = [[1, 1, 1], [1, 3, 5]] if per_row else [1, 3]
        display = AccuracyCostDisplay.from_predictions(
            ["a", "b", "b"], [["a", "a", "a"], ["a", "b", "a"]], costs
        )
        assert_allclose(display.quality, [1 / 3, 2 / 3])
        assert_allclose(display.cost, [1, 3])
        assert display.ax_.get_legend() is None
        weighted = AccuracyCostDisplay.from_predictions(
            ["a", "b"], [["a", "a"]], [[1, 3]], sample_weight=[3, 1]
        )
        assert_allclose([weighted.quality[0], weighted.cost[0]], [0.75, 1.5])

    def test_baseline_on_the_same_axes(self):
        first = AccuracyCostDisplay(
            cost=[1, 2], quality=[0.5, 0.9], name="router"
        ).plot()
        second = AccuracyCostDisplay(cost=[1, 2], quality=[0.5, 0.7]).plot(
            ax=first.ax_, name="random", curve_kwargs={"ls": "--", "c": "k"}
        )
        assert second.ax_ is first.ax_
        assert second.line_.get_linestyle() == "--"
        labels = [text.get_text() for text in first.ax_.get_legend().get_texts()]
        assert labels == ["router", "random"]
        # The first colours are those of choices.
        third = AccuracyCostDisplay(cost=[1, 2], quality=[0.5, 0.8]).plot(ax=first.ax_)
        assert third.line_.get_color() in COLOURS[-3:]


# Names of eleven models, as long as real ones.
LONG_NAMES = [f"provider/model-{number}-32b-instruct" for number in range(11)]
LONG_UNIT = "USD per 1,000 requests"


@pytest.fixture(scope="module", params=[3, 11])
def models(request):
    """A router with some models, and rows that it was not fitted on."""
    names = LONG_NAMES[: request.param]
    problem = make_routing_problem(800, n_models=request.param, random_state=0)
    Q = pd.DataFrame(problem.quality, columns=names)
    costs = dict(zip(names, problem.costs))
    router = BudgetRouter(Ridge(), costs=costs, budget=0.4, cv=2)
    router.fit(problem.data[:400], Q[:400])
    return router, problem.data[400:], Q[400:], names


def draw_all(router, X, Q):
    """Return the displays of a router on the same rows, all with the same arguments."""
    money = {"budgets": [0.15, 0.4, 0.8], "cost_unit": LONG_UNIT}
    return [
        AccuracyCostDisplay.from_estimator(router, X, Q, **money),
        RouteShareDisplay.from_estimator(router, X, Q, **money),
        RouterDiagnosticsDisplay.from_estimator(router, X, Q, budget=0.4),
        ComplementarityDisplay.from_estimator(router, X, Q),
    ]


def off_policy_display(router, X, Q):
    """Return the display of a log in which every choice has an equal chance."""
    choice = np.arange(len(X)) % Q.shape[1]
    q = Q.to_numpy()[np.arange(len(X)), choice]
    log = {"choice": choice, "propensity": np.full(len(X), 1 / Q.shape[1])}
    return OffPolicyDisplay.from_estimator(
        router, X, q, budgets=[0.15, 0.4, 0.8], cost_unit=LONG_UNIT, **log
    )


def certificate_display():
    """Return the display of three operating points."""
    falling = np.array([0.2, 0.1, 0.02])
    points = OperatingPoints(
        budget=np.array([1.0, 2.0, 3.0]),
        loss=falling,
        loss_upper=falling + 0.02,
        cost=np.array([1.0, 2.0, 3.0]),
        cost_upper=np.array([1.1, 2.1, 3.1]),
        certified=np.array([False, False, True]),
        single=None,
    )
    return CertificateDisplay(points=points, max_loss=0.05, cost_unit=LONG_UNIT).plot()


def explanation(names):
    """Return an explanation that has bought a group of each name, at a low cost."""
    start = Round([], cost=0.0, proba=np.array([0.5, 0.5]), following=None)
    best = NextPurchase(["scan"], cost=1.0, gain=0.001, needed=0.002)
    rounds = [start]
    for name in names:
        rounds.append(Round([name], 0.1, np.array([0.4, 0.6]), following=best))
    reason = "Stopped: scan was expected to bring +0.001, and it must bring 0.002."
    return Explanation(rounds, np.array(["ill", "well"]), reason)


def draw_every_picture(router, X, Q):
    """Return the axes of all pictures of the package."""
    names = list(Q.columns)
    # Shares of changed answers, and costs.
    early_exits = (np.array([0.0, 0.1]), np.array([4.0, 2.0]))
    displays = [
        *draw_all(router, X, Q),
        off_policy_display(router, X, Q),
        certificate_display(),
        ExitDisplay.from_predictions([1, 2, 2, 3], n_members=3, name=names[0]),
        TradeoffDisplay(dict.fromkeys(names, early_exits)).plot(),
    ]
    monitor = PromiseMonitor(budget=1.0, max_loss=0.1, audit_rate=1.0)
    monitor.update(cost=[1.0, 2.0], loss=[0.0, 1.0])
    saved = savings(router, X, Q, today=names[0], n_resamples=20)
    axes = [display.ax_ for display in displays]
    return [*axes, monitor.plot(), saved.plot(), explanation(names).plot()]


def drawn_tick_labels(axis):
    """Return the labels of an axis whose ticks are inside its limits."""
    low, high = sorted(axis.get_view_interval())
    ticks = zip(axis.get_ticklocs(), axis.get_ticklabels())
    return [label for location, label in ticks if low <= location <= high]


# A log of 400 rows with eleven choices is short.
SHORT_LOG = pytest.mark.filterwarnings("ignore:An estimated quality of")


@SHORT_LOG
@pytest.mark.parametrize("size", [(4, 3), (6.4, 4.8), (12.8, 4.8)])
def test_texts_and_legends_are_inside_the_figure_and_hide_no_label(
    models, pyplot, size
):
    router, X, Q, _ = models
    with pyplot.rc_context({"figure.figsize": size}):
        for ax in draw_every_picture(router, X, Q):
            ax.figure.draw_without_rendering()
            title = ax.get_title()
            assert title
            labels = drawn_tick_labels(ax.xaxis)
            rows = drawn_tick_labels(ax.yaxis)
            texts = [ax.title, ax.xaxis.label, ax.yaxis.label, *labels, *rows]
            legend = ax.get_legend()
            if legend is not None:
                texts.append(legend)
            whole = ax.figure.bbox
            # Half a pixel of rounding.
            for text in texts:
                box = text.get_window_extent()
                assert box.x0 > -0.5 and box.x1 < whole.x1 + 0.5, (title, text)
                assert box.y0 > -0.5 and box.y1 < whole.y1 + 0.5, (title, text)
            for row, next_row in zip(rows, rows[1:]):
                box = row.get_window_extent()
                assert not box.overlaps(next_row.get_window_extent()), (title, row)
            if legend is not None and len(legend.get_texts()) > 4:
                legend_box = legend.get_window_extent()
                assert not legend_box.overlaps(ax.get_window_extent())
                assert not legend_box.overlaps(ax.xaxis.label.get_window_extent())


@SHORT_LOG
@pytest.mark.parametrize("style", ["default", "dark_background"])
def test_lines_have_the_same_colours_on_a_light_and_on_a_dark_background(
    models, pyplot, style
):
    router, X, Q, _ = models
    with pyplot.style.context(style):
        # Twelve colours, that of references, and that of text.
        colours = [*COLOURS, REFERENCE_COLOUR, pyplot.rcParams["text.color"]]
        expected = {to_hex(colour) for colour in colours}
        assert to_hex(pyplot.rcParams["axes.facecolor"]) not in expected
        for ax in draw_every_picture(router, X, Q):
            for line in ax.lines:
                assert to_hex(line.get_color()) in expected, (ax.get_title(), line)


def test_long_names_of_a_matrix_in_a_narrow_figure_are_in_a_legend(pyplot):
    names = LONG_NAMES[:3]
    with pyplot.rc_context({"figure.figsize": (4, 3)}):
        display = ComplementarityDisplay(matrix=np.eye(3), names=names).plot()
    for axis in (display.ax_.xaxis, display.ax_.yaxis):
        numbers = [label.get_text() for label in axis.get_ticklabels()]
        assert numbers == ["1", "2", "3"]
    texts = [text.get_text() for text in display.ax_.get_legend().get_texts()]
    assert texts == [f"{number}: {name}" for number, name in enumerate(names, 1)]


def test_a_long_unit_has_a_line_of_its_own_and_a_legend_is_below_it(pyplot):
    with pyplot.rc_context({"figure.figsize": (4, 3)}):
        display = RouteShareDisplay(
            budget=[1, 2],
            route_share=[[0.5, 0.5], [1.0, 0.0]],
            choices=["a", "b"],
            cost_unit=LONG_UNIT,
        ).plot()
    expected = f"Budget, mean cost per row\n({LONG_UNIT})"
    assert display.ax_.get_xlabel() == expected
    display.figure_.draw_without_rendering()
    label = display.ax_.xaxis.label.get_window_extent()
    assert display.ax_.get_legend().get_window_extent().y1 < label.y0


def test_displays_draw_in_a_subfigure(models, pyplot):
    router, X, Q, _ = models
    subfigures = pyplot.figure(layout="constrained").subfigures(1, 2)
    call = {"budgets": [0.2, 0.6], "cost_unit": LONG_UNIT}
    for subfigure in subfigures:
        AccuracyCostDisplay.from_estimator(
            router, X, Q, ax=subfigure.subplots(), references=True, **call
        )


def test_a_choice_has_one_colour_in_all_displays(models):
    router, X, Q, names = models
    curve, share, diagnostics, _ = draw_all(router, X, Q)
    colours = colours_of(names)
    assert len(set(colours)) == len(names)
    dots = {line.get_label(): line.get_color() for line in curve.ax_.lines}
    assert [dots[f"{name} alone"] for name in names] == colours
    areas = [to_hex(area.get_facecolor()[0]) for area in share.areas_]
    assert areas == colours
    bars = {bar.get_label(): bar for bar in diagnostics.ax_.containers}
    assert [bars[name].lines[0].get_color() for name in names] == colours


def test_a_legend_has_only_the_choices_that_are_drawn():
    shares = [[0.5, 0.0, 0.5], [1.0, 0.0, 0.0]]
    display = RouteShareDisplay(
        budget=[1, 2], route_share=shares, choices=["a", "b", "c"], cost_unit="dollars"
    ).plot()
    labels = [text.get_text() for text in display.ax_.get_legend().get_texts()]
    assert labels == ["c", "a"]
    assert display.ax_.get_xlabel().endswith("(dollars)")


class TestRouteShare:
    def test_from_estimator_asks_nobody(self):
        router = RankRouter().fit(X, y)
        display = RouteShareDisplay.from_estimator(router, X, budgets=[2, 1, 3])
        assert_allclose(display.route_share, [[0.5, 0.5], [1, 0], [0, 1]])
        assert router.n_calls_ == 0
        assert len(display.areas_) == 2
        assert display.ax_.get_xlim() == (1, 3)
        labels = [text.get_text() for text in display.ax_.get_legend().get_texts()]
        assert labels == ["costly", "cheap"]  # The upper area first.

    def test_many_choices_have_different_colours(self, pyplot):
        _, ax = pyplot.subplots()
        shares = np.full((2, 12), 1 / 12)
        display = RouteShareDisplay(
            budget=[1, 2], route_share=shares, choices=range(12)
        )
        display.plot(ax=ax)
        assert display.ax_ is ax
        colors = {tuple(area.get_facecolor()[0]) for area in display.areas_}
        assert len(colors) == 12

    def test_unlimited_has_no_place(self):
        with pytest.raises(
            ValueError, match=r"budgets must be finite .* got \[1.0, inf\]"
        ):
            RouteShareDisplay.from_estimator(
                RankRouter().fit(X, y), X, budgets=[1, None]
            )


def test_complementarity():
    members = [
        (name, DummyClassifier(strategy="constant", constant=label))
        for label, name in enumerate(["zero", "one"])
    ]
    router = DummyRouterClassifier(members, costs=[1, 2]).fit(X, y)
    rows = np.r_[np.flatnonzero(y == 0)[:30], np.flatnonzero(y == 1)[:10]]
    display = ComplementarityDisplay.from_estimator(router, X[rows], y[rows])
    assert_allclose(display.matrix, [[0, 0.75], [0.25, 0]])
    assert display.names == ["zero", "one"]
    texts = [[text.get_text() for text in row] for row in display.text_]
    assert texts == [["", "75.0"], ["25.0", ""]]
    assert display.ax_.get_ylabel() == "Model that is right"
    for axis in (display.ax_.xaxis, display.ax_.yaxis):
        assert [label.get_text() for label in axis.get_ticklabels()] == display.names


COSTS = np.array([1.0, 4.0, 6.0])


def drawn(n=600):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, 3))
    truth = 1 / (1 + np.exp(-2 * X))
    return X, truth, (rng.random((n, 3)) < truth).astype(float)


class Oracle(BudgetRouter):
    """Knows the truth, which is in its rows, and picks the best outcome."""

    def predict_quality(self, X):
        return X[:, :3]

    def route(self, X):
        return X[:, 3:].argmax(axis=1)

    def predict_cost(self, X):
        return COSTS[self.route(X)]


def test_the_truth_is_reliable_and_an_oracle_finds_what_is_possible():
    _, truth, Q = drawn(4000)
    router = Oracle(Ridge(), costs=COSTS, cv=2).fit(np.c_[truth, Q], Q)
    display = RouterDiagnosticsDisplay.from_estimator(router, np.c_[truth, Q], Q)
    for estimate, quality, _ in display.reliability:
        assert np.abs(estimate - quality).max() < 0.1
    assert display.found == pytest.approx(display.possible)
    assert display.names[1] == "choice1" and display.ax_.figure is display.figure_


def test_gains_are_those_of_the_router(pyplot):
    X, _, Q = drawn()
    router = BudgetRouter(Ridge(), costs=COSTS).fit(X[:300], Q[:300])
    _, ax = pyplot.subplots()
    new = X[300:]
    display = RouterDiagnosticsDisplay.from_estimator(
        router, new, Q[300:], ax=ax, budget=3.0
    )
    assert display.ax_ is ax
    curves = reference_curves(
        Q[300:], COSTS, [router.predict_cost(new, budget=3.0).mean()]
    )
    realised = Q[300:][np.arange(300), router.route(new, budget=3.0)].mean()
    assert display.found == pytest.approx(realised - curves.random[0])
    assert display.possible == pytest.approx(curves.oracle[0] - curves.random[0])
