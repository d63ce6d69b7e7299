"""Rules of `CascadeRouter`: comparison of cascades, and the best one at each price.

A *cascade* is a graph of states (`States`). A *rule* is a cascade that is decided at
one price of a grid. `learn_rules` compares all cascades at all prices on rows that
fitted none of them, and fits those that are chosen on all rows.
"""

from itertools import combinations
from typing import NamedTuple

import numpy as np
from sklearn.utils.parallel import Parallel, delayed

from skroute.assignment._induction import STOP
from skroute.routing.from_answers._signals import RowSignals, SignalScales, StateBasis
from skroute.routing.from_answers._states import (
    StateLearner,
    States,
    StateValues,
    any_order,
    fixed_order,
    learn_values,
    move_of,
)
from skroute.routing.parts._estimates import rows_and_others
from skroute.routing.parts._mixtures import Mixture, ValidatedPart, useful_rules
from skroute.utils._typing import NDArray

# Weight of estimates in the value of asking another model. The rest of the weight, also
# a half, is that of outcomes on the rows of the log, see `learn_values`.
_TRUST = 0.5
# Maximal number of rows on which cascades are compared. It bounds the time of `fit`,
# and is enough to see differences of half a percentage point in quality.
_MAX_JUDGED = 5000
# Number of standard errors within which a simpler cascade is preferred to a better one.
# With 0, the best of 130 cascades is often only the luckiest one. With 1, real gains
# are given up.
_SIMPLER_WITHIN = 0.25
# Difference in mean gain up to which cascades are tied. Gains are on the scale of
# quality from 0 to 1, so that this is the rounding of their means.
_TIED = 1e-12
# Number of decimals of mean costs. Rules whose mean costs agree to these decimals are
# equally expensive: the difference is rounding.
_COST_DECIMALS = 12
# Gain in quality that pays for the cheapest call at the largest price of the grid. No
# gain is larger than 1, the range of quality, so that with 2 nothing is bought.
_NOTHING_BOUGHT = 2.0
# Gain in quality that pays for the most expensive call at the smallest positive price
# of the grid: a 500th of the range of quality.
_ALL_BOUGHT = 0.002


# A log of cascades --------------------------------------------------------------------


class CascadeLog(NamedTuple):
    """Log that cascades are learned from: tables with one row for each request.

    Attributes
    ----------
    quality : ndarray of shape (n_rows, n_models)
        From 0 to 1. The logged quality is ``low + span * quality``.
    costs : ndarray of shape (n_rows, n_models)
        Cost of each call.
    signals : RowSignals
        Out-of-sample estimates of quality, and the signals of the answers.
    abstain_quality : float or None
        Quality of a row that abstains, from 0 to 1. None if no row can abstain.
    low, span : float
        Smallest logged quality, and the range of logged quality.
    """

    quality: NDArray[np.float64]
    costs: NDArray[np.float64]
    signals: RowSignals
    abstain_quality: float | None
    low: float
    span: float

    @classmethod
    def scaled(cls, quality, costs, signals, abstain_quality):
        """Return the log with quality scaled to [0, 1].

        The quality of abstaining is scaled in the same way. Parameters are the
        attributes of the log in the unit of the user.
        """
        low = float(quality.min())
        span = float(np.ptp(quality))
        if span == 0:
            # All answers are equally good. 1 avoids a division by 0.
            span = 1.0
        if abstain_quality is not None:
            abstain_quality = (abstain_quality - low) / span
        return cls(
            (quality - low) / span,
            costs,
            signals=signals,
            abstain_quality=abstain_quality,
            low=low,
            span=span,
        )

    def take(self, rows):
        """Return the log of some rows."""
        return self._replace(
            quality=self.quality[rows],
            costs=self.costs[rows],
            signals=self.signals.take(rows),
        )

    def outcomes(self):
        """Return the quality of each model and of abstaining, (n_rows, n_models + 1).

        The last column is abstaining. Its quality is NaN if no row can abstain.
        """
        abstain_quality = np.nan
        if self.abstain_quality is not None:
            abstain_quality = self.abstain_quality
        return np.column_stack(
            [self.quality, np.full(len(self.quality), abstain_quality)]
        )


