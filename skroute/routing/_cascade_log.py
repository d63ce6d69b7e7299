"""Logs of cascades: what models answered, what that showed, and asking for it piece by piece."""

from collections.abc import Mapping
from copy import copy
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import _safe_indexing

from skroute.base import note_failure
from skroute.routing._targets import rows_of_failure
from skroute.utils._compat import num_samples
from skroute.utils._named import columns_of, part_of
from skroute.utils._once import once_of


class Reply(NamedTuple):
    """What a model gives back for some rows.

    Attributes
    ----------
    answers : array-like of shape (n_rows,)

    signals : array-like of shape (n_rows,) or (n_rows, n_signals), default=None
        What the answers show, as in the log that the router was fitted on.

    costs : array-like of shape (n_rows,), default=None
        What the calls have cost; None takes the mean cost of the model.
    """

    answers: Any
    signals: Any = None
    costs: Any = None


def names_of_columns(part, name):
    """The columns of a data frame as strings; None of anything else."""
    keys = columns_of(part)
    if keys is None:
        return None
    names = [str(column) for column in keys]
    if len(set(names)) < len(names):
        raise ValueError(f"{name} must not have two columns of the same name, got {names!r}.")
    return names


def as_columns(signals, name, n_rows, columns=None):
    """Signals of one model as a matrix of numbers; NaN is missing, infinite ones are allowed.

    Parameters
    ----------
    signals : array-like of shape (n_rows,) or (n_rows, n_signals), or None for none
    name : str
        The model.
    n_rows : int
    columns : list of str, default=None
        Names of the columns in `fit`, by which those of a data frame are found.

    Returns
    -------
    ndarray of shape (n_rows, n_signals), dtype=float64
    """
    own = names_of_columns(signals, f"signals of {name!r}")
    if own is not None and columns is not None and own != columns:
        if sorted(own) != sorted(columns):
            raise ValueError(f"signals of {name!r} must have the columns {columns!r}, got {own!r}.")
        keys = columns_of(signals)
        signals = part_of(signals, [keys[own.index(column)] for column in columns])
    if signals is None:
        return np.empty((n_rows, 0))
    found = None
    try:
        found = _floats(signals)
    except (TypeError, ValueError):
        pass
    if found is None:
        # Outside, so that what numpy said, which quotes the entry, is not told along.
        raise ValueError(f"signals of {name!r} must be numbers, NaN where they are missing.")
    if found.ndim not in (1, 2) or len(found) != n_rows:
        raise ValueError(
            f"signals of {name!r} must have shape ({n_rows},) or ({n_rows}, n_signals), one row "
            f"for each row of the call, got {found.shape}."
        )
    return found.reshape(n_rows, -1) if found.size else np.empty((n_rows, 0))


def _floats(values):
    """Numbers as float64; a value that a pandas extension type lacks is NaN."""
    if hasattr(values, "iloc") and hasattr(values, "to_numpy"):
        return values.to_numpy(dtype=np.float64, na_value=np.nan)
    return np.asarray(values, dtype=np.float64)


def split_signals(signals, names):
    """Signals by model, whatever they are given as.

    Parameters
    ----------
    signals : mapping from str to array-like, data frame, array-like or None
        The columns of a frame are named as the models. An array has a column for each model, or
        a row of columns: shape (n_samples, n_models) or (n_samples, n_models, n_signals).
    names : list of str

    Returns
    -------
    dict from str to array-like
        Of the models that show something.
    """
    if signals is None:
        return {}
    if (columns := names_of_columns(signals, "signals")) is not None:
        signals = {name: signals[key] for name, key in zip(columns, columns_of(signals))}
    if isinstance(signals, Mapping):
        if unknown := [key for key in signals if key not in names]:
            raise ValueError(
                f"signals has entries for {unknown!r}, which are not among the models {names!r}."
            )
        return {name: signals[name] for name in names if name in signals}
    array = np.asarray(signals)
    if array.ndim not in (2, 3) or array.shape[1] != len(names):
        raise ValueError(
            "signals must be a mapping from the name of a model to its columns, or an array of "
            f"shape (n_samples, {len(names)}) or (n_samples, {len(names)}, n_signals), got shape "
            f"{array.shape}."
        )
    return {name: array[:, k] for k, name in enumerate(names)}


