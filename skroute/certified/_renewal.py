"""Evidence of a certified router: how it is read, weighed, and renewed."""

import warnings
from copy import copy, deepcopy
from inspect import signature

import numpy as np
from sklearn.utils import (
    _safe_indexing,
    check_consistent_length,
    check_random_state,
    column_or_1d,
)
from sklearn.utils.validation import check_is_fitted

from skroute.base import check_budget, check_rows
from skroute.certified._candidates import (
    bills_of,
    context_of_rows,
    detached,
    groups_of_rows,
    is_billed,
    is_frozen,
    is_told,
    limits_if_excluded,
    route_context,
    takes_bills,
    unfrozen,
)
from skroute.certified._evidence import Told, check_groups, check_known, collect, is_missing
from skroute.certified._losses import Target, column_names, measure_of
from skroute.certified._selection import UNBILLED, Asked, Selection
from skroute.certified._tables import replanned, repriced, table_of
from skroute.metrics._off_policy_sums import count_fitted, warn_of_fitted
from skroute.utils._compat import num_samples, raise_for_params, routing_enabled
from skroute.utils._once import calls_of, once_of, walking
from skroute.utils._tensors import on_host

UNWEIGHTED = (
    "sample_weight: a certificate counts every evidence row once. For a promise about a weighted "
    "population draw the evidence by its weights, with kept = rng.random(n_rows) < weight / "
    "weight.max(), and give the rows that are kept."
)


def _not_taken(router, unknown):
    """Words about arguments that a call of a certified router does not take."""
    if unknown == ["sample_weight"]:
        return UNWEIGHTED
    return (
        f"{type(router).__name__} does not take {unknown[0]!r} in a call, which takes "
        f"{', '.join(['X', *router._call_context])}."
    )


# What evidence is kept as.
_OF_EVIDENCE = ("_selection", "_tables", "_left", "_limited")