def cascades_to_compare(n_models, max_calls, by_cost, has_estimates):
    """Return the cascades that `fit` compares, a list of `States`.

    The first `n_models` cascades are each model alone. If there are estimates, one call
    that they choose follows. Then, for each number of calls from 2 on, come all fixed
    orders of rising cost and the cascade that asks in any order.

    Parameters
    ----------
    n_models : int
    max_calls : int
        Maximal number of calls about one row.
    by_cost : list of int
        Models by rising cost.
    has_estimates : bool
        True if the quality of each row is estimated before the first call.
    """
    cascades = [fixed_order(n_models, (model,)) for model in range(n_models)]
    if has_estimates:
        cascades.append(any_order(n_models, 1))
    for n_calls in range(2, min(max_calls, n_models) + 1):
        for order in combinations(by_cost, n_calls):
            cascades.append(fixed_order(n_models, order))
        cascades.append(any_order(n_models, n_calls))
    return cascades


# A fitted cascade ---------------------------------------------------------------------


class CascadeMove(NamedTuple):
    """The best move of each row in one state: the model to ask, or the final choice.

    Attributes
    ----------
    next_model : ndarray of shape (n_rows, n_prices), dtype=int64
        Model to ask, or `STOP`. The prices are those of `FittedCascade.move`.
    choice : ndarray of shape (n_rows,), dtype=int64
        Best choice if the row ends here: the model that answers, or the number of
        models for abstaining. It has no meaning in the first state, in which nothing
        has been asked.
    quality : ndarray of shape (n_rows,)
        Estimated quality of that choice.
    """

    next_model: NDArray[np.int64]
    choice: NDArray[np.int64]
    quality: NDArray[np.float64]


class CascadeEnds(NamedTuple):
    """Last state and choice of each row at each price, arrays (n_rows, n_prices).

    The prices are those of `FittedCascade.follow`.

    Attributes
    ----------
    state : ndarray, dtype=int64
        Last state.
    choice : ndarray, dtype=int64
        As in `CascadeMove`.
    quality : ndarray
        Estimated quality of the choice.
    """

    state: NDArray[np.int64]
    choice: NDArray[np.int64]
    quality: NDArray[np.float64]


class FittedCascade(NamedTuple):
    """A cascade with its learned regressions, by which rows are decided.

    Attributes
    ----------
    states : States
    values : list of StateValues
        For each state, the regressor of endings and of asking another model.
    costs : ndarray of shape (n_models,)
        Mean cost of each call, which decisions are made by.
    prices : ndarray of shape (n_prices,)
        The grid of prices that the values were learned for.
    """

    states: States
    values: list[StateValues]
    costs: NDArray[np.float64]
    prices: NDArray[np.float64]

    def move(self, state, scores, price_index):
        """Return the best move of rows that are in one state (`CascadeMove`).

        Parameters
        ----------
        state : int
        scores : RowSignals
            Normal scores of the rows. Those of models that were not asked are not read.
        price_index : ndarray of shape (n_rows, n_prices), dtype=int64
            Prices that each row is decided at, as positions in the grid ``prices``. A
            row may have fewer prices than the grid.
        """
        next_models = self.states.next_members(state)
        answering = self.states.answering[state]
        values = self.values[state]
        outputs = values.model.predict(scores.features(answering))
        estimates = values.split(outputs)
        # Of all prices of the grid, only those of each row stay: the shape becomes
        # (n_rows, n_next, n_prices).
        continuations = np.take_along_axis(
            estimates.continuations, price_index[:, np.newaxis], axis=2
        )
        move = move_of(
            estimates._replace(continuations=continuations),
            costs=self.costs[next_models],
            prices=self.prices[price_index],
        )
        # A row that ends has the position `STOP`, which is -1. It takes the last entry,
        # which is `STOP` again.
        next_model = np.append(next_models, STOP)[move.next_position]
        # The choice of each ending of the state: its models, then abstaining, whose
        # position is the number of models.
        choices = np.array([*answering, len(self.costs)])
        return CascadeMove(next_model, choices[move.ending], move.ending_quality)

    def follow(self, scores, price_index):
        """Follow the cascade, and return where each row ends (`CascadeEnds`).

        Each row starts in the first state, in which no model has been asked. Parameters
        are those of `move`.
        """
        state = np.zeros(price_index.shape, dtype=np.int64)
        choice = np.zeros(price_index.shape, dtype=np.int64)
        quality = np.zeros(price_index.shape)
        # A row moves to later states only, so that one pass over the states is enough.
        for current in range(len(self.states.asked)):
            is_here = state == current  # (n_rows, n_prices)
            rows = np.flatnonzero(is_here.any(axis=1))
            if not len(rows):
                continue
            move = self.move(current, scores.take(rows), price_index[rows])
            # For each row in this state at some price: position among `rows`, and
            # position of the price.
            positions, price_positions = np.nonzero(is_here[rows])
            rows_here = rows[positions]
            # A later state overwrites the choice of a row that asks another model.
            choice[rows_here, price_positions] = move.choice[positions]
            quality[rows_here, price_positions] = move.quality[positions]
            next_model = move.next_model[positions, price_positions]
            # `STOP` is -1 and reads the last column. A row that ends keeps its state.
            state_after_call = self.states.following[current, next_model]
            next_state = np.where(next_model == STOP, current, state_after_call)
            state[rows_here, price_positions] = next_state
        return CascadeEnds(state, choice, quality)


