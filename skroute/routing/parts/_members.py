"""Members: named models that are checked, fitted out of fold, and asked about rows."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.utils import Bunch
from sklearn.utils.parallel import Parallel, delayed

from skroute.base import note_failure
from skroute.base._inspection import comes_fitted, may_take_weights
from skroute.routing.parts._estimates import cached_unless_fitted, fold_of_rows
from skroute.routing.parts._log import costs_now
from skroute.routing.parts._targets import MultiLabel, rows_of_failure
from skroute.utils._compat import (
    _safe_indexing,
    _safe_split,
    check_method_params,
    num_samples,
    will_have,
)
from skroute.utils._named import by_label
from skroute.utils._threads import workers_for
from skroute.utils._validation import (
    check_text_names,
    folds_among,
    none_if_equal,
    relative_weights,
)

# In the parameter `estimators`, this text in place of an estimator leaves the member
# out, as in scikit-learn's ensembles.
DROP = "drop"


@dataclass
class Members:
    """The fitted members of a router.

    Attributes
    ----------
    names : list of str
        The members.

    models : list of estimators
        Fitted on all rows of `fit`, or given fitted.

    target : SingleLabel, MultiLabel or Numbers
        The kind of target, which encodes answers.

    costs_of_fit : ndarray of shape (n_members,)
        Cost of each member's call in `fit`: by the price list, or measured seconds.

    has_measured_costs : bool
        True if `costs_of_fit` are measured seconds.
    """

    names: list
    models: list
    target: Any
    costs_of_fit: np.ndarray
    has_measured_costs: bool

    @property
    def is_multilabel(self):
        """True if a row has several labels."""
        return isinstance(self.target, MultiLabel)

    def ask(self, position, method, X, rows, *, counter, cache):
        """Return encoded answers of a member to some rows, by way of a cache.

        Parameters
        ----------
        position : int
            Position of the member.

        method : str
            Method of the member, as in `Target.call`.

        X : indexable of n_samples rows

        rows : ndarray of int
            Positions of the rows in X.

        counter, cache : CallCache
            `counter` counts the rows that the member is asked about. `cache` stores its
            answers, so that it is asked about no row twice.

        Returns
        -------
        ndarray of shape (n_rows,) or (n_rows, n_outputs)
        """
        name = self.names[position]

        def ask_about(new_rows):
            """Call the member on the rows that have no answer in the cache."""
            counter.count_rows(name, len(new_rows))
            return self._call(position, method, X, new_rows)

        return cache.get_or_compute_rows(
            ("answers", position, method), rows, num_samples(X), ask_about
        )

    def _call(self, position, method, X, rows):
        """Call a member on some rows of X, without a cache. Return encoded answers.

        The parameters are those of `ask`.
        """
        with rows_of_failure(rows):
            rows_of_X = X  # if the member is asked about all rows
            if len(rows) != num_samples(X):
                rows_of_X = _safe_indexing(X, rows)
            return self.target.call(
                method,
                self.names[position],
                self.models[position],
                rows_of_X,
                proven=True,  # `fit` has seen probabilities of this member
            )

    def costs_now(self, costs, estimators):
        """Return the cost of each member by the router's present parameter `costs`.

        The parameter may have changed after `fit`.

        Parameters
        ----------
        costs : mapping, array-like or "time"

        estimators : list of (str, estimator)
            The parameter of the router. A mapping may contain costs of members that are
            dropped.

        Returns
        -------
        ndarray of shape (n_members,)
        """
        if not isinstance(costs, str):
            listed = without_dropped(costs, dropped_names(estimators))
            return costs_now(listed, self.names, self.costs_of_fit, len(self.names))
        if self.has_measured_costs:
            return self.costs_of_fit
        raise ValueError(
            f"costs={costs!r} was set after fit, which measures them: fit again, or "
            "give the costs."
        )


@dataclass
class OutOfFold:
    """Out-of-fold answers of members to the rows of a fit, and the folds.

    Attributes
    ----------
    names : list of str
        The members.

    by_method : list of dict
        For each member, a dict from each method by which it was asked to its answers:
        an array of shape (n_rows,) or (n_rows, n_outputs).

    target : ndarray of shape (n_rows, ...)
        The true answers, encoded as the members' answers are.

    folds : list of (ndarray, ndarray)
        Training and test rows of each fold.

    weight : ndarray of shape (n_rows,), default=None
        Weights in units of one row (`relative_weights`). None if all rows weigh the
        same.

    given_weight : ndarray of shape (n_rows,), default=None
        The weights as the user gave them. An estimator of the user gets these.
    """

    names: list
    by_method: list
    target: np.ndarray
    folds: list
    weight: np.ndarray | None = None
    given_weight: np.ndarray | None = None

    @property
    def fold_of_row(self):
        """Number of the fold of each row, ndarray of shape (n_rows,)."""
        return fold_of_rows(self.folds, len(self.target))

    def answers_by(self, method):
        """Return the answers of each member by one method, a list of arrays."""
        return [answers[method] for answers in self.by_method]

    def weighted(self, X, given_weight):
        """Return the rows with a weight above 0, and the answers to them.

        Parameters
        ----------
        X : indexable of n_rows rows

        given_weight : ndarray of shape (n_rows,)
            Weights as the user gave them.

        Returns
        -------
        X : indexable of n_kept_rows rows

        answers : OutOfFold
            With the weights of these rows.
        """
        kept_rows = np.flatnonzero(given_weight > 0)
        weight = none_if_equal(relative_weights(given_weight)[kept_rows])
        if len(kept_rows) == len(given_weight):
            return X, replace(self, weight=weight, given_weight=given_weight)
        by_method = []
        for answers in self.by_method:
            by_method.append(
                {method: values[kept_rows] for method, values in answers.items()}
            )
        answers_to_kept = OutOfFold(
            names=self.names,
            by_method=by_method,
            target=self.target[kept_rows],
            folds=folds_among(self.folds, kept_rows, len(given_weight)),
            weight=weight,
            given_weight=given_weight[kept_rows],
        )
        return _safe_indexing(X, kept_rows), answers_to_kept


# Before any member is fitted ----------------------------------------------------------


def members_by_name(estimators, validate_names):
    """Return the members that are not dropped, by name.

    Parameters
    ----------
    estimators : list of (str, estimator)

    validate_names : callable
        scikit-learn's check of the names of an ensemble.

    Returns
    -------
    dict from str to estimator
    """
    try:
        names, _ = zip(*estimators)
    except (TypeError, ValueError):
        raise ValueError(
            "estimators must be a non-empty list of (name, estimator) tuples, got "
            f"{estimators!r}."
        ) from None
    check_text_names(names, "estimators")
    validate_names(names)
    members = {}
    for name, member in estimators:
        if member != DROP:
            members[name] = member
    if not members:
        raise ValueError(
            f"All of the estimators {list(names)!r} are dropped; keep at least one."
        )
    for name, member in members.items():
        if not hasattr(member, "fit") or not will_have(member, "predict"):
            raise ValueError(
                f"The estimator {name!r} must have fit and predict, got {member!r}. "
                'Use "drop" to leave a member out.'
            )
    return members


def dropped_names(estimators):
    """Return the names of the members that are left out, a set of str."""
    return {name for name, member in estimators if member == DROP}


def without_dropped(costs, dropped):
    """Return costs of members. Entries of dropped members are removed from a mapping.

    `dropped` is a set of names. An array of costs has no names, and stays as it is.
    """
    costs = by_label(costs)
    if not isinstance(costs, Mapping):
        return costs
    return {name: cost for name, cost in costs.items() if name not in dropped}


def weights_for_members(members, given_weight):
    """Return what each member's `fit` gets without metadata routing: sample weights.

    Parameters
    ----------
    members : dict from str to estimator

    given_weight : ndarray of shape (n_rows,)
        The only metadata that there can be.

    Returns
    -------
    dict from str to Bunch
        By member, and ``"cv"`` for the splitter, which gets nothing.
    """
    metadata = {"cv": Bunch(split={})}
    for name, member in members.items():
        if comes_fitted(member):
            metadata[name] = Bunch(fit={})
            continue
        if not may_take_weights(member):
            raise ValueError(
                f"sample_weight is for every member, but fit of {name!r} ({member!r}) "
                "does not take it. With "
                "sklearn.set_config(enable_metadata_routing=True) each member says by "
                "set_fit_request whether it does."
            )
        metadata[name] = Bunch(fit={"sample_weight": given_weight})
    return metadata


# Fit ----------------------------------------------------------------------------------


def fit_members(
    members, X, y, *, target, methods, splits, metadata, task, memory=None, n_jobs=None
):
    """Fit members on all rows, and ask each about each row out of fold.

    Parameters
    ----------
    members : dict from str to estimator

    X, y : indexable of n_rows rows

    target : SingleLabel, MultiLabel or Numbers

    methods : dict from str to list of str
        By member, the methods by which it is asked about training rows.

    splits : list of (ndarray, ndarray)
        Training and test rows of each fold.

    metadata : mapping from str to Bunch
        By member, the metadata of its `fit`.

    task : FitTask
        The fit of each member is a step of it.

    memory : str or joblib.Memory, default=None
        Cache of the results. None fits all members.

    n_jobs : int, default=None
        Number of members that are fitted in parallel. It is smaller where their threads
        would exceed the cores.

    Returns
    -------
    models : list of estimators
        Fitted on all rows.

    by_method : list of dict
        As in `OutOfFold`.
    """
    # The reports to callbacks are created before the parallel loop: a worker must not
    # change the estimator.
    steps = {name: task.step(f"fit {name}") for name in members}
    jobs = []
    for name, member in members.items():
        job = delayed(fit_member)(
            steps[name],
            name,
            member,
            X,
            y,
            target=target,
            methods=methods[name],
            splits=splits,
            fit_params=metadata[name]["fit"],
            memory=memory,
        )
        jobs.append(job)
    n_workers = workers_for(members.values(), n_jobs)
    models, by_method = zip(*Parallel(n_jobs=n_workers)(jobs))
    return list(models), list(by_method)


def fit_member(
    step, name, member, X, y, *, target, methods, splits, fit_params, memory
):
    """Fit a member on all rows, and ask it about each row out of fold.

    Parameters
    ----------
    step : context manager
        Step of the task of the router.

    name : str

    member : estimator

    X, y : indexable of n_rows rows

    target, splits
        As in `fit_members`.

    methods : list of str
        Methods by which the member is asked about training rows.

    fit_params : dict
        Parameters of its `fit`.

    memory : str, joblib.Memory or None
        Cache of results of earlier calls with the same member, rows, weights, folds and
        methods.

    Returns
    -------
    model : fitted estimator
        Fitted on all rows.

    answers : dict from str to ndarray
        By method, the answers to all rows.
    """
    fit = cached_unless_fitted(_fit_and_answer, member, memory)
    with step:
        return fit(
            name,
            member,
            X,
            y,
            target=target,
            methods=methods,
            splits=splits,
            fit_params=fit_params,
        )


def _fit_and_answer(name, member, X, y, *, target, methods, splits, fit_params):
    """Return a copy of a member, fitted on all rows, and its out-of-fold answers.

    Parameters and the dict of answers are as in `fit_member`.
    """
    model = clone(member)
    with note_failure(name, num_samples(X), "fit"):
        model.fit(X, y, **fit_params)
    if not methods:
        return model, {}
    if comes_fitted(model):
        # The model was fitted on other rows: all answers are out of sample.
        answers = {}
        for method in methods:
            answers[method] = target.call(method, name, model, X)
        return model, answers
    with note_failure(name, num_samples(X), "cross-validation"):
        answers = _answers_out_of_fold(
            name,
            member,
            X,
            y,
            target=target,
            methods=methods,
            splits=splits,
            fit_params=fit_params,
        )
    return model, answers


def _answers_out_of_fold(name, member, X, y, *, target, methods, splits, fit_params):
    """Return the out-of-fold answers of a member to all rows.

    Each row is answered by a copy of the member that was not fitted on it. Parameters
    and the dict of answers are as in `fit_member`.
    """
    answers = {}
    for train, test in splits:
        model = clone(member)
        X_train, y_train = _safe_split(model, X, y, train)
        # `train` selects the columns of X if X is a precomputed kernel.
        X_test, _ = _safe_split(model, X, y, test, train)
        model.fit(X_train, y_train, **check_method_params(X, fit_params, train))
        for method in methods:
            values = target.call(method, name, model, X_test)
            if method not in answers:
                # Number and type of the outputs are known from the first fold.
                shape = (num_samples(X), *values.shape[1:])
                answers[method] = np.zeros(shape, dtype=values.dtype)
            answers[method][test] = values
    return answers
