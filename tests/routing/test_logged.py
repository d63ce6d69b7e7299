"""BudgetRouter on logs of one answer per request, and on tables with unknown outcomes."""

import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.linear_model import Ridge

import skroute.quality._logged as mechanism
from skroute.metrics import accuracy_cost_curve
from skroute.routing import BudgetRouter
from tests.metrics.test_off_policy import COSTS, NAMES, draw_log, table
from tests.test_out_of_sample import OFFENCES, SpyRegressor


@pytest.fixture(autouse=True)
def few_trees(monkeypatch):
    monkeypatch.setattr(mechanism, "_N_TREES", 5)


@pytest.mark.slow
def test_validation_figures_are_those_of_new_rows():
    """Over fresh logs, validation figures differ from means of new rows by noise only."""
    X_new, chance, costs = table(20_000, seed=7)
    # Differences in standard errors, of quality and of cost.
    z_scores = []
    for seed in range(10):
        X, q, choice, b, c = draw_log("depends", 500, 20 * seed)
        router = BudgetRouter(costs=COSTS, budget=3.5)
        router.fit(X, q, choice=NAMES[choice], propensity=b, costs=c)
        rows = np.arange(len(X_new))
        route = router.route(X_new)
        quality_error = router.validation_quality_ - chance[rows, route].mean()
        cost_error = router.validation_cost_ - costs[rows, route].mean()
        z_scores.append(
            [
                quality_error / router.validation_quality_se_,
                cost_error / router.validation_cost_se_,
            ]
        )
    # The mean of 10 standard normal numbers has a standard deviation of .32.
    assert np.all(np.abs(np.mean(z_scores, axis=0)) < 1.1)
    assert np.all(np.abs(z_scores) < 5)


@pytest.mark.slow
def test_means_have_no_bias_where_the_log_prefers_easy_rows():
    """The plain mean of logged qualities is that of easy rows. The router's is not."""
    router_means = []
    plain_means = []
    for seed in range(10):
        X, q, choice, b, _ = draw_log("depends", 500, 20 * seed + 7)
        router = BudgetRouter(costs=COSTS).fit(X, q, choice=NAMES[choice], propensity=b)
        router_means.append(router.mean_quality_[0])
        plain_means.append(q[choice == 0].mean())
    truth = table(100_000, seed=3)[1][:, 0].mean()
    assert abs(np.mean(router_means) - truth) < 0.05
    assert np.mean(plain_means) - truth > 0.1


@pytest.mark.parametrize("estimator", [None, Ridge()])
def test_a_policy_from_a_log_is_nearly_that_of_the_table(estimator, monkeypatch):
    monkeypatch.setattr(mechanism, "_N_TREES", 30)
    X, chance, _ = table(1500, seed=1)
    X_new, Q_new, _ = table(4000, seed=2)
    rng = np.random.default_rng(0)
    Q = (rng.random(chance.shape) < chance).astype(float)
    choice = rng.integers(0, 3, len(X))
    q = Q[np.arange(len(X)), choice]
    whole = BudgetRouter(Ridge(), costs=COSTS, budget=3).fit(X, Q)
    router = BudgetRouter(estimator, costs=COSTS, budget=3)
    router.fit(X, q, choice=choice, propensity=np.full(len(X), 1 / 3))
    # The best random mix with a mean cost of 3: of a choice that costs 1 and of one that
    # costs 3 or 8.
    means = Q_new.mean(axis=0)
    gain_per_cost = max((means[1] - means[0]) / 2, (means[2] - means[0]) / 7)
    random_mix = means[0] + (3 - 1) * gain_per_cost
    # A third of the outcomes: most of the gain of the table over a random mix is left.
    gain = router.score(X_new, Q_new) - random_mix
    gain_of_table = whole.score(X_new, Q_new) - random_mix
    assert gain_of_table > 0.02
    assert gain > 0.6 * gain_of_table
    assert abs(router.predict_cost(X_new).mean() - 3) < 0.4