class LogRegressions:
    """Regressions on one log, shared by all cascades that are fitted to this log.

    Parameters
    ----------
    log : CascadeLog
    scores : RowSignals
        Normal scores of the signals of the log.
    """

    def __init__(self, log, scores):
        self._log = log
        self._scores = scores
        self._basis_of_models = {}

    def basis(self, models):
        """Return the `StateBasis` on the signals of some models.

        `models` is the tuple of their positions. A basis is fitted once and stored.
        """
        if models not in self._basis_of_models:
            self._basis_of_models[models] = StateBasis(
                self._scores.features(models),
                self._scores.owner_masks(models),
                quality=self._log.quality[:, list(models)],
            )
        return self._basis_of_models[models]


class _CascadeLearner(StateLearner):
    """Regressions of a cascade on the signals of the models that may answer.

    Parameters
    ----------
    states : States
    regressions : LogRegressions
    """

    def __init__(self, states, regressions):
        self._states = states
        self._regressions = regressions

    def fit(self, state, targets):
        """Fit the columns of `targets` that are values of asking each next model.

        The columns before them, the quality of each answer, are already fitted in the
        basis.
        """
        models = self._states.answering[state]
        return self._regressions.basis(models).fit(targets[:, len(models) :])


def fit_cascade(states, log, prices, regressions):
    """Learn the values of all states of a cascade (`FittedCascade`).

    Parameters
    ----------
    states : States
    log : CascadeLog
    prices : ndarray of shape (n_prices,)
    regressions : LogRegressions
        On the same log.
    """
    costs = log.costs.mean(axis=0)
    outcomes = learn_values(
        states,
        answer_quality=[log.quality[:, list(models)] for models in states.answering],
        costs=costs,
        prices=prices,
        learner=_CascadeLearner(states, regressions),
        abstain_quality=log.abstain_quality,
        trust=_TRUST,
    )
    values = [outcomes[state].values for state in range(len(states.asked))]
    return FittedCascade(states, values, costs, prices)


def price_grid(costs, n_prices):
    """Return falling prices, from one at which nothing is bought down to 0.

    A price is quality from 0 to 1 for a unit of cost. `costs` has the shape
    (n_models,). If all calls are free, or `n_prices` is 1, the only price is 0.
    """
    costs = costs[costs > 0]
    if not len(costs) or n_prices == 1:
        return np.zeros(1)
    largest = _NOTHING_BOUGHT / costs.min()
    smallest = _ALL_BOUGHT / costs.max()
    return np.append(np.geomspace(largest, smallest, n_prices - 1), 0.0)


# Comparison on held-out rows ----------------------------------------------------------