class Asked:
    """Replies of models on the rows of a call: asked for when paid for, and never twice.

    Parameters
    ----------
    router : CascadeRouter
        Fitted.
    X : indexable or None
    n_rows : int
    signals : dict from str to array-like or callable
        Recorded, or ``function(rows)`` of positions in the call.
    models : mapping from str to callable, default=None
        ``model(rows)`` of rows of X gives a `Reply`, or a tuple of two or three.
    costs : ndarray of shape (n_rows, n_models)
    """

    def __init__(self, router, X, n_rows, signals, models, costs):
        self.router, self.X, self.signals, self.models = router, X, signals, models
        self.costs = costs
        self.asked = np.zeros((n_rows, len(router.model_names_)), dtype=bool)
        self._known = self.asked.copy()
        self.answers = None if models is None else np.full(n_rows, None, dtype=object)
        self._replies = [None if models is None else {} for _ in router.model_names_]
        self._scores = [np.zeros((n_rows, scale.n_scores)) for scale in router._reader.of_model]

    def anew(self):
        """The same replies, none of them paid for: what the next budget of a walk begins with."""
        other = copy(self)
        other.asked = np.zeros_like(self.asked)
        return other

    def scores(self, model, rows):
        """Normal scores of what a model's answers to some rows show."""
        self.asked[rows, model] = True
        new = rows[~self._known[rows, model]]
        if len(new):
            scale = self.router._reader.of_model[model]
            columns = self._call(model, new)
            if columns.shape[1] != len(scale.knots):
                raise ValueError(
                    f"signals of {self.router.model_names_[model]!r} must have the "
                    f"{len(scale.knots)} columns that fit saw, got {columns.shape[1]}."
                )
            self._scores[model][new] = scale.transform(columns)
            self._known[new, model] = True
        return self._scores[model][rows]

    def _call(self, model, new):
        name = self.router.model_names_[model]
        if self.models is not None or callable(self.signals.get(name)):
            once_of(self.router).count(name, len(new))
        if self.models is None:
            known = self.signals.get(name)
            if callable(known):
                with note_failure(name, len(new), "signals"), rows_of_failure(new):
                    known = known(new)
            elif known is not None:
                known = _safe_indexing(known, new)
            return as_columns(known, name, len(new), self.router._signal_names[model])
        with note_failure(name, len(new), "the call"), rows_of_failure(new):
            part = self.models[name](_safe_indexing(self.X, new))
            reply = _as_reply(part, name, len(new))
        if reply.costs is not None:
            self.costs[new, model] = reply.costs
        self._replies[model].update(zip(new.tolist(), reply.answers))
        return as_columns(reply.signals, name, len(new), self.router._signal_names[model])

    def answer(self, model, rows):
        """The recorded answers of a model that has been asked."""
        found = np.empty(len(rows), dtype=object)
        found[:] = [self._replies[model][row] for row in rows.tolist()]
        return found


def _as_reply(part, name, n_rows):
    """A reply from what a callable has returned."""
    if not isinstance(part, tuple) or not 1 <= len(part) <= 3:
        raise TypeError(
            f"The model {name!r} must return a Reply or a tuple (answers, signals) or (answers, "
            f"signals, costs), got {type(part).__name__}."
        )
    reply = Reply(*part)
    if num_samples(reply.answers) != n_rows:
        raise ValueError(
            f"The model {name!r} must return one answer for each of {n_rows} rows, got "
            f"{num_samples(reply.answers)}."
        )
    if reply.costs is None:
        return reply
    costs = np.broadcast_to(np.asarray(reply.costs, dtype=np.float64), (n_rows,))
    if not (np.isfinite(costs).all() and (costs >= 0).all()):
        raise ValueError(f"Costs of {name!r} must be finite numbers that are not negative.")
    return reply._replace(costs=costs)


def check_models(models, names):
    """Refuse models of a call that cannot all be asked, before any is."""
    if not isinstance(models, Mapping) or sorted(map(str, models)) != sorted(names):
        raise ValueError(
            f"models must be a mapping with one callable for each of {names!r}, got "
            f"{list(models) if isinstance(models, Mapping) else type(models).__name__!r}."
        )
    for name in names:
        if not callable(models[name]):
            raise TypeError(f"The model {name!r} must be a callable, got {type(models[name])!r}.")


class Path(NamedTuple):
    """How some rows went through a cascade.

    Attributes
    ----------
    route : ndarray of shape (n_rows,), dtype=int64
        Model that answers; the number of models stands for handing over.
    asked : Asked
    quality : ndarray of shape (n_rows,)
        Estimated quality of the answer given, in [0, 1].
    """

    route: NDArray[np.int64]
    asked: Asked
    quality: NDArray[np.float64]
