"""Two ways to evaluate members one after the other: the forest walk, and any model."""

from concurrent.futures import ThreadPoolExecutor
from copy import copy

import numpy as np
from joblib import effective_n_jobs
from sklearn.ensemble import VotingClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.utils import _safe_indexing

from skroute.base import note_failure
from skroute.early_exit._thresholds import leader_and_margin
from skroute.forests import find_reader
from skroute.forests._rows import rows_of
from skroute.utils._compat import check_response_method, num_samples

_BLOCK = 1024


class ForestEngine:
    """Members are trees, or the trees of one boosting iteration.

    Parameters
    ----------
    forest : Forest
    """

    # Whether the members have one order only.
    in_order = False

    def __init__(self, forest):
        self.forest = forest
        self.link = forest.link
        self.slope = forest.slope
        self.offset = forest.offset
        self.beta = forest.beta
        self.n_members = forest.n_members
        self.n_outputs = forest.n_outputs
        self.weights = np.ones(forest.n_members)

    def reordered(self, order):
        """The engine that evaluates its members in another order."""
        return ForestEngine(self.forest.taken(order))

    def scores(self, X):
        """What each member adds: ndarray (n_members, n_samples, n_outputs), float32."""
        from skroute.forests._kernels import member_scores

        X = rows_of(self.forest, X)
        out = np.empty((self.n_members, len(X), self.n_outputs), dtype=np.float32)
        member_scores(X, self.forest.trees, out)
        return out

    def walk(self, X, policy, n_jobs=None):
        """Evaluate row by row until its policy stops it.

        Returns
        -------
        score : ndarray of shape (n_samples, n_outputs)
        members : ndarray of shape (n_samples,), dtype=int64
        side : ndarray of shape (n_samples,), dtype=int8
        """
        X = rows_of(self.forest, X)
        n = len(X)
        score = np.empty((n, self.n_outputs))
        members = np.empty(n, dtype=np.int64)
        side = np.empty(n, dtype=np.int8)
        n_threads = min(effective_n_jobs(n_jobs), -(-n // _BLOCK))
        if n_threads == 1:
            self._walk(X, 0, n, policy, score, members, side)
            return score, members, side
        # More blocks than threads: early exit makes their times unequal.
        bounds = np.linspace(0, n, 4 * n_threads + 1).astype(int)
        with ThreadPoolExecutor(n_threads) as pool:
            jobs = [
                pool.submit(self._walk, X, start, stop, policy, score, members, side)
                for start, stop in zip(bounds, bounds[1:])
            ]
            for job in jobs:
                job.result()
        return score, members, side

    def _walk(self, X, start, stop, policy, *out):
        from skroute.early_exit._kernels import walk_scalar, walk_vector

        trees = self.forest.trees
        one = trees.values.shape[1] == 1 and len(trees.roots) == self.n_members
        walk = walk_scalar if self.n_outputs == 1 and one else walk_vector
        walk(X, start, stop, trees, self.offset, policy, *out)

    def member_calls(self):
        """For each member a function of rows, to time it."""
        return {t: ForestEngine(self.forest.taken([t])).scores for t in range(self.n_members)}


class MemberEngine:
    """Members are any models with scores, asked for the undecided rows only.

    Parameters
    ----------
    members : list
        Fitted estimators, or callables of rows that return scores.

    classes : ndarray of shape (n_classes,)
        Labels of the scores' columns.

    weights : ndarray of shape (n_members,)
    columns : list of ndarray, default=None
        Features of each member.
    """

    # Whether the members have one order only.
    in_order = False

    def __init__(self, members, classes, weights, columns=None, methods=None):
        self.members = members
        self.weights = weights
        self.columns = columns
        self.n_classes = len(classes)
        self.classes = classes
        self.methods = [response_of(member) for member in members] if methods is None else methods
        self.n_members = len(members)
        self.n_outputs = 1 if self.n_classes <= 2 else self.n_classes
        self.offset = np.zeros(self.n_outputs)
        self.beta = 0.0
        self.slope = 1.0
        self.link = "mean" if set(self.methods) == {"predict_proba"} else None

    def reordered(self, order):
        """The engine that evaluates its members in another order."""
        engine = copy(self)
        engine.members = [self.members[t] for t in order]
        engine.methods = [self.methods[t] for t in order]
        engine.weights = self.weights[order]
        if self.columns is not None:
            engine.columns = [self.columns[t] for t in order]
        return engine

    def score(self, t, X):
        """What member `t` adds on rows: ndarray (n_samples, n_outputs)."""
        member, method, n = self.members[t], self.methods[t], num_samples(X)
        with note_failure(f"member {t}", n, method):
            rows = X if self.columns is None else np.asarray(X)[:, self.columns[t]]
            call = member if method == "call" else getattr(member, method)
            answer = np.asarray(call(rows), dtype=np.float64)
            if method == "predict_proba":
                answer = self._aligned(member, answer)
            answer = answer.reshape(n, -1)
            if answer.shape[1] != self.n_outputs:
                raise ValueError(
                    f"The member gave {answer.shape[1]} scores for each row, expected "
                    f"{self.n_outputs}: one for two classes, else one for each class."
                )
        return answer * self.weights[t]

    def _aligned(self, member, proba):
        labels = getattr(member, "classes_", None)
        if labels is not None and len(labels) != self.n_classes:
            full = np.zeros((len(proba), self.n_classes))
            full[:, np.searchsorted(self.classes, labels)] = proba
            proba = full
        return proba[:, -1] - 0.5 if self.n_outputs == 1 else proba

    def scores(self, X):
        """What each member adds: ndarray (n_members, n_samples, n_outputs), float32."""
        out = np.empty((self.n_members, num_samples(X), self.n_outputs), dtype=np.float32)
        for t in range(self.n_members):
            out[t] = self.score(t, X)
        return out

    def walk(self, X, policy, n_jobs=None):
        """As :meth:`ForestEngine.walk`."""
        n = num_samples(X)
        score = np.zeros((n, self.n_outputs))
        members = np.zeros(n, dtype=np.int64)
        side = np.zeros(n, dtype=np.int8)
        rows = np.arange(n)
        locked = np.zeros(n, dtype=bool)
        for r in range(self.n_members):
            score[rows] += self.score(r, _safe_indexing(X, rows))
            members[rows] = r + 1
            if r == self.n_members - 1:
                break
            low, high = policy.of_rows(r, score[rows, 0])
            locked[rows] |= np.isnan(low)
            v = score[rows, 0] if self.n_outputs == 1 else leader_and_margin(score[rows])[1]
            up, down = (v > high) & ~locked[rows], (v < low) & ~locked[rows]
            side[rows[up]], side[rows[down]] = 1, -1
            rows = rows[~(up | down)]
            if len(rows) == 0:
                break
        return score, members, side

    def member_calls(self):
        """For each member a function of rows, to time it."""
        return {t: _Call(self, t) for t in range(self.n_members)}


class _Call:
    def __init__(self, engine, t):
        self.engine, self.t = engine, t

    def __call__(self, X):
        return self.engine.score(self.t, X)


def response_of(member):
    """How a member is asked: ``decision_function``, ``predict_proba`` or a plain call."""
    if hasattr(member, "predict_proba") or hasattr(member, "decision_function"):
        return check_response_method(member, ["decision_function", "predict_proba"]).__name__
    if callable(member):
        return "call"
    raise TypeError(
        f"A member must have decision_function or predict_proba, or be callable, got {member!r}."
    )


def check_ensemble(estimator):
    """Before anything is fitted: an ensemble that is known to add up its members' scores.

    Others have members as well (stacking, one against the rest), and combine them otherwise.

    Parameters
    ----------
    estimator : object
        Ensemble, fitted or not.

    Raises
    ------
    TypeError
    """
    # Here, since that module takes from this one.
    from skroute.early_exit._exits import may_exit

    soft = isinstance(estimator, VotingClassifier) and estimator.voting == "soft"
    if not (soft or may_exit(estimator) or find_reader(estimator) is not None):
        raise TypeError(
            "estimator must be an ensemble of LightGBM, XGBoost or scikit-learn (boosting, "
            "forests, bagging, AdaBoost, soft voting), a net with exits (MultiExitClassifier), or "
            "a list of members with scores; the last step of a Pipeline may be one. Got "
            f"{estimator!r}."
        )


def ensemble_engine(estimator):
    """Engine and classes of a fitted ensemble.

    Parameters
    ----------
    estimator : object
        Ensemble of a supported library.

    Returns
    -------
    engine : ForestEngine, MemberEngine or ExitEngine
    classes : ndarray or None
        None when the ensemble does not know its labels (a LightGBM booster).
    """
    from skroute.early_exit._exits import ExitEngine, has_exits

    if has_exits(estimator):
        return ExitEngine(estimator), np.asarray(estimator.classes_)
    reader = find_reader(estimator)
    if reader is not None:
        found = reader(estimator)
        if found is not None:
            return ForestEngine(found[0]), found[1]
    check_ensemble(estimator)
    members = list(estimator.estimators_)
    classes = np.asarray(estimator.classes_)
    if hasattr(estimator, "estimator_weights_"):
        return _AdaBoostEngine(estimator), classes
    weights = getattr(estimator, "weights", None)
    weights = np.ones(len(members)) if weights is None else _kept_weights(estimator, weights)
    columns = getattr(estimator, "estimators_features_", None)
    if columns is not None and all(
        np.array_equal(c, np.arange(estimator.n_features_in_)) for c in columns
    ):
        columns = None
    # Members of these ensembles answer with positions of the classes.
    return (
        MemberEngine(
            members,
            np.arange(len(classes)),
            weights,
            columns,
            ["predict_proba"] * len(members),
        ),
        classes,
    )


def _kept_weights(estimator, weights):
    kept = [w for (_, member), w in zip(estimator.estimators, weights) if member != "drop"]
    return np.asarray(kept, dtype=np.float64)


class _AdaBoostEngine(MemberEngine):
    """AdaBoost of models that are not trees: members vote with their class."""

    def __init__(self, model):
        n = len(model.estimators_)
        weights = model.estimator_weights_[:n] / model.estimator_weights_.sum()
        super().__init__(list(model.estimators_), model.classes_, weights, None, ["predict"] * n)
        self.link = "logistic" if self.n_outputs == 1 else "softmax"
        self.slope = 1.0 if self.n_outputs == 1 else 1.0 / (self.n_classes - 1)

    def score(self, t, X):
        with note_failure(f"member {t}", num_samples(X), "predict"):
            answer = np.asarray(self.members[t].predict(X))
        hit = answer[:, None] == self.classes[None, :]
        if self.n_outputs == 1:
            return np.where(hit[:, -1:], 2.0, -2.0) * self.weights[t]
        return np.where(hit, 1.0, -1.0 / (self.n_classes - 1)) * self.weights[t]


def booster_classes(engine, y):
    """Labels of a booster's classes: those of `y`, in order, where their number fits."""
    n_classes = max(2, engine.n_outputs)
    classes = np.unique(y)
    if len(classes) != n_classes:
        raise ValueError(
            f"The booster has {n_classes} classes, y has {len(classes)}: {classes!r}. Give "
            "rows of each class, or use optimize(X)."
        )
    return classes


def is_frozen(estimator):
    """Whether nothing of an ensemble is to be fitted."""
    if isinstance(estimator, (list, tuple)):
        return all(is_frozen(member) for member in estimator)
    return isinstance(estimator, FrozenEstimator) or not hasattr(estimator, "fit")


def unfrozen(estimator):
    """What a frozen estimator, or a list of them, holds."""
    if isinstance(estimator, (list, tuple)):
        return [unfrozen(member) for member in estimator]
    return estimator.estimator if isinstance(estimator, FrozenEstimator) else estimator


def is_per_row(value, n):
    """Whether a fit parameter has an entry for each of `n` rows."""
    return hasattr(value, "__len__") and not isinstance(value, (str, dict)) and len(value) == n