class HeldOutTables(NamedTuple):
    """Outcomes of all cascades on rows that did not fit them.

    The rows are the compared test rows of the first fold, then those of the second, and
    so on.

    Attributes
    ----------
    quality, cost : ndarray of shape (n_cascades, n_rows, n_prices)
        Quality and cost of each row under each cascade, at each price.
    fold_of_row : ndarray of shape (n_rows,), dtype=int64
        Fold of each row.
    """

    quality: NDArray[np.float64]
    cost: NDArray[np.float64]
    fold_of_row: NDArray[np.int64]


class ChosenRule(NamedTuple):
    """A cascade that is chosen at a price, with its quality on held-out rows.

    Attributes
    ----------
    cascade : int
        Position among the cascades that are compared.
    price_index : int
        Position of the price in the grid.
    honest_quality : ndarray of shape (n_rows,)
        Quality of each held-out row under the cascade that is best on the rows of the
        other folds. It has no bias by choosing the best.
    """

    cascade: int
    price_index: int
    honest_quality: NDArray[np.float64]


class CascadeRule(NamedTuple):
    """A fitted cascade, and the position of the rule's price in the grid of prices."""

    cascade: FittedCascade
    price_index: int


class LearnedRules(NamedTuple):
    """All that `CascadeRouter.fit` learns from a log.

    Attributes
    ----------
    scales : SignalScales
        Fitted to the signals of all rows.
    rules : list of CascadeRule
        Useful rules, fitted to all rows, from the cheapest to the most expensive.
    mixture : Mixture
        Mean cost and quality of the rules, by rows that did not choose them.
    validated_parts : list of ValidatedPart
        One for each fold.
    """

    scales: SignalScales
    rules: list[CascadeRule]
    mixture: Mixture
    validated_parts: list[ValidatedPart]


def learn_rules(cascades, log, folds, estimates_by_fold, n_prices, *, cheapest, n_jobs):
    """Compare cascades out of sample at each price, and fit the chosen ones.

    Parameters
    ----------
    cascades : list of States
    log : CascadeLog
    folds : list of (ndarray, ndarray)
        Training and test rows.
    estimates_by_fold : list of ndarray of shape (n_train, n_before)
        For each fold the estimates of its training rows by fits without its test rows.
    n_prices : int
        Number of prices of the grid.
    cheapest : int or None
        Position of a cascade that is a candidate even if no price chooses it. The
        smallest budget may need it. None adds no cascade.
    n_jobs : int or None

    Returns
    -------
    LearnedRules
    """
    prices = price_grid(log.costs.mean(axis=0), n_prices)
    tables = judge_by_folds(
        cascades, log, prices, folds, estimates_by_fold=estimates_by_fold, n_jobs=n_jobs
    )
    n_calls = np.array([states.n_calls for states in cascades])
    chosen = choose_rules(tables, prices, n_calls, cheapest=cheapest)

    cost = _tables_of_rules(tables.cost, chosen)
    quality = _tables_of_rules(tables.quality, chosen)
    scaled_honest_quality = np.array([rule.honest_quality for rule in chosen])
    # From the scale of 0 to 1 back to the unit of the logged quality.
    honest_quality = log.low + log.span * scaled_honest_quality
    useful = useful_rules(quality, tables.fold_of_row)
    useful_chosen = [chosen[position] for position in useful]
    scales = SignalScales(log.signals)
    return LearnedRules(
        scales,
        rules=_fit_rules(useful_chosen, cascades, log, prices, scales),
        mixture=_mixture_of(cost[useful], honest_quality[useful]),
        validated_parts=_validate_by_folds(
            quality, cost, honest_quality, tables.fold_of_row
        ),
    )


