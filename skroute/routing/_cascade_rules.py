"""Cascades of models: which may be asked in which order, and which is worth it at a price."""

from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.parallel import Parallel, delayed

from skroute.routing._estimates import rows_and_others
from skroute.routing._mixtures import Mixture, ValidatedPart
from skroute.routing._signals import RankScores, StateBasis
from skroute.routing._states import (
    States,
    StateValues,
    any_order,
    best_move,
    fixed_order,
    roll_back,
)

# Share of estimates of later states in the value of going on to them: see `roll_back`.
_TRUST = 0.5
# Rows that candidates are compared on: enough for differences of half a point.
_MAX_JUDGED = 5000
# Standard errors within which a simpler cascade is preferred to a better one. With none the best
# of 130 is taken for what it seems to be, with a whole one what is learned is thrown away.
_SLACK = 0.25


class Cascade(NamedTuple):
    """Which models may be asked after which."""

    # The models in the order in which they are asked; None where any may follow any.
    chain: tuple[int, ...] | None
    # Models that are asked at most.
    n_calls: int
    states: States
    # For each state the models that may answer there, whose signals it reads.
    reads: list[list[int]]


def chain_of(n_models, chain):
    """The cascade of a fixed order; the last one asked answers, by its own signals."""
    reads = [[], *([k] for k in chain)]
    return Cascade(tuple(chain), len(chain), fixed_order(n_models, chain), reads)


def free_cascade(n_models, max_calls):
    """The cascade in which any model follows any, and any that was asked may answer."""
    states = any_order(n_models, max_calls)
    return Cascade(None, max_calls, states, [list(np.flatnonzero(row)) for row in states.asked])


def candidates(n_models, max_calls, by_cost, informed):
    """What a fit compares: each model alone, one-shot routing, fixed and free orders."""
    found = [chain_of(n_models, (k,)) for k in range(n_models)]
    if informed:
        found.append(free_cascade(n_models, 1))
    for size in range(2, min(max_calls, n_models) + 1):
        found += [chain_of(n_models, part) for part in combinations(by_cost, size)]
        found.append(free_cascade(n_models, size))
    return found


class Outcomes(NamedTuple):
    """A log of cascades; tables have one row for each request."""

    # From 0 to 1, (n_rows, n_models): low + span * quality is what was logged.
    quality: NDArray[np.float64]
    costs: NDArray[np.float64]
    # For each model what its answers show.
    signals: list[NDArray[np.float64]]
    # What is known before any call: estimates of quality, out of sample.
    known: NDArray[np.float64]
    # What a row counts as that is handed over.
    handing: float | None
    low: float
    span: float

    def take(self, rows):
        """The log of some rows."""
        return self._replace(
            quality=self.quality[rows],
            costs=self.costs[rows],
            signals=[part[rows] for part in self.signals],
            known=self.known[rows],
        )


class Reader:
    """Turns what is known and what answers show into normal scores, by the rows of a log."""

    def __init__(self, log):
        self.known = RankScores(log.known)
        self.of_model = [RankScores(part) for part in log.signals]

    def scores(self, known, signals):
        """Scores before any call, and of each model's signals."""
        parts = [scale.transform(part) for scale, part in zip(self.of_model, signals)]
        return self.known.transform(known), parts


class Fitted(NamedTuple):
    """A cascade with what it has learned: the values of its states, and the costs and prices."""

    cascade: Cascade
    values: list[StateValues]
    costs: NDArray[np.float64]
    prices: NDArray[np.float64]

    def move(self, state, known, parts, price_at):
        """What is best in a state at prices of the grid, and the choice that would end each row."""
        nexts = np.flatnonzero(self.cascade.states.following[state] >= 0)
        values, reads = self.values[state], self.cascade.reads[state]
        features = np.column_stack([known, *(parts[k] for k in reads)])
        ways, going = values.split(values.model.predict(features))
        if len(nexts):
            going = np.take_along_axis(going, price_at[:, np.newaxis], axis=2)
        found = best_move(ways, going, self.costs[nexts], self.prices[price_at])
        # What hands over comes after the models; -1 where nothing has been asked.
        choices = np.array([*reads, len(self.costs)])
        return found._replace(onward=np.append(nexts, -1)[found.onward]), choices[found.way]

    def follow(self, known, parts, price_at):
        """Where rows end at prices of the grid: state, choice and its estimated quality."""
        following = self.cascade.states.following
        state = np.zeros(price_at.shape, dtype=np.int64)
        choice, quality = np.zeros(price_at.shape, dtype=np.int64), np.zeros(price_at.shape)
        for at in range(len(following)):
            here = state == at
            rows = np.flatnonzero(here.any(axis=1))
            if not len(rows):
                continue
            move, ends = self.move(at, known[rows], [part[rows] for part in parts], price_at[rows])
            i, j = np.nonzero(here[rows])
            choice[rows[i], j], quality[rows[i], j] = ends[i], move.stop[i]
            to = move.onward[i, j]
            state[rows[i], j] = np.where(to >= 0, following[at, to], at)
        return state, choice, quality


