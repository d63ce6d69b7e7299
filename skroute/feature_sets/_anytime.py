"""Retrieval that watches the true cost: stop early, or go on, by what was spent."""

import time

import numpy as np
from sklearn.utils import _safe_indexing

from skroute.feature_sets._lattice import indicator
from skroute.utils._timing import synchronize_device

_clock = time.perf_counter


def anytime_walk(masks, estimate, budget, compute):
    """Buy features one at a time, and revise the goal by what they truly cost.

    Before each feature, the goal is the most preferred set whose missing features are
    estimated to fit what is left of the budget. A feature that came in below its
    estimate may lift the goal, one that came in above may lower it, down to what has
    been computed already. With the candidates of Poly-Dom in order of quality the first
    goal is Poly-Dom's choice, so this is its any-time variant; with the sets of one
    greedy sequence it is Greedy's any-time retrieval.

    Parameters
    ----------
    masks : ndarray of shape (n_sets,), dtype=int64
        Sets that have a model, the least preferred first; the empty set must be there.

    estimate : ndarray of shape (n_features,)
        Estimated cost of each feature for this item.

    budget : float
        What may be spent on this item.

    compute : callable
        Called as ``compute(j)``; computes feature `j` and returns its true cost.

    Returns
    -------
    position : int
        Which of `masks` answers.

    spent : float
        True cost of all features computed.
    """
    missing = indicator(masks, len(estimate))
    spent = 0.0
    while True:
        affordable = missing @ estimate <= budget - spent
        affordable |= ~missing.any(axis=1)
        goal = int(np.flatnonzero(affordable)[-1])
        wanted = np.flatnonzero(missing[goal])
        if len(wanted) == 0:
            return goal, spent
        cheapest = int(wanted[np.argmin(estimate[wanted])])
        spent += compute(cheapest)
        missing[:, cheapest] = False


def anytime_plan(extractors, index, masks, estimates, X, budgets):
    """Choose for each item while its features are being computed, one after the other.

    Parameters
    ----------
    extractors : ItemExtractors
        Fitted extractors.

    index : object
        Its ``goals(budget)`` names the choices to walk along.

    masks : ndarray of shape (n_choices,), dtype=int64
        Sets of the choices.

    estimates : ndarray of shape (n_features, n_items)
        Estimated seconds of each extractor on each item.

    X : list or array of items
        The items.

    budgets : ndarray of shape (n_items,)
        Seconds for each item.

    Returns
    -------
    route : ndarray of shape (n_items,), dtype=int64
        Choice for each item.

    spent : ndarray of shape (n_items,)
        Seconds that its features took.

    features : list of dict
        For each item, the computed features by extractor.
    """
    route = np.empty(len(budgets), dtype=np.int64)
    spent = np.empty(len(budgets))
    features: list[dict] = []
    for i, budget in enumerate(budgets):
        item, computed = _safe_indexing(X, [i]), {}

        def compute(j, item=item, computed=computed):
            start = _clock()
            computed[j] = extractors.extract(item, j)
            synchronize_device()
            return _clock() - start

        goals = index.goals(budget)
        position, spent[i] = anytime_walk(masks[goals], estimates[:, i], budget, compute)
        route[i] = goals[position]
        features.append(computed)
    return route, spent, features