class CertifiedRenewal:
    """Mixin of :class:`CertifiedRouter`."""

    def recertify(self, X, y, groups=None, **context):
        """Certify anew on fresh evidence rows, without a fit.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            Rows that nothing was learned from; all of them are evidence.

        y : array-like of shape (n_samples,)
            Their targets, as in `fit`; a frame of qualities is read by name.

        groups : array-like of shape (n_samples,), default=None
            Their groups, where the constructor's `groups` is an array.

        **context : keyword arguments
            What the wrapped estimators are told about these rows, as in a call; and `costs`, as
            in `fit`.

        Returns
        -------
        self
            With another operating point and certificate; unchanged after an error.
        """
        check_is_fitted(self)
        given = self.groups if isinstance(self.groups, str) else groups
        if self.groups is not None and given is None:
            raise ValueError("groups must be given for the new rows, as they were in fit.")
        X, target, groups = self._checked(X, y, given, reset=False)
        y = target.values
        if y.ndim != self._y_ndim:
            raise ValueError(
                f"y must have as many axes as in fit, {self._y_ndim}, got shape {y.shape}."
            )
        check_known(y, getattr(self.estimators_[0], "classes_", None), self.loss)
        measure_of(self._names, self.estimators_, y, self.loss, self.loss_range)
        for model in self.estimators_:
            target.of_path(model)
        if groups is not None:
            check_groups(groups, self._group_values)
        costs, context = self._split_costs(context, self._asked()[1])
        said = self._said(context)
        order = check_random_state(self.random_state).permutation(num_samples(X))
        points = self._selection.evidence
        decides = points.single < 0
        budgets = [points.budget[decides & (points.path == k)] for k in range(len(self._names))]
        self._warn_of_seen(X, order)
        before = {name: vars(self)[name] for name in _OF_EVIDENCE}
        try:
            self._weigh(X, target, groups, order, budgets, said, costs)
            self._selection.point(check_budget(self.budget))
        except Exception:
            vars(self).update(before)
            raise
        return self

    def _remember(self, once):
        """The candidates for a walk over the same rows."""
        vars(self)["estimators_"] = own = list(map(walking, self.estimators_))
        for model in own:
            once_of(model).calls = once.calls

    def _said(self, context):
        """What each candidate is told about the rows of a call, by its name."""
        if unknown := sorted(set(context) - set(self._call_context)):
            raise TypeError(_not_taken(self, unknown))
        return route_context(self, *self._asked(), context)

    def _route_fit(self, params):
        """Metadata for each candidate's `fit`, what each is told about evidence rows, and bills."""
        names, models = self._candidates()
        if routing_enabled():
            routed = self._route_metadata(params)
            fit_params = {name: routed[name]["fit"] for name in names} if params else {}
            said = {name: dict(routed[name]["predict"]) for name in names}
            told = any("costs" in of_calls for of_calls in said.values())
            costs = None if told or not any(map(takes_bills, models)) else params.get("costs")
            return fit_params or dict.fromkeys(names, {}), said, costs
        costs, context = self._split_costs(params, models)
        if not all(map(is_frozen, models)):
            learned = {key: value for key, value in params.items() if key == "costs"}
            if "costs" in params and not all(_learns_costs(model) for model in models):
                learned = {}
            raise_for_params(
                {key: value for key, value in params.items() if key not in learned}, self, "fit"
            )
            fit_params = dict.fromkeys(names, learned)
        else:
            fit_params = dict.fromkeys(names, {})
            if not set(context) <= set(self._call_context):
                raise_for_params(context, self, "fit")
        return fit_params, route_context(self, names, models, context), costs

    def _split_costs(self, context, models):
        """Costs that no call is told of, where there are some, and the rest of the context."""
        if "costs" not in context or any(map(is_told, models)):
            return None, context
        if not any(map(takes_bills, models)):
            return None, context
        return context["costs"], {k: value for k, value in context.items() if k != "costs"}

    def _check_bills(self, models, costs):
        """Refuse, before anything is asked, a budget of costs that are not known."""
        budget = check_budget(self.budget)
        fitted = [unfrozen(model) for model in models if is_frozen(model)]
        for model in fitted:
            check_is_fitted(model)
        if costs is None and np.isfinite(budget) and any(map(is_billed, fitted)):
            raise ValueError(UNBILLED.format(budget=budget))

    def _warn_of_seen(self, X, rows):
        """Warn where evidence rows are those that a router was fitted on, as far as it knows."""
        X_rows = _safe_indexing(X, rows)
        warn_of_fitted(max(count_fitted(path, X_rows) for path in self.estimators_), len(rows))

    def _check_max_loss(self, measure):
        """Refuse what every router keeps, which is no promise."""
        if self.max_loss is not None and self.max_loss > measure.range:
            raise ValueError(
                f"max_loss={self.max_loss!r} promises nothing: losses of a row differ by at most "
                f"{measure.range:.6g} ({measure.unit}). Give a share of that, for example "
                f"{0.01 * measure.range:.3g}."
            )

    def _checked(self, X, y, groups, *, reset):
        """Rows, their target and their groups."""
        if y is None:
            raise ValueError(
                "CertifiedRouter requires y to be passed, but the target y is None: a promise "
                "rests on what the right answers are."
            )
        X = check_rows(self, X, reset=reset)
        check_consistent_length(X, y)
        values = np.asarray(on_host(y))
        columns = column_names(y)
        if values.ndim == 2 and values.shape[1] == 1:
            values = column_or_1d(values, warn=True)
        if np.ma.is_masked(y) or (self.loss is None and is_missing(values)):
            raise ValueError("y must have no missing values: they are evidence of nothing.")
        given = values if columns is None else y
        return X, Target(given, values, columns), groups_of_rows(groups, values)

    def _weigh(self, X, target, groups, rows, budgets, said, costs):
        """Call everything on the evidence rows, in the order of `rows`, and bound it."""
        paths = list(map(walking, self.estimators_))
        measure = measure_of(self._names, paths, target.values, self.loss, self.loss_range)
        bills = [None if costs is None else bills_of(costs, num_samples(X), p) for p in paths]
        told = [
            Told(
                target.of_path(path)[rows],
                context_of_rows(X, said[name], rows),
                None if bill is None else bill[rows],
            )
            for name, path, bill in zip(self._names, paths, bills)
        ]
        X_rows = _safe_indexing(X, rows)
        evidence, found = collect(
            paths,
            budgets,
            X_rows,
            told,
            reference=self.reference,
            measure=measure,
            group=None if groups is None else groups[rows],
            ends=self.max_loss is not None,
        )
        largest = float(evidence.costs.max())
        if self.max_cost is not None and largest > self.max_cost:
            raise ValueError(
                f"max_cost={self.max_cost!r} is below what an evidence row has cost, "
                f"{largest:.17g}."
            )
        every = np.abs(evidence.losses[:, :, None] - evidence.references[:, None, :])
        if not np.isfinite(every).all() or every.max() > measure.range * (1 + 1e-9):
            raise ValueError(
                f"Losses of a row differ by {every.max():.6g}, more than "
                f"loss_range={measure.range!r}, which must be what no row can exceed."
            )
        asked = Asked(
            self.max_loss,
            measure.range,
            self.max_cost,
            float(self.confidence),
            self.fallback,
            measure.unit,
            self.loss_range is not None,
            costs is not None,
            costs is None and any(map(is_billed, paths)),
            calls_of(self._names, paths),
        )
        choices = [list(path.choices_) for path in paths]
        tables = [table_of(p, X_rows, of, found, measure) for p, of in zip(paths, told)]
        self._selection = Selection(evidence, self._names, asked, choices)
        self._tables, self._left = tables, {}
        limits = ("exclude", "allowed")
        self._limited = {name for name in limits if any(name in of.context for of in told)}

    def _selection_of(self, context):
        """The selection for calls that may exclude choices; what it is not for is said."""
        exclude = context.get("exclude")
        exclude = None if exclude is None or isinstance(exclude, str) else frozenset(exclude)
        limits = limits_if_excluded(self.estimators_, exclude)
        limits |= {"allowed"} if context.get("allowed") is not None else set()
        if limits <= self._limited:
            return self._selection
        if limits == {"exclude"}:
            left = self._without(exclude)
            if left is not None:
                return left
        warnings.warn(
            f"{' and '.join(sorted(limits))}: the evidence says nothing of such calls, so that "
            "nothing is promised about them, whatever certificate_ says of others.",
            UserWarning,
            stacklevel=4,
        )
        return self._selection

    def _without(self, exclude):
        """The selection for what is left of the choices; None where it is not known."""
        known = {name for path in self.estimators_ for name in path.choices_}
        if not exclude < known:
            # The estimator refuses it, in its words.
            return self._selection
        if exclude not in self._left:
            evidence = replanned(self._selection.evidence, self.estimators_, self._tables, exclude)
            made = None
            if evidence is not None:
                asked = self._selection.asked._replace(fallback="safe")
                choices = [list(path.choices_) for path in self.estimators_]
                made = Selection(evidence, self._names, asked, choices)
            self._left[exclude] = made
        return self._left[exclude]

    def certificate_for(self, *, exclude=(), budget=None):
        """What is promised about calls that exclude choices, such as models that are down.

        Parameters
        ----------
        exclude : list of str, default=()
            Names of choices, as in a call.

        budget : float, default=None
            Mean cost per sample of such calls; None takes the constructor's.

        Returns
        -------
        Certificate
            The loss is measured against the reference of before, also where that is excluded.
            The operating point is derived anew from the numbers of the evidence rows, without a
            call. It holds for choices that were not excluded for what the evidence says.

        Raises
        ------
        ValueError
            Where `exclude` names what is no choice; where the evidence says nothing of what is
            left, since not every choice was asked for its rows; or for a `budget` that cannot
            be promised.
        """
        check_is_fitted(self)
        if isinstance(exclude, str):
            raise ValueError(f"exclude must be a list of names, got {exclude!r}.")
        exclude = frozenset(exclude)
        known = sorted({name for path in self.estimators_ for name in path.choices_})
        if unknown := sorted(exclude - set(known)):
            raise ValueError(f"exclude names {unknown!r}, which are not among {known!r}.")
        if exclude.issuperset(known):
            raise ValueError(f"exclude={sorted(exclude)!r} leaves no choice.")
        selection = self._without(exclude) if exclude else self._selection
        if selection is None:
            raise ValueError(
                f"exclude={sorted(exclude)!r}: the evidence says nothing of what is left. It does "
                "for routers that decide by estimates and a price, where every choice was asked "
                'for the evidence rows: qualities of each choice, or reference="best".'
            )
        return selection.certificate(self._effective_budget(budget))

    def set_costs(self, costs):
        """Go on at another price list, with the operating point derived anew for it.

        Parameters
        ----------
        costs : mapping from str to float or array-like of shape (n_choices,)
            The new prices, as `costs` of the wrapped estimators' constructors.

        Returns
        -------
        self
            With another certificate, from the same evidence rows, without a call; unchanged
            after an error. The promise holds for prices that were not chosen for what the
            evidence says. Costs that were logged are scaled, each choice's as its price.

        Raises
        ------
        ValueError
            Where the evidence does not say what every choice would have answered, where costs
            are no price list, or where nothing can be promised at these prices.
        """
        check_is_fitted(self)
        if any(table is None or table.rows.planned is not None for table in self._tables):
            raise ValueError(
                "set_costs is for routers that decide by estimates and a price list, where every "
                "choice was asked for the evidence rows. Change the prices of the estimator that "
                "is wrapped, and fit again."
            )
        paths, tables = [], []
        for path, table in zip(self.estimators_, self._tables):
            own = copy(path)
            vars(own)["costs"] = deepcopy(costs)
            own = detached(own)
            tables.append(repriced(table, np.asarray(path.costs_), np.asarray(own.costs_)))
            paths.append(own)
        evidence = replanned(self._selection.evidence, paths, tables, frozenset(), anew=True)
        choices = [list(path.choices_) for path in paths]
        selection = Selection(evidence, self._names, self._selection.asked, choices)
        selection.point(check_budget(self.budget))
        self.estimators_, self._tables, self._left = paths, tables, {}
        self._selection = selection
        return self


def _learns_costs(model):
    """Whether `fit` of a candidate takes costs."""
    return "costs" in signature(unfrozen(model).fit).parameters
