"""Cascades of models: which sets may be asked in which order, and which of them is worth it."""

from itertools import combinations
from math import comb
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from skroute.routing._rollout import roll_back, split_outputs
from skroute.routing._signals import RankScores, StateBasis

# A way to end a row that no model answers.
ABSTAIN = -1
# Share of estimates of later states in the value of going on to them: see `roll_back`. Half,
# since outcomes are noisy and the largest of several estimates is too high.
_TRUST = 0.5


class Cascade(NamedTuple):
    """Which models may be asked after which.

    Attributes
    ----------
    chain : tuple of int or None
        The models in their order, where it is fixed.

    asked : ndarray of shape (n_states, n_models), dtype=bool
        Models paid for in each state. State 0 is before the first call; states with more
        models come later.

    following : ndarray of shape (n_states, n_models), dtype=int64
        State after asking a model, or -1.

    ways : list of list of int
        For each state the models whose answers may be given, `ABSTAIN` last.

    reads : list of list of int
        For each state the models whose signals are read.

    n_calls : int
        Calls per row at most, by which cascades are called simple.
    """

    chain: tuple[int, ...] | None
    asked: NDArray[np.bool_]
    following: NDArray[np.int64]
    ways: list[list[int]]
    reads: list[list[int]]
    n_calls: int


def any_order(n_models, max_calls, first=None, abstain=None):
    """Every model may be asked after every other, up to a number of calls.

    Parameters
    ----------
    n_models : int
    max_calls : int
    first : sequence of int, default=None
        Models that may be asked first; None is all.
    abstain : {"early", "last", None}, default=None
        Whether a row may be handed over: after each answer, where no call is left, never.

    Returns
    -------
    Cascade
    """
    first = range(n_models) if first is None else first
    sets: list[tuple[int, ...]] = [()]
    for size in range(1, min(max_calls, n_models) + 1):
        sets += [part for part in combinations(range(n_models), size) if set(part) & set(first)]
    position = {part: at for at, part in enumerate(sets)}
    asked = np.array([[k in part for k in range(n_models)] for part in sets])
    following = np.full((len(sets), n_models), -1)
    for at, part in enumerate(sets):
        for k in first if not part else range(n_models):
            if k not in part:
                following[at, k] = position.get(tuple(sorted({*part, k})), -1)
    ways, reads = [list(part) for part in sets], [list(part) for part in sets]
    return _with_abstaining(Cascade(None, asked, following, ways, reads, max_calls), abstain)


def fixed_order(n_models, chain, abstain=None):
    """One model after another; the last one asked answers, by its own signals.

    FrugalGPT's cascade, whose thresholds are here where the next call is worth its price.

    Parameters
    ----------
    n_models : int
    chain : sequence of int
    abstain : {"early", "last", None}, default=None

    Returns
    -------
    Cascade
    """
    n_states = len(chain) + 1
    asked = np.zeros((n_states, n_models), dtype=bool)
    following = np.full((n_states, n_models), -1)
    for at, k in enumerate(chain):
        asked[at + 1 :, k] = True
        following[at, k] = at + 1
    last = [[], *([k] for k in chain)]
    cascade = Cascade(tuple(chain), asked, following, last, list(last), len(chain))
    return _with_abstaining(cascade, abstain)


def _with_abstaining(cascade, abstain):
    """Add the way to hand a row over to the states where it may be."""
    if abstain is None:
        return cascade
    ends = (cascade.following < 0).all(axis=1)
    ways = [
        [*ways, ABSTAIN] if asked.any() and (abstain == "early" or end) else ways
        for ways, asked, end in zip(cascade.ways, cascade.asked, ends)
    ]
    return cascade._replace(ways=ways)


class Log(NamedTuple):
    """What is learned from.

    Attributes
    ----------
    quality : ndarray of shape (n_rows, n_models)
        In [0, 1].
    costs : ndarray of shape (n_rows, n_models)
    signals : list of ndarray of shape (n_rows, n_signals)
        For each model what its answers show.
    known : ndarray of shape (n_rows, n_known)
        What is known before any call; the column k, if any, belongs to model k.
    abstain : float
        Quality of handing a row over.
    """

    quality: NDArray[np.float64]
    costs: NDArray[np.float64]
    signals: list[NDArray[np.float64]]
    known: NDArray[np.float64]
    abstain: float

    def take(self, rows):
        """The log of some rows."""
        return Log(
            self.quality[rows],
            self.costs[rows],
            [part[rows] for part in self.signals],
            self.known[rows],
            self.abstain,
        )


