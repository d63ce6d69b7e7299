"""Choices that come and go after `fit`."""

import copy
import warnings
from collections.abc import Mapping

import numpy as np
from sklearn.utils import Bunch
from sklearn.utils.validation import check_is_fitted

from skroute.base import check_affordable, check_costs, check_rows
from skroute.quality._logged import read_values
from skroute.routing._draws import has_own_keys, row_keys
from skroute.routing._newcomers import (
    Newcomer,
    base_of,
    first_outputs,
    fit_newcomer,
    gains_on_scored_rows,
    lowest_gain,
    with_newcomer,
)
from skroute.routing._priced import offers_std
from skroute.routing._values import predict_matrix
from skroute.utils._compat import Real, num_samples
from skroute.utils._named import by_label, columns_of

# Scores that a newcomer needs, and that it needs where a regressor is to be left parts of them.
_LEAST, _LEAST_LEARNED = 2, 10
# The confidence of `lowest_gain` where no `min_evidence` was asked for.
_CONFIDENCE = 0.95


def _warn_of_another_unit(name, q, table):
    """Say so when scores lie further from the log's than the log is wide."""
    low, high = float(np.nanmin(table)), float(np.nanmax(table))
    if q.max() > high + (high - low) or q.min() < low - (high - low):
        warnings.warn(
            f"q of {name!r} goes from {q.min():.6g} to {q.max():.6g}, and the quality of the other "
            f"choices from {low:.6g} to {high:.6g}. Scores in another unit, such as per cent, make "
            "the new choice the best or the worst of all.",
            UserWarning,
            stacklevel=3,
        )