def _validate_by_folds(quality, cost, honest_quality, fold_of_row):
    """Return quality and cost of each fold under rules that the other folds chose.

    Parameters
    ----------
    quality, cost, honest_quality : ndarray of shape (n_rules, n_rows)
        Quality, cost and honest quality (`ChosenRule`) of each row under each chosen
        rule. Useful rules are found by `quality`. Means are those of `honest_quality`.
    fold_of_row : ndarray of shape (n_rows,)

    Returns
    -------
    list of ValidatedPart
    """
    validated_parts = []
    for rows, others in rows_and_others(fold_of_row):
        useful = useful_rules(quality[:, others], fold_of_row[others])
        validated = ValidatedPart.from_rows(
            _mixture_of(cost[useful], honest_quality[useful]),
            cost[useful][:, rows],
            honest_quality[useful][:, rows],
        )
        validated_parts.append(validated)
    return validated_parts


def _tables_of_rules(table, rules):
    """Return the quality, or the cost, of each held-out row under some rules.

    `table` is a table of `HeldOutTables`, of shape (n_cascades, n_rows, n_prices).
    `rules` is a list of `ChosenRule`. The result has the shape (n_rules, n_rows).
    """
    return np.array([table[rule.cascade, :, rule.price_index] for rule in rules])


def _mixture_of(cost, quality):
    """Return a `Mixture` of rules, with the mean cost and quality of each rule.

    `cost` and `quality` have the shape (n_rules, n_rows).
    """
    return Mixture(cost.mean(axis=1), quality.mean(axis=1))


def _fit_rules(chosen, cascades, log, prices, scales):
    """Fit chosen rules on all rows of a log, and return a list of `CascadeRule`.

    `chosen` is a list of `ChosenRule`, and `scales` those of the log's signals. A
    cascade that several rules share is fitted once.
    """
    regressions = LogRegressions(log, scales.transform(log.signals))
    fitted_of_cascade = {}
    rules = []
    for rule in chosen:
        if rule.cascade not in fitted_of_cascade:
            states = cascades[rule.cascade]
            fitted = fit_cascade(states, log, prices, regressions)
            fitted_of_cascade[rule.cascade] = fitted
        rules.append(CascadeRule(fitted_of_cascade[rule.cascade], rule.price_index))
    return rules


def judge_by_folds(cascades, log, prices, folds, *, estimates_by_fold, n_jobs):
    """Return the outcomes of all cascades on held-out rows (`HeldOutTables`).

    `prices` has the shape (n_prices,). The other parameters are those of `learn_rules`.
    """
    test_rows = _judged_rows(folds, len(log.quality))
    jobs = []
    for (train, _), test, estimates in zip(folds, test_rows, estimates_by_fold):
        train_log = log.take(train)
        train_signals = train_log.signals._replace(before=estimates)
        train_log = train_log._replace(signals=train_signals)
        jobs.append(
            delayed(judge_cascades)(cascades, train_log, log.take(test), prices)
        )
    by_fold = Parallel(n_jobs=n_jobs)(jobs)
    sizes = [len(test) for test in test_rows]
    return HeldOutTables(
        quality=np.concatenate([quality for quality, _ in by_fold], axis=1),
        cost=np.concatenate([cost for _, cost in by_fold], axis=1),
        fold_of_row=np.repeat(np.arange(len(sizes)), sizes),
    )


def _judged_rows(folds, n_rows):
    """Return the rows on which cascades are compared, a list with an array per fold.

    They are the test rows of the fold, or a random share of them. All folds together
    have at most `_MAX_JUDGED` of the `n_rows` rows.
    """
    share = min(1.0, _MAX_JUDGED / n_rows)
    if share == 1:
        return [test for _, test in folds]
    # A fixed seed: the router has no `random_state`.
    rng = np.random.default_rng(0)
    judged = []
    for _, test in folds:
        drawn = rng.choice(test, int(share * len(test)), replace=False)
        judged.append(np.sort(drawn))
    return judged


