"""Members that are models asked one after another, and nets with exits among them."""

from copy import copy
from functools import partial

import numpy as np

from skroute.base import note_failure
from skroute.early_exit._algorithms import leader_and_margin
from skroute.early_exit._answers import Link
from skroute.utils._cache import NO_CACHE
from skroute.utils._compat import _safe_indexing, check_response_method, num_samples
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
        How each member is asked; None asks what it has. Of ``predict`` it votes with its label.

    rounding : float, default=0.0
        See :mod:`skroute.early_exit._engines`.

    miss : float, default=0.0
        With several classes, what a vote is for each class that it is not for.

    Raises
    ------
    ValueError
        If a member gives scores of other classes than `classes`.
    """

    forest, in_order = None, False
    # Set for ensembles that average their members.
    votes = False

    def __init__(
        self, members, classes, weights=None, columns=None, methods=None, rounding=0.0, miss=0.0
    ):
        self.members = members
        self.weights = np.ones(len(members)) if weights is None else weights
        self.columns = columns
        self.classes = classes
        self.methods = [response_of(member) for member in members] if methods is None else methods
        self.n_members = len(members)
        self.n_outputs = 1 if len(classes) <= 2 else len(classes)
        self.offset = np.zeros(self.n_outputs)
        self.beta = 0.0
        self.rounding, self.miss = rounding, miss
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
            kind = None if method == "predict" else np.float64
            answer = self._aligned(member, method, np.asarray(call(rows), dtype=kind))
            answer = answer.reshape(n, -1)
            if answer.shape[1] != self.n_outputs:
                raise ValueError(
                    f"The member gave {answer.shape[1]} scores for each row, expected "
                    f"{self.n_outputs}: one for two classes, else one for each class."
                )
        return answer * self.weights[t]

    def _aligned(self, member, method, answer):
        """Scores with the columns of the ensemble, whatever the order of the member's labels."""
        if method == "predict":
            hit = answer[:, None] == self.classes[None, :]
            return hit[:, -1] - 0.5 if self.n_outputs == 1 else np.where(hit, 1.0, self.miss)
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

    def scores(self, X):
        """What each member adds: ndarray (n_members, n_samples, n_outputs), float32."""
        out = np.empty((self.n_members, num_samples(X), self.n_outputs), dtype=np.float32)
        for t in range(self.n_members):
            out[t] = self.score(t, X)
        return out

    def walk(self, X, thresholds, n_jobs=None, once=NO_CACHE):
        """Evaluate row by row until the thresholds stop it."""

        def ask(t, rows):
            once.count_rows(f"member {t}", len(rows))
            return self.score(t, _safe_indexing(X, rows))

        def add(t, rows, so_far):
            return so_far + once.get_or_compute_rows(t, rows, n, partial(ask, t))

        n = num_samples(X)
        walked = _new_walk(self, n)
        _walk_members(add, thresholds, self.beta, *walked)
        return walked

    def member_calls(self):
        """For each member a function of rows, to time it."""
        return {t: partial(self.score, t) for t in range(self.n_members)}


def _new_walk(engine, n):
    """Scores, numbers of members and answers of rows that no member was asked about."""
    score = np.tile(engine.offset, (n, 1))
    return score, np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int64)


def _walk_members(evaluate, thresholds, beta, score, members, answer, release=None):
    """Ask member after member about the rows that have not left, into the arrays given.

    ``evaluate(r, rows, so_far)`` returns the scores of rows after member `r`; rows that leave are
    released.
    """
    rows, last = np.arange(len(score)), len(thresholds[0]) - 1
    for r in range(last + 1):
        now = score[rows] = evaluate(r, rows, score[rows])
        members[rows] = r + 1
        if now.shape[1] > 1:
            answer[rows], value = leader_and_margin(now)
        else:
            value = now[:, 0]
            answer[rows] = value > (thresholds[1][r] if r < last else beta)
        if r < last:
            stays = ~((value > thresholds[1][r]) | (value < thresholds[0][r]))
            if release is not None:
                release(rows[~stays])
            rows = rows[stays]
            if len(rows) == 0:
                break


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


# Nets with exits ---------------------------------------------------------------------

# Rows whose hidden states are held at the same time, where the net does not say.
_BLOCK = 1024


def has_exits(estimator):
    """Whether an estimator is evaluated exit by exit, as MultiExitClassifier is.

    It has ``n_exits_``, ``start(X)``, which returns a run with ``logits(exit, rows)`` and
    ``release(rows)``, for rows that will not go on, and ``stage_call(exit, previous)``. Its
    ``eval_batch_size``, if it has one, is how many rows are evaluated together.
    """
    return hasattr(estimator, "n_exits_") and may_exit(estimator)


def may_exit(estimator):
    """Whether an estimator has exits once it is fitted."""
    return hasattr(estimator, "start") and hasattr(estimator, "stage_call")


class ExitEngine:
    """Members are the exits of a net, each going on from where the one before it stopped.

    The score of an exit replaces that of the exit before. As the sum that QWYC stops, the
    first member adds the scores of the first exit, and member `k` the difference between
    the scores of exits `k` and `k - 1`; so the partial sum is the score of the last exit
    evaluated, and the full sum that of the net. There is one order.

    Parameters
    ----------
    net : estimator with exits
        See :func:`has_exits`.
    """

    forest, in_order, votes = None, True, False

    def __init__(self, net):
        self.net = net
        n_classes = len(net.classes_)
        self.n_members = net.n_exits_
        self.n_outputs = 1 if n_classes == 2 else n_classes
        self.offset = np.zeros(self.n_outputs)
        self.beta = 0.0
        # The net's own answers are those of its scores, in the same order.
        self.rounding = 0.0
        self.link = Link("logistic" if self.n_outputs == 1 else "softmax")
        self.weights = np.ones(self.n_members)

    def taken(self, order):
        """The engine itself: its members have one order."""
        return self

    def _score(self, run, exit, rows=None):
        logits = run.logits(exit, rows)
        return logits[:, 1:] - logits[:, :1] if self.n_outputs == 1 else logits

    def _blocks(self, X):
        """Where a block of rows is, and a run through the net with them."""
        size = getattr(self.net, "eval_batch_size", _BLOCK)
        for start in range(0, num_samples(X), size):
            here = slice(start, start + size)
            yield here, self.net.start(_safe_indexing(X, here))

    def scores(self, X):
        """What each exit adds: ndarray (n_exits, n_samples, n_outputs), float64."""
        out = np.empty((self.n_members, num_samples(X), self.n_outputs))
        for here, run in self._blocks(X):
            before = 0.0
            for k in range(self.n_members):
                score = self._score(run, k)
                out[k, here] = score - before
                before = score
        return out

    def walk(self, X, thresholds, n_jobs=None, once=NO_CACHE):
        """Evaluate row by row; the threads are those of the net's library."""
        walked = _new_walk(self, num_samples(X))
        for here, run in self._blocks(X):

            def go_on(k, rows, _, run=run):
                return self._score(run, k, rows)

            parts = [part[here] for part in walked]
            _walk_members(go_on, thresholds, self.beta, *parts, run.release)
        return walked

    def member_calls(self):
        """For each exit a function of rows that goes on to it from the one before."""
        return {k: self.net.stage_call(k, k - 1) for k in range(self.n_members)}