class ChangingChoicesMixin:
    """Mixin for a router whose choices change after `fit`.

    What is added and dropped is fitted state: a new `fit`, and a clone, know nothing of it.
    """

    @property
    def newcomers_(self):
        """What is known of the choices added after `fit`, a dict from name to `Newcomer`."""
        check_is_fitted(self)
        return {name: found.record for name, found in self._newcomers.items()}

    def add_choice(self, name, X, q, *, cost, estimator=None, min_evidence=None):
        """Take a new choice in, with whatever rows there are on which its quality is known.

        No other estimate is fitted again. The new choice is taken for one more draw from the
        population that the others came from: what it is expected to be is the mean of the others
        at first, and its scores then say which of them it goes along with, and at which level
        (ridge regression on their estimates, in closed form). It is chosen by what is expected
        of it less 1.25 standard errors, so that a choice of which little is known does little
        harm, and the price of every budget is solved for anew.

        Called again under the same name, further rows join those that it has.

        Parameters
        ----------
        name : str
            The choice, which `fit` did not know.

        X : {array-like, sparse matrix, dataframe} of shape (n_rows, n_features)
            Requests of the kind that `fit` saw. Rows that were among those of `fit` are known
            again.

        q : array-like of shape (n_rows,)
            Quality of the new choice on them, in the unit of `fit`; NaN where it is not known.

        cost : float
            Its cost per call, in the unit of `costs`. ``set_params(costs=...)`` with a mapping
            that names it changes it later.

        estimator : regressor of one output, default=None
            Reads the estimates of the other choices, of shape (n_rows, n_others), and predicts the
            quality of this one. None takes the shrunk regression. The standard errors of
            another are the jackknife's, over ten parts of the rows.

        min_evidence : float, default=None
            Above 0 and below 1: keeps the choice out of ``choices_`` until its scores promise with
            this probability that it does no harm at the `budget` of the router, where the
            estimates of the others are right: until the lower bound of its mean gain
            (:func:`~skroute.guarantees.mean_lower_bound`) is above 0. Raising it needs more rows.
            It is tested whenever rows are added; over many calls it promises less. None takes
            the choice in at once.

        Returns
        -------
        self
            With what is known of the choice in `newcomers_`.

        Raises
        ------
        ValueError
            For a name that `fit` knew or that was dropped, for a router whose costs differ from
            row to row or that has an `abstain_cost`, and for rows and scores that are none.
            Nothing is changed then.
        """
        check_is_fitted(self)
        self._check_none_is_handed_over()
        self._policy()
        self._check_newcomer(name, min_evidence)
        (cost,) = check_costs({name: cost}, [name], name="cost").tolist()
        if isinstance(self.costs, Mapping) and self.costs.get(name, cost) != cost:
            raise ValueError(
                f"costs has {self.costs[name]!r} for {name!r}, but cost={cost!r}: "
                "set_params(costs=...) changes the price of a choice that costs names."
            )
        known = self._newcomers.get(name)
        scored = self._scored(name, X, q, known, _LEAST if estimator is None else _LEAST_LEARNED)
        priced, there = self._priced, name in self.choices_
        table = priced.quality if priced.known is None else priced.known.table
        _warn_of_another_unit(name, scored.q, table)
        scored.low = float(min(np.nanmin(table), scored.q.min()))
        scored.high = float(max(np.nanmax(table), scored.q.max()))
        first = first_outputs(priced)
        noise = float(np.mean(priced.sigma[~priced.added] ** 2))

        def learn(outputs, q):
            # Parts of ten rows are too few for a regressor: they are judged by the shrunk one.
            own = estimator if len(q) >= _LEAST_LEARNED else None
            return fit_newcomer(outputs, q, first, noise, scored.low, scored.high, own)

        model, error = learn(scored.outputs, scored.q)
        at = self.choices_.index(name) if there else len(self.choices_)
        column = int(priced.kept[at]) if there else None
        std_too = offers_std(base_of(priced)[0])
        other = copy.copy(self)
        other._priced, std = with_newcomer(priced, model, cost, error, column, std_too)
        if not there:
            other._names, other._later = [*self._names, name], [*self._later, name]
            other.columns_ = np.append(self.columns_, len(self._names))
            other.choices_ = [*self.choices_, name]
            other._frame_columns = other._names if self._named else None
        record = Newcomer(name, cost, len(scored.q), float(scored.q.mean()), *[0.0] * 5, True)
        other._newcomers = self._newcomers | {name: Bunch(record=record, **scored)}
        policy, budget = other._policy(), self._effective_budget(None)
        gains, bounds, chosen = gains_on_scored_rows(
            policy, at, scored, budget, lambda outputs, q: learn(outputs, q)[0]
        )
        lowest = lowest_gain(gains, bounds, min_evidence or _CONFIDENCE)
        record = record._replace(
            expected_quality=float(np.average(policy.quality[:, at], weights=policy.weight)),
            standard_error=float(np.sqrt(np.mean(std**2))),
            gain=float(gains.mean()),
            lowest_gain=lowest,
            chosen=chosen,
            adopted=there or min_evidence is None or lowest > 0,
        )
        other._newcomers[name].record = record
        if record.adopted:
            vars(self).update(vars(other))
        else:
            self._newcomers = other._newcomers
        return self

    def drop_choice(self, name):
        """Do without a choice for good; the rest is priced anew, no estimate is fitted.

        Tables of quality and mappings of costs that are given later may leave it out; where they
        have it, it is not read. Costs per row keep its column. For a choice that comes back
        there is ``exclude``.

        Parameters
        ----------
        name : str
            One of ``choices_``, or a new one that waits for evidence, whose rows are then
            forgotten.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            For a name that is none, the last choice of `fit`, or where `budget` does not pay for
            the choices that are left. Nothing is changed then.
        """
        check_is_fitted(self)
        self._check_none_is_handed_over()
        newcomers = {key: found for key, found in self._newcomers.items() if key != name}
        if name in self._newcomers and name not in self.choices_:
            self._newcomers = newcomers
            return self
        if name not in self.choices_:
            raise ValueError(f"name must be one of {self.choices_!r}, got {name!r}.")
        kept = np.array([k for k, one in enumerate(self.choices_) if one != name], dtype=np.int64)
        if not len(kept) or self._priced.added[kept].all():
            raise ValueError(
                f"{name!r} is the last choice that fit knew, from whose estimates those of later "
                "ones come: fit again."
            )
        other = copy.copy(self)
        other._priced = self._priced.restricted(kept)
        other.columns_ = self.columns_[kept]
        other.choices_ = [self.choices_[k] for k in kept]
        other._dropped, other._newcomers = [*self._dropped, name], newcomers
        advice = f"It is the least without {name!r}."
        check_affordable(self._effective_budget(None), other._policy().least, advice=advice)
        vars(self).update(vars(other))
        return self

    def _fixed_costs(self):
        """The constructor's cost of each column of Q, and those of later choices."""
        costs, known = by_label(self.costs), self._newcomers
        later = {name: known[name].record.cost if name in known else 0.0 for name in self._later}
        if isinstance(costs, Mapping):
            costs = {str(name): cost for name, cost in costs.items()}
            costs = dict.fromkeys(self._dropped, 0.0) | later | costs
        elif later and not isinstance(costs, str) and len(costs) == len(self._names) - len(later):
            costs = [*costs, *later.values()]
        return check_costs(costs, self._names)

    def _check_none_is_handed_over(self):
        if self.abstain_quality_ is not None:
            raise ValueError(
                "The choices of a router with an abstain_cost change by a new fit alone: give "
                "what is not known of a new one as NaN, or use exclude for one that is gone."
            )

    def _columns_in(self, y):
        """Names of the columns of a table of quality, and where the choices are among them."""
        left = [name for name in self._names if name not in self._dropped]
        columns = columns_of(y)
        own = None if columns is None else list(map(str, columns))
        shape = np.shape(y)
        narrow = len(shape) > 1 and shape[1] == len(left) if own is None else set(own) == set(left)
        if narrow:
            return left, np.array([left.index(name) for name in self.choices_ if name in left])
        return self._names, self.columns_

    def _check_newcomer(self, name, min_evidence):
        if self._priced.per_row:
            raise ValueError(
                "This router decides by costs that differ from row to row, and of a new choice "
                "those of the rows of fit are not known: fit it again with the new choice, whose "
                "quality may be NaN where it is not known."
            )
        if not isinstance(name, str) or (name in self._names and name not in self._newcomers):
            raise ValueError(
                f"name must be a new one, a string, beside {self._names!r}, got {name!r}. Scores "
                "of a choice that fit knew need a new fit."
            )
        is_number = isinstance(min_evidence, Real) and not isinstance(min_evidence, bool)
        if min_evidence is not None and not (is_number and 0 < min_evidence < 1):
            raise ValueError(
                f"min_evidence must be a probability above 0 and below 1, or None, got "
                f"{min_evidence!r}."
            )

    def _scored(self, name, X, q, known, least):
        """Estimates of the choices of `fit` for a newcomer's rows, none of which fitted them."""
        X = check_rows(self, X, reset=False)
        q = read_values(q, "q", num_samples(X), allow_nan=True)
        priced = self._priced
        base, _, n_base = base_of(priced)
        outputs = predict_matrix(base, X, n_base, "quality_estimator")
        if has_own_keys(X):
            order = np.argsort(self._row_keys, kind="stable")
            ordered, keys = self._row_keys[order], row_keys(X)
            found = np.minimum(np.searchsorted(ordered, keys), len(order) - 1)
            same, rows = ordered[found] == keys, order[found]
            if priced.repeats is not None:
                # A frequent row is decided by the final estimator, here too.
                same &= priced.repeats.code[rows] < 0
            first = first_outputs(priced)
            at = np.flatnonzero(~priced.added)
            outputs[np.ix_(same, first)] = priced.estimate[np.ix_(rows[same], at)]
        rows = ~np.isnan(q)
        outputs, q = outputs[rows], q[rows]
        if known is not None:
            outputs, q = np.concatenate([known.outputs, outputs]), np.concatenate([known.q, q])
        if len(q) < least:
            raise ValueError(
                f"q must have {least} known scores of {name!r} at least, got {len(q)}."
            )
        return Bunch(outputs=outputs, q=q)
