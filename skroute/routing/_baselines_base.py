"""The baselines of OCCAM's paper, for labels and for numbers: one member, random, oracle."""

import numpy as np
from sklearn.utils import check_random_state

from skroute.assignment import assignment_path, choose_at_price, decide, solve_assignment
from skroute.base import Plan, affords, check_affordable
from skroute.metrics._objectives import means_of
from skroute.routing._abstaining import (
    ABSTAIN_COST,
    ABSTAIN_NAME,
    Beside,
    quality_of_handing,
    with_handed,
)
from skroute.routing._base import BaseRouter
from skroute.routing._draws import row_uniforms
from skroute.routing._qualities import EXCHANGE_RATE, QualityMixin
from skroute.routing._ratio_policy import dinkelbach
from skroute.utils._compat import StrOptions, num_samples


class BaselineMixin(QualityMixin):
    """What the baselines that know qualities share; stands before `BaseRouter`."""

    _parameter_constraints: dict = {
        **BaseRouter._parameter_constraints,
        "exchange_rate": EXCHANGE_RATE,
        "abstain_cost": ABSTAIN_COST,
        "cv": ["cv_object"],
    }

    def _learn(self, X, target, answers):
        objective = self._objective().bound(target, answers.weight)
        table, self.abstain_quality_ = objective.table(target, answers.responses), None
        self.mean_quality_ = means_of(table, answers.weight)
        if self.abstain_cost is not None:
            self.abstain_quality_ = quality_of_handing(table, self.abstain_cost)
            self.mean_quality_ = np.append(self.mean_quality_, self.abstain_quality_)
        self.choices_ = answers.names + [ABSTAIN_NAME] * (self.abstain_cost is not None)

    def _least_cost(self, costs, names):
        return 0.0 if self.abstain_cost is not None else float(costs.min())

    def _paid(self):
        """The cost of each choice."""
        return with_handed(self.costs_, self.abstain_quality_)

    def _rate(self, budget):
        return self._rates()[budget == np.inf]


class BaseSingleBest(BaselineMixin, BaseRouter):
    """One member for all rows."""

    def _plan(self, X, budget):
        check_affordable(budget, self._least())
        costs, n = self._paid(), num_samples(X)
        net = self.mean_quality_ - self._rate(budget) * costs
        choice = int(np.where(affords(budget, costs), net, -np.inf).argmax())
        return Plan(np.full(n, choice, dtype=np.int64), np.full(n, costs[choice]))


class BaseRandom(QualityMixin, BaseRouter):
    """Random values into the knapsack."""

    _acts_at_once = ("budget", "policy")
    _parameter_constraints: dict = {
        **BaseRouter._parameter_constraints,
        "policy": [StrOptions({"online", "batch"})],
        "random_state": ["random_state"],
    }

    # Rows count alike: random values know no weights.
    _weighs = False
    # Rows on which the price of random values is learned; the values are synthetic.
    _N_PRICE_ROWS = 20_000

    def _asks(self):
        return None

    def _learn(self, X, target, answers):
        rng = check_random_state(self.random_state)
        self._draw = int(rng.randint(2**31))
        values = rng.uniform(size=(self._N_PRICE_ROWS, len(answers.names)))
        self.price_path_ = assignment_path(values, self.costs_)
        self.choices_ = answers.names

    def _plan(self, X, budget):
        check_affordable(budget, self._least())
        values = row_uniforms(X, len(self.choices_), self._draw)
        route = decide(values, self.costs_, budget, self.price_path_, policy=self.policy)
        return Plan(route, self.costs_[route])


class BaseOracle(BaselineMixin, BaseRouter):
    """True qualities into the knapsack."""

    _call_context = ("y_true",)

    def _plan(self, X, budget, y_true=None):
        n, rate, costs = num_samples(X), self._rate(budget), self._paid()
        if y_true is None:
            check_affordable(budget, self._least())
            values = (self.mean_quality_ - rate * costs)[np.newaxis]
            price = assignment_path(values, costs).price(budget)
            choice = choose_at_price(values, costs, price)[0]
            return Plan(np.full(n, choice, dtype=np.int64), np.full(n, costs[choice]))

        def choose(values):
            return solve_assignment(values - rate * costs, costs, budget).choices

        table = self._true_quality(X, y_true)
        if not self._objective().ratio:
            if self.abstain_quality_ is not None:
                table = Beside(None, self.abstain_quality_).table(table)
            route = choose(table)
        elif rate:
            raise ValueError(
                f"exchange_rate={self.exchange_rate!r} of an oracle is for qualities that are "
                "means over rows; of a ratio of sums it knows the best within a budget."
            )
        else:
            route, _ = dinkelbach(table, choose)
        return Plan(route, costs[route])

    def _true_quality(self, X, y_true):
        target = self._encoded(y_true, "y_true")
        asks, rows = self._asks(), np.arange(num_samples(X))
        members = range(len(self.estimators_))
        answers = [self._answers_of_member(X, at, asks, rows) for at in members]
        return self._objective().bound(target).table(target, answers)

    def member_quality(self, X, y_true):
        """True quality of every member on every row; calls all of them.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            The rows.

        y_true : array-like of shape (n_samples,)
            True answers; a label that `fit` has not seen is an error.

        Returns
        -------
        ndarray of shape (n_samples, n_members)

        Raises
        ------
        ValueError
            Where the quality is a ratio of sums, which a row alone has none of.
        """
        if self._objective().ratio:
            raise ValueError(
                "A quality that is a ratio of sums has no number for a row and a member; "
                "row_quality has one for the answers that were given."
            )
        return self._true_quality(X, y_true)