def test_costs_of_the_answers_given_are_learned():
    X, q, choice, b, c = draw_log("uniform", 900, 1)
    router = BudgetRouter(Ridge(), cost_estimator=Ridge(), budget=3)
    router.fit(X, q, choice=choice, propensity=b, costs=c)
    X_new, _, costs = table(4000, seed=2)
    route = router.route(X_new)
    assert abs(costs[np.arange(4000), route].mean() - 3) < 0.5
    assert router.choices_ == ["choice0", "choice1", "choice2"]


def test_the_overlap_is_reported():
    X, q, choice, b, _ = draw_log("cheap", 600, 1)
    router = BudgetRouter(costs=COSTS, budget=3).fit(
        X, q, choice=NAMES[choice], propensity=b
    )
    overlap = router.overlap_
    np.testing.assert_array_equal(overlap.n_rows, np.bincount(choice))
    np.testing.assert_allclose(overlap.effective_sample_size, overlap.n_rows)
    np.testing.assert_allclose(overlap.max_weight, [1 / 0.7, 5, 10])
    assert overlap.needed.sum() == pytest.approx(1)
    assert not overlap.estimated


def test_a_policy_beyond_the_log_is_warned_of():
    """By a rule the log had the expensive choice on easy rows only; a ridge goes elsewhere."""
    x = np.linspace(-1, 1, 400)[:, None]
    rule = np.where(x[:, 0] > 0.5, "large", "small")
    q = np.where(rule == "large", 1.0, 0.5 + 0.3 * x[:, 0])
    with pytest.warns(UserWarning, match="of the rows to 'large', and on none of them"):
        router = BudgetRouter(Ridge(), costs={"small": 1.0, "large": 2.0}, budget=1.3)
        router.fit(x, q, choice=rule, propensity=np.ones(400))
    assert router.overlap_.never == ["large"]


def test_unknown_outcomes_of_a_table():
    X, chance, _ = table(900, seed=1)
    rng = np.random.default_rng(0)
    Q = (rng.random(chance.shape) < chance).astype(float)
    full = BudgetRouter(Ridge(), costs=COSTS, budget=3).fit(X, Q)
    np.testing.assert_array_equal(full.n_known_, [900, 900, 900])
    holes = np.where(rng.random(Q.shape) < [0.1, 0.3, 0.6], np.nan, Q)
    router = BudgetRouter(Ridge(), costs=COSTS, budget=3).fit(X, holes)
    np.testing.assert_array_equal(router.n_known_, (~np.isnan(holes)).sum(axis=0))
    X_new, Q_new, _ = table(3000, seed=2)
    assert router.score(X_new, Q_new) > full.score(X_new, Q_new) - 0.02
    assert abs(router.validation_quality_ - router.score(X_new, Q_new)) < 0.06
    with pytest.raises(AttributeError, match="overlap_ is of logs of one answer"):
        router.overlap_  # noqa: B018


def test_scores_and_curves_leave_out_what_is_not_known():
    X, chance, _ = table(300, seed=1)
    router = BudgetRouter(Ridge(), costs=COSTS, budget=3).fit(X, chance)
    holes = chance.copy()
    holes[::2] = np.nan
    expected = chance[np.arange(300), router.route(X)][1::2].mean()
    assert router.score(X, holes) == pytest.approx(expected)
    assert accuracy_cost_curve(router, X, holes, [3]).quality[0] == pytest.approx(
        expected
    )
    for call in (router.score, lambda X, Q: accuracy_cost_curve(router, X, Q, [3])):
        with pytest.raises(ValueError, match="y is NaN, not known, "):
            call(X, np.full((300, 3), np.nan))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"choice": np.full(60, "huge")}, "choice has 'huge', which is not among"),
        ({"choice": np.zeros(60, dtype=int)}, "fewer than two answers of 'middle'"),
        ({"choice": None}, "propensity belongs to a log"),
        ({"propensity": np.full(60, 1.5)}, "propensity must be finite and"),
        ({"y": np.ones((60, 3))}, "y must have shape"),
    ],
)
def test_input_that_is_no_log_is_refused(change, message):
    X, q, choice, b, _ = draw_log("uniform", 60, 4)
    call = {"y": q, "choice": NAMES[choice], "propensity": b, **change}
    router = BudgetRouter(Ridge(), costs=COSTS)
    with pytest.raises(ValueError, match=message):
        router.fit(X, **call)
    assert not hasattr(router, "choices_")