class Scores(NamedTuple):
    """Normal scores of what a log shows.

    Attributes
    ----------
    known : ndarray of shape (n_rows, n_known)
    of_model : sequence or mapping of ndarray of shape (n_rows, n_scores)
        By model.
    """

    known: NDArray[np.float64]
    of_model: Any


class Reader:
    """Turns signals into normal scores, by the rows of a log.

    Parameters
    ----------
    log : Log
    """

    def __init__(self, log):
        self.known = RankScores(log.known)
        self.of_model = [RankScores(part) for part in log.signals]

    def scores(self, log):
        """Scores of the rows of a log."""
        parts = [scale.transform(part) for scale, part in zip(self.of_model, log.signals)]
        return Scores(self.known.transform(log.known), parts)


class Fitted(NamedTuple):
    """A cascade with what it has learned.

    Attributes
    ----------
    cascade : Cascade
    models : list
        For each state an estimator of what `roll_back` says, or None.
    prices : ndarray of shape (n_prices,)
    costs : ndarray of shape (n_models,)
        Mean costs, by which it decides.
    abstain : float
        Quality of handing a row over.
    """

    cascade: Cascade
    models: list
    prices: NDArray[np.float64]
    costs: NDArray[np.float64]
    abstain: float

    def decide(self, state, features, prices):
        """What to do in a state, at each of some prices.

        Parameters
        ----------
        state : int
        features : ndarray of shape (n_rows, n_features)
        prices : slice or ndarray of int
            Positions in `prices`.

        Returns
        -------
        model : ndarray of shape (n_rows, n_selected), dtype=int64
            Model to ask next; -1 to end.
        way : ndarray of shape (n_rows,), dtype=int64
            Whose answer to give in the end.
        stop : ndarray of shape (n_rows,)
            Estimated quality of that.
        """
        ways = np.asarray(self.cascade.ways[state], dtype=np.int64)
        nexts = np.flatnonzero(self.cascade.following[state] >= 0)
        outputs = self.models[state].predict(features)
        quality, going = split_outputs(outputs, len(ways), len(nexts), len(self.prices))
        if len(ways):
            at = quality.argmax(axis=1)
            way, stop = ways[at], quality[np.arange(len(at)), at]
        else:
            way, stop = np.full(len(features), ABSTAIN), np.full(len(features), -np.inf)
        chosen = self.prices[prices]
        model = np.full((len(features), len(chosen)), -1)
        if len(nexts):
            # As `next_member`, at several prices.
            net = going[:, :, prices] - self.costs[nexts][:, np.newaxis] * chosen
            at = net.argmax(axis=1)
            best = np.take_along_axis(net, at[:, np.newaxis], axis=1)[:, 0]
            model = np.where(best > stop[:, np.newaxis] + 1e-12, nexts[at], -1)
        return model, way, stop


class StateModel(NamedTuple):
    """An estimate of the answers, with the fixed quality of handing over put in its place."""

    estimate: Any
    n_answers: int
    abstain: float | None

    def predict(self, features):
        found = self.estimate.predict(features)
        return self.complete(found)

    def complete(self, found):
        """Estimates with a column for abstaining after those of the answers."""
        if self.abstain is None:
            return found
        return np.insert(found, self.n_answers, self.abstain, axis=1)


def state_features(cascade, state, scores):
    """What is known in a state: scores from before, and of the answers that it reads."""
    return np.column_stack([scores.known, *(scores.of_model[k] for k in cascade.reads[state])])


def state_basis(cascade, state, log, scores):
    """The state's knowledge and answers, ready for regressions."""
    owner = [np.arange(scores.known.shape[1])]
    owner += [np.full(scores.of_model[k].shape[1], k) for k in cascade.reads[state]]
    belongs = np.concatenate(owner)
    answers = [k for k in cascade.ways[state] if k != ABSTAIN]
    own = np.array([belongs == k for k in answers]).reshape(len(answers), len(belongs))
    return StateBasis(state_features(cascade, state, scores), own, log.quality[:, answers])


