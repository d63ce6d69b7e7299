"""Cascades of models: which may be asked in which order, and which is worth it at a price."""

from itertools import combinations
from typing import NamedTuple

import numpy as np
from sklearn.utils.parallel import Parallel, delayed

from skroute.routing.from_answers._signals import RankScores, StateBasis
from skroute.routing.from_answers._states import (
    States,
    StateValues,
    any_order,
    best_move,
    fixed_order,
    roll_back,
)
from skroute.routing.parts._estimates import rows_and_others
from skroute.routing.parts._mixtures import Mixture, ValidatedPart, useful_rules
from skroute.utils._typing import NDArray

# Share of estimates of later states in the value of going on to them: see `roll_back`.
_TRUST = 0.5
# Rows that candidates are compared on: enough for differences of half a point.
_MAX_JUDGED = 5000
# Standard errors within which a simpler cascade is preferred to a better one. With none the best
# of 130 is taken for what it seems to be, with a whole one what is learned is thrown away.
_SLACK = 0.25


def candidates(n_models, max_calls, by_cost, informed):
    """What a fit compares: each model alone, one-shot routing, fixed and free orders."""
    found = [fixed_order(n_models, (k,)) for k in range(n_models)]
    if informed:
        found.append(any_order(n_models, 1))
    for size in range(2, min(max_calls, n_models) + 1):
        found += [fixed_order(n_models, part) for part in combinations(by_cost, size)]
        found.append(any_order(n_models, size))
    return found


class Outcomes(NamedTuple):
    """A log of cascades; tables have one row for each request."""

    # From 0 to 1, (n_rows, n_models): low + span * quality is what was logged.
    quality: NDArray[np.float64]
    costs: NDArray[np.float64]
    # What is known before any call, estimates of quality out of sample; then for each model what
    # its answers show.
    shown: list[NDArray[np.float64]]
    # Quality of a row that abstains.
    abstain_quality: float | None
    low: float
    span: float

    def take(self, rows):
        """The log of some rows."""
        return self._replace(
            quality=self.quality[rows],
            costs=self.costs[rows],
            shown=[part[rows] for part in self.shown],
        )


def scores_of(scales, shown):
    """Normal scores of what is known before any call, and of each model's signals."""
    return [scale.transform(part) for scale, part in zip(scales, shown)]


def features_of(states, state, scores):
    """What a state decides by: what is known, and the signals of those that may answer there."""
    return np.column_stack([scores[0], *(scores[1 + k] for k in states.answers[state])])


class Fitted(NamedTuple):
    """A cascade with what it has learned: the values of its states, and the costs and prices."""

    states: States
    values: list[StateValues]
    costs: NDArray[np.float64]
    prices: NDArray[np.float64]

    def move(self, state, scores, price_at):
        """What is best in a state at prices of the grid, and the choice that would end each row."""
        nexts, values = (
            np.flatnonzero(self.states.following[state] >= 0),
            self.values[state],
        )
        features = features_of(self.states, state, scores)
        ways, going = values.split(values.model.predict(features))
        going = np.take_along_axis(going, price_at[:, np.newaxis], axis=2)
        found = best_move(ways, going, self.costs[nexts], self.prices[price_at])
        # Abstaining comes after the models. -1: nothing has been asked.
        choices = np.array([*self.states.answers[state], len(self.costs)])
        return found._replace(onward=np.append(nexts, -1)[found.onward]), choices[
            found.way
        ]

    def follow(self, scores, price_at):
        """Where rows end at prices of the grid: state, choice and its estimated quality."""
        following = self.states.following
        state = np.zeros(price_at.shape, dtype=np.int64)
        choice, quality = (
            np.zeros(price_at.shape, dtype=np.int64),
            np.zeros(price_at.shape),
        )
        for at in range(len(following)):
            here = state == at
            rows = np.flatnonzero(here.any(axis=1))
            if not len(rows):
                continue
            move, ends = self.move(at, [part[rows] for part in scores], price_at[rows])
            i, j = np.nonzero(here[rows])
            choice[rows[i], j], quality[rows[i], j] = ends[i], move.stop[i]
            to = move.onward[i, j]
            state[rows[i], j] = np.where(to >= 0, following[at, to], at)
        return state, choice, quality


def fit_cascade(states, log, scores, prices, bases):
    """Learn when to go on; `bases` keeps the regressions that candidates of one log share."""
    realised = [log.quality[:, list(reads)] for reads in states.answers]
    costs = log.costs.mean(axis=0)

    def fit(state, target):
        reads = states.answers[state]
        if reads not in bases:
            widths = [scores[1 + k].shape[1] for k in (-1, *reads)]
            owner = np.repeat([-1, *reads], widths)
            own = np.array([owner == k for k in reads]).reshape(len(reads), len(owner))
            bases[reads] = StateBasis(
                features_of(states, state, scores), own, realised[state]
            )
        return bases[reads].fit(target[:, len(reads) :])

    values, _, _ = roll_back(
        states,
        realised,
        costs,
        prices,
        fit,
        abstain_quality=log.abstain_quality,
        trust=_TRUST,
    )
    return Fitted(states, values, costs, prices)