def test_costs_must_say_what_other_choices_would_have_cost():
    X, q, choice, b, c = draw_log("uniform", 60, 4)
    with pytest.raises(
        ValueError, match="do not say what the other choices would have cost"
    ):
        BudgetRouter(Ridge()).fit(X, q, choice=choice, costs=c)
    with pytest.raises(ValueError, match="Give costs as a mapping"):
        BudgetRouter(Ridge(), costs=[1, 3, 8]).fit(X, q, choice=NAMES[choice])


def test_texts_and_frames():
    """The default reads the same rows in a log as in a table."""
    rng = np.random.default_rng(0)
    words = np.array(["add the numbers", "write a poem", "prove the lemma"])
    kind = rng.integers(0, 3, 200)
    choice = rng.integers(0, 2, 200)
    q = np.where(choice == 1, 0.9, np.array([0.95, 0.5, 0.1])[kind])
    frame = pd.DataFrame({"prompt": words[kind], "n": rng.normal(size=200)})
    router = BudgetRouter(costs={"small": 1, "large": 5}, budget=3)
    router.fit(frame, q, choice=np.array(["small", "large"])[choice])
    answers = router.predict(frame[kind == 0])
    assert np.mean(answers == "small") > 0.8
    assert router.overlap_.estimated


def test_no_estimate_of_a_log_judges_a_row_that_fitted_it(monkeypatch):
    forests = []
    OFFENCES.clear()

    class Forest(mechanism.CellForest):
        def fit(self, rows, table, row_weight=None):
            self.fitted = frozenset(rows[:, 0].tolist())
            return super().fit(rows, table, row_weight)

        def predict(self, rows):
            forests.append((self.fitted, frozenset(rows[:, 0].tolist())))
            return super().predict(rows)

    monkeypatch.setattr(mechanism, "CellForest", Forest)
    X, q, choice, b, c = draw_log("uniform", 120, 3)
    router = BudgetRouter(SpyRegressor(), costs=COSTS, budget=4)
    router.fit(X, q, choice=NAMES[choice], propensity=b, costs=c)
    assert not OFFENCES and len(forests) > 5
    assert not any(fitted & asked for fitted, asked in forests)
    # The spy does note that it is asked about its own rows.
    assert router.predict(X).shape == (120,) and OFFENCES


# Logs of rules ------------------------------------------------------------------------------


def log_of_a_rule(seed, n_rows, column, exceptions):
    """Return rows, answers, choices and propensities, and all outcomes, of a log by a rule.

    The large model is good only where the first column is large. By the rule it answered where a
    column is large; a share of the requests are `exceptions`, drawn at random.
    """
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, 4))
    chance = np.column_stack([np.full(n_rows, 0.6), np.where(X[:, 0] > 0.5, 0.9, 0.3)])
    outcomes = (rng.random(chance.shape) < chance).astype(float)
    rule = (X[:, column] > 0.5).astype(int)
    excepted = rng.random(n_rows) < exceptions
    choice = np.where(excepted, 1 - rule, rule)
    propensity = np.where(excepted, exceptions, 1 - exceptions)
    return X, outcomes[np.arange(n_rows), choice], choice, propensity, outcomes