def judge_cascades(cascades, train_log, test_log, prices):
    """Fit cascades to training rows, and return quality and cost of the test rows.

    Both are tables of shape (n_cascades, n_test, n_prices).
    """
    scales = SignalScales(train_log.signals)
    regressions = LogRegressions(train_log, scales.transform(train_log.signals))
    test_scores = scales.transform(test_log.signals)
    outcomes = test_log.outcomes()
    # Each row is decided at each price, (n_test, n_prices).
    price_index = np.tile(np.arange(len(prices)), (len(outcomes), 1))
    quality = []
    cost = []
    for states in cascades:
        fitted = fit_cascade(states, train_log, prices, regressions)
        ends = fitted.follow(test_scores, price_index)
        quality.append(np.take_along_axis(outcomes, ends.choice, axis=1))
        # True for the models that a row asks at a price, (n_test, n_prices, n_models).
        asked = states.asked[ends.state]
        # Costs of the asked models, summed over the models.
        cost.append(np.einsum("ik,ijk->ij", test_log.costs, asked))
    return np.array(quality), np.array(cost)


def choose_rules(tables, prices, n_calls, *, cheapest):
    """Choose a cascade at each price, and return these rules by rising mean cost.

    Of several rules with the same mean cost one is returned.

    Parameters
    ----------
    tables : HeldOutTables
    prices : ndarray of shape (n_prices,)
        Falling.
    n_calls : ndarray of shape (n_cascades,)
        Maximal number of calls about one row: the complexity of each cascade.
    cheapest : int or None
        As in `learn_rules`.

    Returns
    -------
    list of ChosenRule
    """
    chosen = []
    if cheapest is not None:
        # Position 0 is the highest price. This cascade was chosen by its cost, so that
        # its quality has no bias by choosing, and all rows measure it.
        chosen.append(ChosenRule(cheapest, 0, tables.quality[cheapest, :, 0]))
    for index, price in enumerate(prices):
        quality = tables.quality[:, :, index]
        gain = quality - price * tables.cost[:, :, index]
        cascade, honest_quality = choose_and_judge(
            gain, quality, n_calls, tables.fold_of_row
        )
        chosen.append(ChosenRule(cascade, index, honest_quality))
    # Of rules with the same mean cost, the last one replaces the others in the dict. It
    # was chosen at the lowest price.
    rule_of_cost = {}
    for rule in chosen:
        mean_cost = tables.cost[rule.cascade, :, rule.price_index].mean()
        rule_of_cost[round(float(mean_cost), _COST_DECIMALS)] = rule
    return [rule_of_cost[mean_cost] for mean_cost in sorted(rule_of_cost)]


def choose_and_judge(gain, quality, complexity, fold_of_row):
    """Choose a policy by all rows, and measure its quality on rows that did not choose.

    Parameters
    ----------
    gain, quality : ndarray of shape (n_policies, n_rows)
        Gain and quality of each row under each policy. Policies are chosen by gain, and
        their quality is returned.
    complexity : ndarray of shape (n_policies,)
        Lower is simpler.
    fold_of_row : ndarray of shape (n_rows,)

    Returns
    -------
    chosen : int
        Position of the policy that is best on all rows, as `choose_simple` finds it.
    honest_quality : ndarray of shape (n_rows,)
        Quality of each row under the policy that is best on the rows of other folds.
    """
    honest_quality = np.empty(len(fold_of_row))
    for rows, others in rows_and_others(fold_of_row):
        chosen_by_others = choose_simple(gain[:, others], complexity)
        honest_quality[rows] = quality[chosen_by_others, rows]
    return choose_simple(gain, complexity), honest_quality


def choose_simple(gain, complexity):
    """Return the position of the simplest policy that is within noise of the best one.

    Parameters
    ----------
    gain : ndarray of shape (n_policies, n_rows)
        Gain of each row under each policy.
    complexity : ndarray of shape (n_policies,)
        Lower is simpler. Among equally simple policies the best one is taken.

    Returns
    -------
    int
    """
    mean = gain.mean(axis=1)
    best = int(mean.argmax())
    n_rows = gain.shape[1]
    # Standard error of the difference in mean gain between each policy and the best.
    error = (gain - gain[best]).std(axis=1) / np.sqrt(n_rows)
    lowest_mean = mean[best] - _SIMPLER_WITHIN * error - _TIED
    as_good = np.flatnonzero(mean >= lowest_mean)
    lowest_complexity = complexity[as_good].min()
    simplest = as_good[complexity[as_good] == lowest_complexity]
    return int(simplest[mean[simplest].argmax()])
