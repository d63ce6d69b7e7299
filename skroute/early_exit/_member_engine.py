"""Members that are models of any kind, asked for the undecided rows only."""

from copy import copy
from functools import partial

import numpy as np

from skroute.base import note_failure
from skroute.early_exit._link import Link
from skroute.early_exit._thresholds import leader_and_margin
from skroute.utils._compat import _safe_indexing, check_response_method, num_samples
from skroute.utils._once import EVERY
from skroute.utils._validation import check_probabilities


class MemberEngine:
    """Members are any models with scores, asked for the undecided rows only.

    Parameters
    ----------
    members : list
        Fitted estimators, or callables of rows that return scores.

    classes : ndarray of shape (n_classes,)
        Sorted labels of the scores' columns. Members with labels of their own are put in
        this order.

    weights : ndarray of shape (n_members,), default=None
    columns : list of ndarray, default=None
        Features of each member.

    methods : list of str, default=None
        How each member is asked; None asks what it has.

    rounding : float, default=0.0
        See :class:`Engine`.

    Raises
    ------
    ValueError
        If a member gives scores of other classes than `classes`.
    """

    in_order = False
    # Set for ensembles that average their members.
    votes = False
    # What members said of the rows of a walk.
    once = EVERY

    def __init__(self, members, classes, weights=None, columns=None, methods=None, rounding=0.0):
        self.members = members
        self.weights = np.ones(len(members)) if weights is None else weights
        self.columns = columns
        self.classes = classes
        self.methods = [response_of(member) for member in members] if methods is None else methods
        self.n_members = len(members)
        self.n_outputs = 1 if len(classes) <= 2 else len(classes)
        self.offset = np.zeros(self.n_outputs)
        self.beta = 0.0
        self.rounding = rounding
        self.link = Link("mean") if set(self.methods) == {"predict_proba"} else None
        for t in range(self.n_members):
            self._check_classes(t)

    def _check_classes(self, t):
        labels = getattr(self.members[t], "classes_", None)
        if labels is None or self.methods[t] not in ("predict_proba", "decision_function"):
            return
        unknown = not np.isin(labels, self.classes).all()
        if unknown or (self.methods[t] == "decision_function" and len(labels) < len(self.classes)):
            raise ValueError(
                f"Member {t} knows the classes {list(labels)!r}, the ensemble "
                f"{list(self.classes)!r}: its {self.methods[t]} cannot be added. Fit all members "
                "on the same labels."
            )

    def remembering(self, once):
        """The engine for a walk over the same rows."""
        engine = copy(self)
        engine.once = once
        return engine

    def taken(self, order):
        """The engine that evaluates these members in this order."""
        engine = copy(self)
        engine.members = [self.members[t] for t in order]
        engine.methods = [self.methods[t] for t in order]
        engine.weights = self.weights[order]
        engine.n_members = len(engine.members)
        if self.columns is not None:
            engine.columns = [self.columns[t] for t in order]
        return engine

    def score(self, t, X):
        """What member `t` adds on rows: ndarray (n_samples, n_outputs)."""
        member, method, n = self.members[t], self.methods[t], num_samples(X)
        with note_failure(f"member {t}", n, method):
            rows = X if self.columns is None else np.asarray(X)[:, self.columns[t]]
            call = member if method == "call" else getattr(member, method)
            answer = self._aligned(member, method, np.asarray(call(rows), dtype=np.float64))
            answer = answer.reshape(n, -1)
            if answer.shape[1] != self.n_outputs:
                raise ValueError(
                    f"The member gave {answer.shape[1]} scores for each row, expected "
                    f"{self.n_outputs}: one for two classes, else one for each class."
                )
        return answer * self.weights[t]

    def _aligned(self, member, method, answer):
        """Scores with the columns of the ensemble, whatever the order of the member's labels."""
        labels = np.asarray(getattr(member, "classes_", self.classes))
        if method == "predict_proba":
            if answer.ndim == 2:
                # Where a model overflows it may give no numbers, which decide nothing.
                finite = np.isfinite(answer).all(axis=1)
                check_probabilities(answer[finite], type(member).__name__)
            if not np.array_equal(labels, self.classes):
                full = np.zeros((len(answer), len(self.classes)))
                full[:, np.searchsorted(self.classes, labels)] = answer
                answer = full
            return answer[:, -1] - 0.5 if self.n_outputs == 1 else answer
        if method == "decision_function" and not np.array_equal(labels, self.classes):
            order = np.argsort(labels)
            return -answer if self.n_outputs == 1 else answer[:, order]
        return answer

    def _asked(self, t, X, rows):
        self.once.count(f"member {t}", len(rows))
        return self.score(t, _safe_indexing(X, rows))

    def scores(self, X):
        """What each member adds: ndarray (n_members, n_samples, n_outputs), float32."""
        out = np.empty((self.n_members, num_samples(X), self.n_outputs), dtype=np.float32)
        for t in range(self.n_members):
            out[t] = self.score(t, X)
        return out

    def walk(self, X, thresholds, n_jobs=None):
        """Evaluate row by row until the thresholds stop it; see :class:`Engine`."""
        n = num_samples(X)
        score = np.tile(self.offset, (n, 1))
        members = np.zeros(n, dtype=np.int64)
        side = np.zeros(n, dtype=np.int8)
        rows = np.arange(n)
        for r in range(self.n_members):
            score[rows] += self.once.rows(r, rows, n, partial(self._asked, r, X))
            members[rows] = r + 1
            if r == self.n_members - 1:
                break
            side[rows] = sides(thresholds, r, score[rows])
            rows = rows[side[rows] == 0]
            if len(rows) == 0:
                break
        return score, members, side

    def member_calls(self):
        """For each member a function of rows, to time it."""
        return {t: _Call(self, t) for t in range(self.n_members)}

    def plain(self, X):
        """The rows themselves."""
        return X