def fit_log(X, q, choice, **options):
    """Return a router that was fitted to a log, and the messages of its warnings."""
    with warnings.catch_warnings(record=True) as records:
        warnings.simplefilter("always")
        router = BudgetRouter(costs={"small": 1.0, "large": 5.0}, budget=4, cv=3)
        router.fit(X, q, choice=np.array(["small", "large"])[choice], **options)
    return router, [str(record.message) for record in records]


@settings(
    max_examples=6,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    seed=st.integers(0, 1000),
    column=st.sampled_from([0, 3]),
    is_known=st.booleans(),
    has_costs=st.booleans(),
)
def test_a_log_of_a_rule_has_no_validation_figures(seed, column, is_known, has_costs):
    """`fit` makes the test of `off_policy_curve`, and its only warning is of overlap."""
    X, q, choice, propensity, _ = log_of_a_rule(seed, 600, column, exceptions=0.0)
    options = {}
    if is_known:
        options["propensity"] = propensity
    if has_costs:
        # Long requests cost more, and the rule sent them to the large model.
        options["costs"] = np.array([1.0, 5.0])[choice] * np.exp(0.5 * X[:, column])
    router, messages = fit_log(X, q, choice, **options)
    reasons = (
        "log and policy agree",
        "below 10: too few",
        "on none of them has the log made",
    )
    assert len(messages) == 1
    assert sum(reason in messages[0] for reason in reasons) == 1
    with pytest.warns(UserWarning, match="validation_quality_ is NaN"):
        assert np.isnan(router.validation_quality_)
    with pytest.warns(UserWarning, match="validation_quality_ is NaN"):
        assert np.isnan(router.validation_quality_se_)
    with pytest.warns(UserWarning, match="validation_quality_ is NaN"):
        assert np.isnan(router.validation_cost_) == has_costs
    assert router.overlap_.lack in messages[0]
    assert np.nanmin(router.overlap_.mean_weight) < 0.9
    assert np.isnan(router.mean_quality_).all()
    # The router decides as before.
    assert router.route(X).shape == (600,)


@settings(
    max_examples=6,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    seed=st.integers(0, 1000), column=st.sampled_from([0, 3]), is_known=st.booleans()
)
def test_a_partly_random_log_has_validation_figures(seed, column, is_known):
    X, q, choice, propensity, outcomes = log_of_a_rule(
        seed, 900, column, exceptions=0.3
    )
    options = {"propensity": propensity} if is_known else {}
    router, _ = fit_log(X, q, choice, **options)
    assert router.overlap_.lack is None
    error = np.hypot(router.validation_quality_se_, 0.02)
    X_new, _, _, _, Q_new = log_of_a_rule(seed + 5000, 4000, column, 0.3)
    truth = router.score(X_new, Q_new)
    assert abs(router.validation_quality_ - truth) < 5 * error
    np.testing.assert_allclose(router.overlap_.mean_weight, 1, atol=0.35)
    assert np.isfinite(router.mean_quality_).all()


@pytest.mark.slow
@pytest.mark.parametrize("column", [0, 3])
@pytest.mark.parametrize("is_known", [True, False])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_figures_of_logs_of_rules_hold_or_are_nan(column, is_known, monkeypatch):
    """Over rules with none to many exceptions.

    Without the test of overlap, figures of some rules do not hold.
    """
    monkeypatch.setattr(mechanism, "_N_TREES", 20)
    # Differences from the truth, in standard errors.
    z_scores = []
    z_scores_without_test = []
    for exceptions in (0.0, 0.003, 0.01, 0.05, 0.3):
        for seed in range(8):
            X, q, choice, propensity, _ = log_of_a_rule(seed, 1000, column, exceptions)
            options = {"propensity": propensity} if is_known else {}
            router, messages = fit_log(X, q, choice, **options)
            X_new, _, _, _, Q_new = log_of_a_rule(seed + 100, 5000, column, 0.3)
            truth = router.score(X_new, Q_new)
            without_test = router._learned.validated(4.0)
            z_scores_without_test.append(z_score(without_test, truth))
            with_test = router._validated(4.0)
            if np.isfinite(with_test.quality):
                z_scores.append(z_score(with_test, truth))
            else:
                assert messages
    assert np.mean(np.abs(z_scores) > 3) < 0.05
    if column == 0:
        # A rule by a noise column has the same quality where it is extrapolated.
        assert np.mean(np.abs(z_scores_without_test) > 3) > 0.1
    assert len(z_scores) >= 8