def price_grid(costs, n_prices):
    """Prices in quality from 0 to 1 by unit of cost, from where nothing is bought down to 0."""
    costs = costs[costs > 0]
    if not len(costs) or n_prices == 1:
        return np.zeros(1)
    # The whole range of quality is not worth half the cheapest call; a 500th is worth any.
    return np.append(
        np.geomspace(2 / costs.min(), 0.002 / costs.max(), n_prices - 1), 0.0
    )


def judge(cascades, log, prices, train, test, known):
    """Quality and cost at each price, on the rows `test`, of cascades that `train` has fitted."""
    own, other, bases = log.take(train), log.take(test), {}
    own.shown[0] = known
    scales = [RankScores(part) for part in own.shown]
    scores, theirs = (scores_of(scales, part.shown) for part in (own, other))
    # None, where no row can abstain, becomes NaN.
    abstaining = np.full(len(test), log.abstain_quality, dtype=np.float64)
    outcomes = np.column_stack([other.quality, abstaining])
    price_at = np.tile(np.arange(len(prices)), (len(test), 1))
    quality, cost = [], []
    for states in cascades:
        fitted = fit_cascade(states, own, scores, prices, bases)
        state, choice, _ = fitted.follow(theirs, price_at)
        quality.append(np.take_along_axis(outcomes, choice, axis=1))
        cost.append(np.einsum("ik,ijk->ij", other.costs, states.asked[state]))
    return np.array(quality), np.array(cost)


def choose_simple(gain, complexity):
    """The simplest policy that is not clearly worse than the best one, by gains of its rows."""
    mean = gain.mean(axis=1)
    best = int(mean.argmax())
    error = (gain - gain[best]).std(axis=1) / np.sqrt(gain.shape[1])
    near = np.flatnonzero(mean >= mean[best] - _SLACK * error - 1e-12)
    simple = near[complexity[near] == complexity[near].min()]
    return int(simple[mean[simple].argmax()])


def choose_and_judge(gain, quality, complexity, fold):
    """The policy that all rows choose; of each row the quality of what other folds choose."""
    chosen, honest = choose_simple(gain, complexity), np.empty(len(fold))
    for rows, others in rows_and_others(fold):
        honest[rows] = quality[choose_simple(gain[:, others], complexity), rows]
    return chosen, honest


def learn_path(compared, log, folds, known, n_prices, cheapest, n_jobs=None):
    """Compare cascades out of sample at each price, and fit the chosen ones on all rows.

    `known` has for each fold what is known of its training rows by estimates without its test
    rows; the smallest budget takes the cascade `cheapest` if no price chooses it. Returns the
    scales of what is shown; the chosen cascades from the cheapest on, each with the position of
    its price; their mixture, judged by rows that did not choose; and its validation.
    """
    prices = price_grid(log.costs.mean(axis=0), n_prices)
    rng = np.random.default_rng(0)
    judged = min(1.0, _MAX_JUDGED / len(log.quality))
    tests = [
        test
        if judged == 1
        else np.sort(rng.choice(test, int(judged * len(test)), False))
        for _, test in folds
    ]
    found = Parallel(n_jobs=n_jobs)(
        delayed(judge)(compared, log, prices, train, test, own)
        for (train, _), test, own in zip(folds, tests, known)
    )
    quality, cost = (
        np.concatenate([part[k] for part in found], axis=1) for k in (0, 1)
    )
    fold = np.repeat(np.arange(len(tests)), [len(test) for test in tests])
    n_calls = np.array([states.n_calls for states in compared])
    chosen = [] if cheapest is None else [(cheapest, 0, quality[cheapest, :, 0])]
    for at, price in enumerate(prices):
        gain = quality[:, :, at] - price * cost[:, :, at]
        which, honest = choose_and_judge(gain, quality[:, :, at], n_calls, fold)
        chosen.append((which, at, honest))
    # Of equally expensive ones the last, which had the lowest price.
    points = {round(float(cost[one[0], :, one[1]].mean()), 12): one for one in chosen}
    which, price_at, row_quality = zip(*(points[key] for key in sorted(points)))
    row_cost = np.array([cost[one, :, at] for one, at in zip(which, price_at)])
    row_quality = log.low + log.span * np.array(row_quality)
    # The path is limited by rows that did not fit the chosen cascades.
    held_out_quality = np.array(
        [quality[one, :, at] for one, at in zip(which, price_at)]
    )
    parts = []
    for rows, others in rows_and_others(fold):
        useful = useful_rules(held_out_quality[:, others], fold[others])
        mixture = Mixture(
            row_cost[useful].mean(axis=1), row_quality[useful].mean(axis=1)
        )
        tables = row_cost[useful][:, rows], row_quality[useful][:, rows]
        parts.append(ValidatedPart.of(mixture, *tables))
    useful = useful_rules(held_out_quality, fold)
    mixture = Mixture(row_cost[useful].mean(axis=1), row_quality[useful].mean(axis=1))
    which = [which[rule] for rule in useful]
    price_at = [price_at[rule] for rule in useful]
    scales, bases = [RankScores(part) for part in log.shown], {}
    scores = scores_of(scales, log.shown)
    fitted = {
        one: fit_cascade(compared[one], log, scores, prices, bases)
        for one in set(which)
    }
    return (
        scales,
        [(fitted[one], at) for one, at in zip(which, price_at)],
        mixture,
        parts,
    )