def sides(thresholds, r, score):
    """Where rows leave at a position: 1 above, -1 below, 0 not.

    Parameters
    ----------
    thresholds : ExitThresholds
    r : int
    score : ndarray of shape (n_samples, n_outputs)
        Partial sums.

    Returns
    -------
    ndarray of shape (n_samples,), dtype=int8
    """
    value = score[:, 0] if score.shape[1] == 1 else leader_and_margin(score)[1]
    above, below = value > thresholds.hi[r], value < thresholds.lo[r]
    return above.astype(np.int8) - below.astype(np.int8)


class _Call:
    def __init__(self, engine, t):
        self.engine, self.t = engine, t

    def __call__(self, X):
        return self.engine.score(self.t, X)


class AdaBoostEngine(MemberEngine):
    """AdaBoost of models that are not trees: members vote with their class."""

    def __init__(self, model, rounding):
        n = len(model.estimators_)
        weights = model.estimator_weights_[:n] / model.estimator_weights_.sum()
        methods = ["predict"] * n
        super().__init__(model.estimators_, model.classes_, weights, None, methods, rounding)
        n_classes = len(self.classes)
        self.link = Link("logistic") if n_classes <= 2 else Link("softmax", 1.0 / (n_classes - 1))

    def score(self, t, X):
        """What member `t` adds on rows: ndarray (n_samples, n_outputs)."""
        with note_failure(f"member {t}", num_samples(X), "predict"):
            answer = np.asarray(self.members[t].predict(X))
        hit = answer[:, None] == self.classes[None, :]
        if self.n_outputs == 1:
            return np.where(hit[:, -1:], 2.0, -2.0) * self.weights[t]
        return np.where(hit, 1.0, -1.0 / (len(self.classes) - 1)) * self.weights[t]


class VoteEngine(MemberEngine):
    """Members vote with their label: the majority, and the first class where votes are equal.

    Parameters
    ----------
    members : list
        Fitted classifiers that answer with positions of the classes.

    n_classes : int
    weights, columns, rounding
        As for :class:`MemberEngine`.

    averaged : bool
        Whether shares of votes are probabilities.
    """

    votes = True

    def __init__(self, members, n_classes, weights, columns, rounding, averaged):
        methods = ["predict"] * len(members)
        super().__init__(members, np.arange(n_classes), weights, columns, methods, rounding)
        self.link = Link("mean") if averaged else None

    def score(self, t, X):
        """What member `t` adds on rows: ndarray (n_samples, n_outputs)."""
        with note_failure(f"member {t}", num_samples(X), "predict"):
            rows = X if self.columns is None else np.asarray(X)[:, self.columns[t]]
            answer = np.asarray(self.members[t].predict(rows))
        hit = answer[:, None] == self.classes[None, :]
        if self.n_outputs == 1:
            return (hit[:, -1:] - 0.5) * self.weights[t]
        return hit * self.weights[t]


def response_of(member):
    """How a member is asked: ``decision_function``, ``predict_proba`` or a plain call."""
    if hasattr(member, "predict_proba") or hasattr(member, "decision_function"):
        return check_response_method(member, ["decision_function", "predict_proba"]).__name__
    if callable(member):
        return "call"
    raise TypeError(
        "A member must have decision_function or predict_proba, or be callable, got a "
        f"{type(member).__name__}."
    )