def z_score(figures, truth):
    """Return the error of a validation quality in standard errors."""
    return (figures.quality - truth) / np.hypot(figures.quality_se, 0.01)


def test_an_estimate_beyond_the_qualities_of_the_log_is_warned_of():
    """Rows with a large weight can make a mean of zeros and ones that is above one."""
    X, _, choice, _, _ = log_of_a_rule(0, 300, column=3, exceptions=0.5)
    q = np.random.default_rng(0).integers(0, 2, 300).astype(float)
    # Answers that were right have too large a weight.
    propensity = np.where(q == 1, 0.1, 0.9)
    router, messages = fit_log(X, q, choice, propensity=propensity)
    assert router._learned.validated(4.0).quality > 1
    expected = "is outside of the qualities in the log, 0 to 1"
    assert any(expected in message for message in messages)
    with pytest.warns(UserWarning, match="is outside of the qualities in the log"):
        assert router.validation_quality_ > 1


def test_the_smallest_budget_is_among_those_that_the_log_judges():
    X, q, choice, propensity, _ = log_of_a_rule(1, 600, column=0, exceptions=0.0)
    router, _ = fit_log(X, q, choice, propensity=propensity)
    smallest = router.smallest_budget(quality=0.75)
    assert np.isnan(smallest.budget)
    assert np.isnan(smallest.budget_se)


@settings(
    max_examples=20,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.floats(-1, 2), st.integers(0, 20))
def test_a_budget_that_is_nan_has_no_standard_error(quality, seed):
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(60, 1))
    Q = np.column_stack([X[:, 0] > 0.3, rng.uniform(size=60) < 0.9]).astype(float)
    router = BudgetRouter(Ridge(), costs=[1, 10]).fit(X, Q)
    smallest = router.smallest_budget(quality)
    assert np.isnan(smallest.budget) == np.isnan(smallest.budget_se)


def test_integers_are_names_where_the_names_are_numbers():
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(600, 1))
    choice = rng.integers(0, 3, 600)
    quality = np.array([0.5, 0.9, 0.2])[choice] + 0.01 * rng.normal(size=600)
    costs = {2: 1, 0: 2, 1: 5}
    log = {"propensity": np.full(600, 1 / 3)}
    router = BudgetRouter(costs=costs, budget=3)
    router.fit(X, quality, choice=choice, **log)
    assert router.choices_ == ["2", "0", "1"]
    np.testing.assert_allclose(router.mean_quality_, [0.2, 0.5, 0.9], atol=0.01)
    assert router.n_known_.tolist() == [(choice == name).sum() for name in (2, 0, 1)]