def fit_cascade(cascade, log, scores, prices, bases=None):
    """Learn when to go on, backward from the last calls.

    Parameters
    ----------
    cascade : Cascade
    log : Log
    scores : Scores
        Of the log.
    prices : ndarray of shape (n_prices,)
    bases : dict, default=None
        What other cascades have made of the same log already.

    Returns
    -------
    Fitted
    """
    bases = {} if bases is None else bases
    n_rows = len(log.quality)
    handed = np.full(n_rows, log.abstain)
    realised = []
    for ways in cascade.ways:
        columns = [handed if k == ABSTAIN else log.quality[:, k] for k in ways]
        realised.append(np.array(columns).reshape(len(ways), n_rows).T)

    def fit(state, target):
        ways = cascade.ways[state]
        key = tuple(ways), tuple(cascade.reads[state])
        if key not in bases:
            bases[key] = state_basis(cascade, state, log, scores)
        estimate, found = bases[key].fit(target[:, len(ways) :])
        n_answers = bases[key].ways.shape[1]
        model = StateModel(estimate, n_answers, log.abstain if ABSTAIN in ways else None)
        return model, model.complete(found)

    costs = log.costs.mean(axis=0)
    found = roll_back(cascade.following, realised, costs, prices, fit, trust=_TRUST)
    return Fitted(cascade, found.models, prices, costs, log.abstain)


def play(fitted, log, scores):
    """What a fitted cascade makes of the rows of a log at each price.

    Returns
    -------
    quality, cost : ndarray of shape (n_rows, n_prices)
    """
    cascade = fitted.cascade
    n_rows, n_prices = len(log.quality), len(fitted.prices)
    state = np.zeros((n_rows, n_prices), dtype=np.int64)
    quality, cost = np.zeros((n_rows, n_prices)), np.zeros((n_rows, n_prices))
    for at in range(len(cascade.following)):
        here = state == at
        rows = np.flatnonzero(here.any(axis=1))
        if not len(rows):
            continue
        features = state_features(cascade, at, scores)[rows]
        model, way, _ = fitted.decide(at, features, slice(None))
        answered = np.where(way == ABSTAIN, log.abstain, log.quality[rows, way])
        quality[rows] = np.where(here[rows], answered[:, np.newaxis], quality[rows])
        i, j = np.nonzero(here[rows] & (model >= 0))
        to = model[i, j]
        cost[rows[i], j] += log.costs[rows[i], to]
        state[rows[i], j] = cascade.following[at, to]
    return quality, cost


def candidates(n_models, max_calls, by_cost, informed, abstain):
    """What a fit compares: each model alone, one-shot routing, fixed and free orders.

    Parameters
    ----------
    n_models, max_calls : int
    by_cost : sequence of int
        All models, the cheapest first: the order of the fixed ones.
    informed : bool
        Whether something is known before the first call.
    abstain : {"early", "last", None}

    Returns
    -------
    list of Cascade
        The models alone come first.
    """
    found = [fixed_order(n_models, (k,), abstain) for k in range(n_models)]
    if informed:
        found.append(any_order(n_models, 1, abstain=abstain))
    for size in range(2, min(max_calls, n_models) + 1):
        found += [fixed_order(n_models, part, abstain) for part in combinations(by_cost, size)]
        found.append(any_order(n_models, size, abstain=abstain))
    return found


def n_candidates(n_models, max_calls):
    """Sets of up to `max_calls` of the models: what `candidates` grows with."""
    return sum(comb(n_models, size) for size in range(1, min(max_calls, n_models) + 1))


def price_grid(costs, n_prices):
    """Prices in quality from 0 to 1 by unit of cost, from where nothing is bought down to 0.

    Parameters
    ----------
    costs : ndarray of shape (n_models,)
    n_prices : int

    Returns
    -------
    ndarray of shape (at most n_prices,)
    """
    costs = costs[costs > 0]
    if not len(costs) or n_prices == 1:
        return np.zeros(1)
    # The whole range of quality is not worth half the cheapest call; a 500th is worth any.
    return np.append(np.geomspace(2 / costs.min(), 0.002 / costs.max(), n_prices - 1), 0.0)


def judge(cascades, log, prices, train, test, known=None):
    """Quality and cost on the rows `test` of cascades that `train` has fitted.

    Parameters
    ----------
    cascades : list of Cascade
    log : Log
    prices : ndarray of shape (n_prices,)
    train, test : ndarray of int
    known : ndarray of shape (n_train, n_known), default=None
        Of the rows `train`, by models that did not see `test`. None takes that of the log.

    Returns
    -------
    quality, cost : ndarray of shape (n_cascades, n_test, n_prices)
    """
    own, other = log.take(train), log.take(test)
    own = own if known is None else own._replace(known=known)
    reader, bases = Reader(own), {}
    scores, theirs = reader.scores(own), reader.scores(other)
    found = [
        play(fit_cascade(cascade, own, scores, prices, bases), other, theirs)
        for cascade in cascades
    ]
    return np.array([part for part, _ in found]), np.array([part for _, part in found])