def fit_cascade(cascade, log, scores, prices, bases):
    """Learn when to go on; `bases` keeps the regressions that candidates of one log share."""
    known, parts = scores

    def fit(state, target):
        reads = cascade.reads[state]
        if (key := tuple(reads)) not in bases:
            features = np.column_stack([known, *(parts[k] for k in reads)])
            owner = np.repeat([-1, *reads], [known.shape[1], *(parts[k].shape[1] for k in reads)])
            own = np.array([owner == k for k in reads]).reshape(len(reads), len(owner))
            bases[key] = StateBasis(features, own, log.quality[:, reads])
        return bases[key].fit(target[:, len(reads) :])

    realised = [log.quality[:, reads] for reads in cascade.reads]
    costs = log.costs.mean(axis=0)
    values, _, _ = roll_back(
        cascade.states, realised, costs, prices, fit, handing=log.handing, trust=_TRUST
    )
    return Fitted(cascade, values, costs, prices)


def price_grid(costs, n_prices):
    """Prices in quality from 0 to 1 by unit of cost, from where nothing is bought down to 0."""
    costs = costs[costs > 0]
    if not len(costs) or n_prices == 1:
        return np.zeros(1)
    # The whole range of quality is not worth half the cheapest call; a 500th is worth any.
    return np.append(np.geomspace(2 / costs.min(), 0.002 / costs.max(), n_prices - 1), 0.0)


def judge(cascades, log, prices, train, test, known):
    """Quality and cost at each price, on the rows `test`, of cascades that `train` has fitted."""
    own, other = log.take(train)._replace(known=known), log.take(test)
    reader, bases = Reader(own), {}
    scores, theirs = (reader.scores(part.known, part.signals) for part in (own, other))
    handed = np.full(len(test), np.nan if log.handing is None else log.handing)
    outcomes = np.column_stack([other.quality, handed])
    price_at = np.tile(np.arange(len(prices)), (len(test), 1))
    quality, cost = [], []
    for cascade in cascades:
        fitted = fit_cascade(cascade, own, scores, prices, bases)
        state, choice, _ = fitted.follow(*theirs, price_at)
        quality.append(np.take_along_axis(outcomes, choice, axis=1))
        asked = cascade.states.asked[state]
        cost.append(np.einsum("ik,ijk->ij", other.costs, asked))
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

    Parameters
    ----------
    compared : list of Cascade
    log : Outcomes
    folds : list of (train, test)
    known : list of ndarray
        For each fold what is known of its training rows, by estimates without its test rows.
    n_prices : int
    cheapest : int or None
        Which of `compared` the smallest budget takes, if no price chooses it.
    n_jobs : int, default=None

    Returns
    -------
    reader : Reader
    rules : list of (Fitted, int)
        Cascades from the cheapest on, and the position of the price that each decides at.
    mixture : Mixture
        Their mean cost and quality. The rows that chose a rule do not judge its quality.
    parts : list of ValidatedPart
        What they did on the rows of each fold.
    """
    mean_costs = log.costs.mean(axis=0)
    prices = price_grid(mean_costs, n_prices)
    rng = np.random.default_rng(0)
    judged = min(1.0, _MAX_JUDGED / len(log.quality))
    tests = [
        test if judged == 1 else np.sort(rng.choice(test, int(judged * len(test)), False))
        for _, test in folds
    ]
    found = Parallel(n_jobs=n_jobs)(
        delayed(judge)(compared, log, prices, train, test, own)
        for (train, _), test, own in zip(folds, tests, known)
    )
    quality, cost = (np.concatenate([part[k] for part in found], axis=1) for k in (0, 1))
    fold = np.repeat(np.arange(len(tests)), [len(test) for test in tests])
    n_calls = np.array([cascade.n_calls for cascade in compared])
    points = {}
    if cheapest is not None:
        points[_rounded(cost[cheapest, :, 0])] = (cheapest, 0, cost[cheapest, :, 0],
                                                  quality[cheapest, :, 0])  # fmt: skip
    for at, price in enumerate(prices):
        gain = quality[:, :, at] - price * cost[:, :, at]
        chosen, honest = choose_and_judge(gain, quality[:, :, at], n_calls, fold)
        # Of equally expensive ones the last, which had the lowest price.
        points[_rounded(cost[chosen, :, at])] = (chosen, at, cost[chosen, :, at], honest)
    chosen, price_at, row_cost, row_quality = zip(*(points[key] for key in sorted(points)))
    row_cost, row_quality = np.array(row_cost), log.low + log.span * np.array(row_quality)
    mixture = Mixture(row_cost.mean(axis=1), row_quality.mean(axis=1))
    parts = [
        ValidatedPart.of(mixture, row_cost[:, rows], row_quality[:, rows])
        for rows in (fold == number for number in range(len(tests)))
    ]
    reader, bases = Reader(log), {}
    scores = reader.scores(log.known, log.signals)
    fitted = {at: fit_cascade(compared[at], log, scores, prices, bases) for at in set(chosen)}
    rules = [(fitted[which], at) for which, at in zip(chosen, price_at)]
    return reader, rules, mixture, parts


def _rounded(cost):
    return round(float(cost.mean()), 12)