@pytest.mark.parametrize("has_text", [False, True])
def test_a_rule_on_one_of_many_columns_is_seen(has_text):
    """The rule of the log is the length: it never shows what the other model does."""
    rng = np.random.default_rng(0)
    length = rng.integers(20, 400, 900)
    X = pd.DataFrame(rng.normal(size=(900, 20))).add_prefix("noise")
    X["length"] = length.astype(float)
    if has_text:
        words = np.array("alpha beta gamma delta theta kappa sigma omega".split())
        X["prompt"] = [" ".join(rng.choice(words, n // 8 + 1)) for n in length]
    choice = (length > 210).astype(int)
    quality = (rng.random(900) < np.where(choice, 0.8, 0.6)).astype(float)
    with pytest.warns(UserWarning, match="validation_quality_ is NaN"):
        router = BudgetRouter(costs=[1, 4], budget=2.5).fit(X, quality, choice=choice)
    assert router.overlap_.lack is not None


@pytest.mark.parametrize(
    "rows_of", [pd.DataFrame, lambda texts: texts["prompt"].tolist()]
)
@pytest.mark.parametrize("counted", ["letters", "words"])
def test_a_rule_on_the_length_of_a_text_is_seen(rows_of, counted):
    """X has the texts alone, and no column with their lengths."""
    rng = np.random.default_rng(1)
    words = np.array("a at the then their there through throughout".split())
    prompts = [" ".join(rng.choice(words, n)) for n in rng.integers(5, 80, 700)]
    length = {"letters": len, "words": lambda text: len(text.split())}[counted]
    lengths = np.array([length(prompt) for prompt in prompts])
    choice = (lengths > np.median(lengths)).astype(int)
    quality = (rng.random(700) < np.where(choice, 0.8, 0.6)).astype(float)
    X = rows_of(pd.DataFrame({"prompt": prompts}))
    with pytest.warns(UserWarning, match="validation_quality_ is NaN"):
        router = BudgetRouter(costs=[1, 4], budget=2.5).fit(X, quality, choice=choice)
    assert router.overlap_.lack is not None
    drawn = rng.integers(0, 2, 700)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        router.fit(X, quality, choice=drawn)
    assert router.overlap_.lack is None


def test_forests_of_folds_have_the_leaves_of_the_forest_of_all_rows(monkeypatch):
    """Smaller leaves vary more, and their price would spend another amount."""
    leaves = []

    class Forest(mechanism.CellForest):
        def fit(self, rows, table, row_weight=None):
            super().fit(rows, table, row_weight)
            leaves.append(self.forest_.min_samples_leaf)
            return self

    monkeypatch.setattr(mechanism, "CellForest", Forest)
    X, q, choice, b, c = draw_log("uniform", 800, 3)
    log = {"choice": NAMES[choice], "propensity": b}
    BudgetRouter(costs=COSTS, budget=4).fit(X, q, costs=c, **log)
    BudgetRouter(costs=COSTS, budget=4, abstain_cost=0.3).fit(X, q, **log)
    # 800 cells are known. The model of all rows has them all, a fold 640.
    assert len(leaves) > 10 and set(leaves) == {4}


@pytest.mark.slow
def test_a_log_of_single_answers_keeps_its_budget_on_new_rows(data_home, monkeypatch):
    """On 20 random logs of TriviaQA; leaves that grow with the rows spend 14 % more."""
    monkeypatch.setattr(mechanism, "_N_TREES", 40)
    log = np.load(data_home / "cascades/triviaqa.npz", allow_pickle=True)
    texts = pd.read_csv(data_home / "cascades/triviaqa_prompts.csv.gz")
    texts = texts.set_index("query_id")["prompt"].reindex(log["query_id"])
    X = texts.to_frame().reset_index(drop=True)
    X["n_chars"] = X["prompt"].str.len()
    models = [2, 3, 5, 8]
    names = log["model_names"][models].astype(str)
    Q = log["correctness"][:, models].astype(float)
    C = 1000.0 * log["cost"][:, models]
    chance = np.array([0.3, 0.2, 0.3, 0.2])
    spent = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        train, test = np.split(rng.permutation(len(X)), [800])
        choice = rng.choice(4, size=800, p=chance)
        bills = C[train, choice]
        prices = {
            name: bills[choice == position].mean()
            for position, name in enumerate(names)
        }
        router = BudgetRouter(costs=prices, budget=0.2)
        router.fit(
            X.iloc[train],
            Q[train, choice],
            costs=bills,
            choice=names[choice],
            propensity=chance[choice],
        )
        answers = router.predict(X.iloc[test])
        columns = [list(names).index(answer) for answer in answers]
        spent.append(C[test, columns].mean() / 0.2)
    # The standard error of the mean is .02 to .04.
    assert abs(np.mean(spent) - 1) < 0.08
