"""Members: named models that are checked, fitted out of fold, and asked for the rows of each."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.utils import Bunch
from sklearn.utils.parallel import Parallel, delayed

from skroute.base import note_failure
from skroute.base._inspection import comes_fitted, may_take_weights
from skroute.routing.parts._estimates import fold_of_rows
from skroute.routing.parts._log import costs_now
from skroute.routing.parts._targets import rows_of_failure
from skroute.utils._compat import (
    _safe_indexing,
    _safe_split,
    check_method_params,
    num_samples,
    will_have,
)
from skroute.utils._named import by_label
from skroute.utils._validation import (
    check_text_names,
    folds_among,
    none_if_equal,
    relative_weights,
)

# A member of this value is left out.
DROP = "drop"


@dataclass
class Members:
    """The fitted members of a router.

    Attributes
    ----------
    names : list of str

    models : list of estimators
        Fitted on all rows of `fit`, or given fitted.

    target : SingleLabel, MultiLabel or Numbers
        What members answer with, and how answers are encoded.

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

    def ask(self, position, method, X, rows, *, counter, cache):
        """Return what a member answers to some rows, encoded as in `target`.

        Parameters
        ----------
        position : int
            Position of the member.

        method : str
            How the member is asked, see `SingleLabel.call`.

        X : indexable of n_samples rows

        rows : ndarray of int
            Positions of the rows in X.

        counter, cache : CallCache
            Count the rows that the member is asked about, and keep its answers, so that it is asked
            about no row twice.

        Returns
        -------
        ndarray of shape (n_rows,) or (n_rows, n_outputs)
        """
        name = self.names[position]

        def ask_about(new_rows):
            counter.count_rows(name, len(new_rows))
            with rows_of_failure(new_rows):
                some = (
                    X
                    if len(new_rows) == num_samples(X)
                    else _safe_indexing(X, new_rows)
                )
                return self.target.call(
                    method, name, self.models[position], some, proven=True
                )

        return cache.get_or_compute_rows(
            ("answers", position, method), rows, num_samples(X), ask_about
        )

    def costs_by(self, costs, dropped):
        """Return the cost of each member by a parameter `costs` that may be newer than `fit`.

        Parameters
        ----------
        costs : mapping, array-like or "time"

        dropped : set of str
            Names of members that were dropped. A mapping may have costs of theirs.

        Returns
        -------
        ndarray of shape (n_members,)
        """
        if not isinstance(costs, str):
            listed = without_dropped(costs, dropped)
            return costs_now(listed, self.names, self.costs_of_fit, len(self.names))
        if self.has_measured_costs:
            return self.costs_of_fit
        raise ValueError(
            f"costs={costs!r} was set after fit, which measures them: fit again, or give the costs."
        )


@dataclass
class OutOfFold:
    """What members answered to the rows of a fit, out of fold, and how the rows are divided.

    Attributes
    ----------
    names : list of str
        The members.

    by_method : list of dict
        For each member, by the method that was asked, an array with one entry or row of scores
        for each row of the fit.

    target : ndarray of shape (n_rows, ...)
        The true answers, encoded as the members' answers are.

    folds : list of (ndarray, ndarray)
        Training and test rows of each fold.

    weight : ndarray of shape (n_rows,), default=None
        Weights in units of one row (`relative_weights`). None if all rows weigh the same.

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
    def part(self):
        """Number of the fold that each row is in."""
        return fold_of_rows(self.folds, len(self.target))

    @property
    def responses(self):
        """Answers of each member to the first method that it was asked by, or None."""
        return [next(iter(answers.values()), None) for answers in self.by_method]

    def to(self, method):
        """Return what each member answered to one method."""
        return [answers[method] for answers in self.by_method]

    def weighted(self, X, given_weight):
        """Return the rows that have weight, and these answers to them with the weights.

        Nothing is learned from rows of weight 0.
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
            self.names,
            by_method,
            self.target[kept_rows],
            folds_among(self.folds, kept_rows, len(given_weight)),
            weight=weight,
            given_weight=given_weight[kept_rows],
        )
        return _safe_indexing(X, kept_rows), answers_to_kept


# Before any member is fitted ---------------------------------------------------------------


def members_by_name(estimators, validate_names):
    """Return the members that are not dropped, by name.

    `validate_names` is scikit-learn's check of the names of an ensemble.
    """
    try:
        names, _ = zip(*estimators)
    except (TypeError, ValueError):
        raise ValueError(
            f"estimators must be a non-empty list of (name, estimator) tuples, got {estimators!r}."
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


def without_dropped(costs, dropped):
    """Return costs without those of dropped members, where costs have names."""
    costs = by_label(costs)
    if not isinstance(costs, Mapping):
        return costs
    return {name: cost for name, cost in costs.items() if name not in dropped}


def weights_for_members(members, given_weight):
    """Return the metadata of each member's `fit` where metadata routing is off: its weights."""
    metadata = {"cv": Bunch(split={})}
    for name, member in members.items():
        if comes_fitted(member):
            metadata[name] = Bunch(fit={})
            continue
        if not may_take_weights(member):
            raise ValueError(
                f"sample_weight is for every member, but fit of {name!r} ({member!r}) does "
                "not take it. With sklearn.set_config(enable_metadata_routing=True) each "
                "member says by set_fit_request whether it does."
            )
        metadata[name] = Bunch(fit={"sample_weight": given_weight})
    return metadata


# Fit ---------------------------------------------------------------------------------------


def fit_members(members, X, y, *, target, methods, splits, metadata, task, n_jobs):
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
        Each member is a step of it.

    n_jobs : int or None

    Returns
    -------
    models : list of estimators
        Fitted on all rows.

    by_method : list of dict
        As in `OutOfFold`.
    """
    # Steps are made before the parallel loop: a worker must not change the estimator.
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
        )
        jobs.append(job)
    models, by_method = zip(*Parallel(n_jobs=n_jobs)(jobs))
    return list(models), list(by_method)


def fit_member(step, name, member, X, y, *, target, methods, splits, fit_params):
    """Return a member fitted on all rows, and what it answers to each row out of fold.

    The answers are a dict from each of the methods to an array.
    """
    with step:
        fitted = clone(member)
        with note_failure(name, num_samples(X), "fit"):
            fitted.fit(X, y, **fit_params)
        if not methods:
            return fitted, {}
        if comes_fitted(fitted):
            return fitted, {
                method: target.call(method, name, fitted, X) for method in methods
            }
        answers = {}
        with note_failure(name, num_samples(X), "cross-validation"):
            for train, test in splits:
                fold = clone(member)
                fold_params = check_method_params(X, fit_params, train)
                fold.fit(*_safe_split(fold, X, y, train), **fold_params)
                test_rows, _ = _safe_split(fold, X, y, test, train)
                for method in methods:
                    values = target.call(method, name, fold, test_rows)
                    if method not in answers:
                        shape = (num_samples(X), *values.shape[1:])
                        answers[method] = np.zeros(shape, dtype=values.dtype)
                    answers[method][test] = values
        return fitted, answers
