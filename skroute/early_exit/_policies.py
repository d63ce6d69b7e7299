"""Policies: thresholds in the form that the walks take, and where rows leave under them."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from skroute.early_exit._exit_thresholds import ExitThresholds
from skroute.early_exit._order import qwyc_order
from skroute.early_exit._thresholds import (
    doubtful,
    full_answers,
    lagrangian_path,
    running_values,
    widened,
)
from skroute.early_exit._votes import vote_path

# Policies between "never leave early" and the most hurried, fixed before calibration. The
# grids are fine enough that neighbours differ by about a tenth in disagreement.
N_POLICIES = 40
# What a wrong answer costs, in evaluations of the full ensemble.
PRICES = np.geomspace(256.0, 0.5, N_POLICIES)
# The same for votes, whose errors are counted by a law in place of rows: it goes further.
VOTE_PRICES = np.geomspace(65536.0, 0.5, N_POLICIES)
# More cautious still, for rows on which the first of them is wrong too often: thresholds
# moved out by these many deviations of what is still to come.
WIDER = np.geomspace(3.0, 0.02, 16)

# The order search: errors it may make in all, at least, and as a share of what alpha allows;
# over how many errors it averages. Chosen on splits of the training rows of Adult,
# Covertype and Letter.
SEARCH_ERRORS = 80
SEARCH_SHARE = 1 / 3
SEARCH_SPREAD = 10
# Doubt about the full ensemble's answer while thresholds are fitted; chosen likewise.
SOFTNESS = 0.01


@dataclass(frozen=True)
class Recipe:
    """How order and policies are learned from the scores of the members.

    Attributes
    ----------
    alpha : float or ndarray of shape (n_classes,)
        Share of all rows that may be answered otherwise, or of the rows of each answer.

    order, stopping, n_jobs
        As for :class:`~skroute.early_exit.QWYCEnsemble`.

    use_lo, use_hi : bool
        Which thresholds there are.

    never : bool
        Whether every member is evaluated on every row.
    """

    alpha: Any
    order: object
    stopping: str
    n_jobs: object
    use_lo: bool
    use_hi: bool
    never: bool

    def settled(self, n_members, rng):
        """The recipe with a random or given order resolved."""
        if not isinstance(self.order, str):
            order = np.asarray(self.order)
            if order.ndim != 1 or not np.array_equal(np.sort(order), np.arange(n_members)):
                raise ValueError(
                    f"order must be a permutation of 0, ..., {n_members - 1} (the ensemble has "
                    f"{n_members} members) or a name, got {self.order!r}."
                )
            return replace(self, order=order.astype(np.int64))
        if self.order == "random":
            return replace(self, order=rng.permutation(n_members))
        return self

    def learn(self, scores, offset, beta, costs, task=None):
        """Order, policies from cautious to hurried, and what they were fitted on.

        Parameters
        ----------
        scores : ndarray of shape (n_members, n_samples, n_outputs), dtype=float32
        offset : ndarray of shape (n_outputs,)
        beta : float
        costs : ndarray of shape (n_members,)
        task : FitTask, default=None
            Gets a step for each position of the order search.

        Returns
        -------
        order : ndarray of shape (n_members,), dtype=int64
        policies : list of ExitThresholds
        values, bad : ndarray of shape (n_members, n_samples)
            From :func:`running_values`.
        """

        def on_position():
            if task is not None:
                with task.step("position"):
                    pass

        share, weights = self._errors(scores, offset, beta)
        order = self._order(scores, offset, beta, costs, share, on_position)
        values, bad = running_values(scores, order, offset, beta)
        if self.stopping == "votes" and not self.never:
            prices = costs.sum() * VOTE_PRICES
            sides = self.use_lo, self.use_hi
            path = vote_path(scores[order], offset, beta, costs[order], prices, *sides)
            return order, _from_never(values, path), values, bad
        policies = self._policies(values, bad, costs[order], beta, weights)
        return order, policies, values, bad

    def _errors(self, scores, offset, beta):
        """Share of all rows that may be answered otherwise, and what errors count for."""
        if np.ndim(self.alpha) == 0:
            return float(self.alpha), None
        answers = full_answers(scores, offset, beta)
        share = float(self.alpha[answers].mean())
        if not share:
            return share, None
        # Errors that are allowed less often count for more; on average they count as one.
        allowed = np.maximum(self.alpha * np.bincount(answers, minlength=len(self.alpha)), 1e-3)
        weight = share * len(answers) / (allowed * np.count_nonzero(self.alpha))
        if scores.shape[2] == 1:
            # A row that leaves above wrongly is one of the first class, below of the second.
            return share, np.repeat(weight[[0, -1]][:, None], len(answers), axis=1)
        return share, np.stack([weight[answers]] * 2)

    def _order(self, scores, offset, beta, costs, share, on_position):
        if not isinstance(self.order, str):
            return self.order
        if self.order == "natural":
            return np.arange(len(scores))
        if self.stopping == "votes" and self.order == "qwyc":
            # Members that count alike: nothing but their cost tells them apart.
            return np.argsort(costs, kind="stable")
        return qwyc_order(
            scores,
            offset,
            beta,
            costs,
            max(share * SEARCH_SHARE, min(SEARCH_ERRORS / scores.shape[1], 0.05)),
            self.use_lo,
            self.use_hi,
            SEARCH_SPREAD,
            self.n_jobs,
            on_position,
        )[0]

    def _policies(self, values, bad, costs, beta, weights):
        if self.never:
            return [ExitThresholds.never(len(values))]
        # Margins of several classes say who leads, not by how much that may change.
        wrong = doubtful(values, bad, beta, SOFTNESS) if self.use_lo else bad
        prices, sides = costs.sum() * PRICES, (self.use_lo, self.use_hi)
        path = lagrangian_path(values, wrong, costs, prices, *sides, weights=weights)
        return _from_never(values, path)


def _from_never(values, path):
    """Policies from "never leave early" over wider thresholds than the first to the last."""
    path = widened(values, *path[0], WIDER) + path
    never = ExitThresholds.never(len(values))
    return [never, *(ExitThresholds(lo, hi) for lo, hi in path)]
