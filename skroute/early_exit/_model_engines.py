"""Engines whose members are models, or the exits of a net."""

from copy import copy
from functools import partial

import numpy as np

from skroute.base import note_failure
from skroute.early_exit._engine import Engine, Link, Walk, start_walk, walk_in_turn
from skroute.utils._cache import NO_CACHE
from skroute.utils._compat import _safe_indexing, check_response_method, num_samples
from skroute.utils._validation import check_probabilities

# Score of a vote for the second of two classes. Such a vote is a probability of 1, and
# the score is its distance from a probability of 0.5. A vote for the first class has
# the negative score.
HALF_VOTE = 0.5


class MemberEngine(Engine):
    """The engine whose members are models with scores.

    A member is evaluated for the undecided rows only.

    Parameters
    ----------
    members : list
        Fitted estimators, or callables of rows that return scores.

    classes : ndarray of shape (n_classes,)
        Sorted labels of the scores' columns. Members with labels of their own are put
        in this order.

    weights : ndarray of shape (n_members,), default=None
        None is 1 for each.

    columns : list of ndarray, default=None
        Features of each member. None is all features.

    methods : list of str, default=None
        Name of the method by which each member is asked, or "call". None takes the
        result of :func:`response_of`. A member asked by ``predict`` votes with its
        label.

    rounding : float, default=0.0
        As in :class:`Engine`.

    missed_vote : float, default=0.0
        With more than two classes, a vote adds 1 to the score of its class, and
        `missed_vote` to the score of each other class. Members that are not asked by
        ``predict`` do not use it.

    link : Link, default=None
        As in :class:`Engine`.

    averages_members : bool, default=False
        As in :class:`Engine`.

    Raises
    ------
    ValueError
        If a member gives scores of other classes than `classes`.
    """

    def __init__(
        self,
        members,
        classes,
        weights=None,
        *,
        columns=None,
        methods=None,
        rounding=0.0,
        missed_vote=0.0,
        link=None,
        averages_members=False,
    ):
        if methods is None:
            methods = [response_of(member) for member in members]
        if weights is None:
            weights = np.ones(len(members))
        self.members = members
        self.classes = classes
        self.columns = columns
        self.methods = methods
        self.missed_vote = missed_vote
        self._weights = weights
        self._rounding = rounding
        self._link = link
        self._averages_members = averages_members
        for t in range(self.n_members):
            self._check_classes(t)

    @property
    def n_members(self):
        return len(self.members)

    @property
    def n_outputs(self):
        return n_outputs_of(self.classes)

    @property
    def rounding(self):
        return self._rounding

    @property
    def link(self):
        return self._link

    @property
    def weights(self):
        return self._weights

    @property
    def averages_members(self):
        return self._averages_members

    def _check_classes(self, t):
        """Raise an error if the scores of member `t` cannot be added to the others."""
        labels = getattr(self.members[t], "classes_", None)
        method = self.methods[t]
        # Nothing is checked for a function, which has no `classes_`, and for a member
        # that answers with labels.
        if labels is None or method not in ("predict_proba", "decision_function"):
            return
        has_other_classes = not np.isin(labels, self.classes).all()
        # A class that the member has not seen has the probability 0. For a score there
        # is no such value.
        lacks_scores = method == "decision_function" and len(labels) < len(self.classes)
        if has_other_classes or lacks_scores:
            raise ValueError(
                f"Member {t} knows the classes {list(labels)!r}, the ensemble "
                f"{list(self.classes)!r}: its {method} cannot be added. Fit all "
                "members on the same labels."
            )

    def reordered(self, order):
        """Return the engine with its members in another order (a permutation)."""
        engine = copy(self)
        engine.members = [self.members[t] for t in order]
        engine.methods = [self.methods[t] for t in order]
        engine._weights = self._weights[order]
        if self.columns is not None:
            engine.columns = [self.columns[t] for t in order]
        return engine

    def score(self, t, X):
        """Return what a member adds to the score of rows.

        Parameters
        ----------
        t : int
            Index of the member.

        X : indexable of length n_samples

        Returns
        -------
        ndarray of shape (n_samples, n_outputs)
        """
        member = self.members[t]
        method = self.methods[t]
        n_rows = num_samples(X)
        with note_failure(f"member {t}", n_rows, method):
            rows = X
            if self.columns is not None:
                rows = np.asarray(X)[:, self.columns[t]]
            if method == "call":
                # The member is a function of rows.
                answer = np.asarray(member(rows), dtype=np.float64)
            elif method == "predict":
                # Labels are of any type, so that they are not converted to numbers.
                answer = np.asarray(member.predict(rows))
            else:
                answer = np.asarray(getattr(member, method)(rows), dtype=np.float64)
            scores = self._aligned(member, method, answer).reshape(n_rows, -1)
            if scores.shape[1] != self.n_outputs:
                raise ValueError(
                    f"The member gave {scores.shape[1]} scores for each row, expected "
                    f"{self.n_outputs}: one for two classes, else one for each class."
                )
        return scores * self._weights[t]

    def _aligned(self, member, method, answer):
        """Return a member's answer as scores, with columns in the order of the classes.

        Parameters
        ----------
        member : object
        method : str
            Name of the method by which the member was asked, or "call".

        answer : ndarray of shape (n_rows,) or (n_rows, n_columns)

        Returns
        -------
        ndarray of shape (n_rows,) or (n_rows, n_outputs)
        """
        if method == "predict":
            return self._votes(answer)
        labels = np.asarray(getattr(member, "classes_", self.classes))
        if method == "predict_proba":
            return self._centred(member, labels, answer)
        has_same_order = np.array_equal(labels, self.classes)
        if method != "decision_function" or has_same_order:
            # A function (method "call") answers in the order of the classes.
            return answer
        if self.n_outputs == 1:
            # The member's labels are in reverse order: its score is positive for the
            # first class of the ensemble.
            return -answer
        # The classes of the ensemble are the sorted labels.
        return answer[:, np.argsort(labels)]

    def _votes(self, labels):
        """Return the scores of a member that votes with labels.

        For two classes, a score is `HALF_VOTE` or its negative. For more, it is 1 for
        the class of the vote and `missed_vote` for each other class.

        Parameters
        ----------
        labels : ndarray of shape (n_rows,)
            Label that the member predicts for each row.

        Returns
        -------
        ndarray of shape (n_rows,) or (n_rows, n_outputs)
        """
        hits = labels[:, None] == self.classes[None, :]
        if self.n_outputs == 1:
            # The last column is True for votes for the second class.
            return hits[:, -1] - HALF_VOTE
        return np.where(hits, 1.0, self.missed_vote)

    def _centred(self, member, labels, proba):
        """Return the scores of a member that has probabilities.

        For two classes, a score is the distance of the second class's probability from
        even chances. For more, scores are the probabilities.

        Parameters
        ----------
        member : object
        labels : ndarray of shape (n_columns,)
            Classes of the columns, sorted, perhaps not all of the ensemble.

        proba : ndarray of shape (n_rows, n_columns)

        Returns
        -------
        ndarray of shape (n_rows,) or (n_rows, n_outputs)
        """
        if proba.ndim == 2:
            # A model that overflows gives NaN. Scores of NaN stop no row.
            finite = np.isfinite(proba).all(axis=1)
            check_probabilities(proba[finite], type(member).__name__)
        if not np.array_equal(labels, self.classes):
            # Classes that the member has not seen have the probability 0.
            aligned = np.zeros((len(proba), len(self.classes)))
            aligned[:, np.searchsorted(self.classes, labels)] = proba
            proba = aligned
        if self.n_outputs == 1:
            # 0.5 is the probability at even chances.
            return proba[:, -1] - 0.5
        return proba

    def member_scores(self, X):
        """Return what each member adds to each row: `Engine.member_scores`."""
        scores = np.empty(
            (self.n_members, num_samples(X), self.n_outputs), dtype=np.float32
        )
        for t in range(self.n_members):
            scores[t] = self.score(t, X)
        return scores

    def walk(self, X, thresholds, n_jobs=None, cache=NO_CACHE):
        """Evaluate each row until the thresholds stop it, as in :meth:`Engine.walk`."""
        n_rows = num_samples(X)

        def score_new_rows(t, rows):
            # Member `t` scores the rows whose score is not in the cache.
            cache.count_rows(f"member {t}", len(rows))
            return self.score(t, _safe_indexing(X, rows))

        def add_member(t, rows, scores):
            score_member = partial(score_new_rows, t)
            added = cache.get_or_compute_rows(t, rows, n_rows, score_member)
            return scores + added

        walk = start_walk(self, n_rows)
        walk_in_turn(add_member, thresholds=thresholds, beta=self.beta, walk=walk)
        return walk

    def timed_calls(self):
        return {t: partial(self.score, t) for t in range(self.n_members)}


def n_outputs_of(classes):
    """Return the number of scores: one for two classes, else one for each class."""
    return 1 if len(classes) <= 2 else len(classes)


def response_of(member):
    """Return the name of the method that computes the scores of a member.

    Parameters
    ----------
    member : object

    Returns
    -------
    {"decision_function", "predict_proba", "call"}
        "call" for a function of rows.
    """
    if hasattr(member, "predict_proba") or hasattr(member, "decision_function"):
        method = check_response_method(member, ["decision_function", "predict_proba"])
        return method.__name__
    if callable(member):
        return "call"
    raise TypeError(
        "A member must have decision_function or predict_proba, or be callable, got a "
        f"{type(member).__name__}."
    )


# Nets with exits ----------------------------------------------------------------------


class ExitEngine(Engine):
    """The engine whose members are the exits of a net.

    Each exit goes on from where the previous exit stopped. Its score replaces the score
    of the previous exit. An engine adds up its members. So the first member adds the
    score of the first exit, and member `k` adds the score of exit `k` less the score of
    exit `k - 1`. The partial sum is thus the score of the last exit evaluated. The full
    sum is the score of the net.

    Parameters
    ----------
    net : ExitNet
        Fitted.
    """

    def __init__(self, net):
        self.net = net

    @property
    def n_members(self):
        return self.net.n_exits_

    @property
    def n_outputs(self):
        n_classes = len(self.net.classes_)
        if n_classes == 2:
            return 1
        return n_classes

    @property
    def link(self):
        return Link("logistic" if self.n_outputs == 1 else "softmax")

    @property
    def has_fixed_order(self):
        return True

    def reordered(self, order):
        # Exits have one order: `order` is always that of the exits.
        return self

    def _score(self, run, exit, rows=None):
        """Return the scores of rows at an exit, of shape (n_rows, n_outputs).

        For two classes, the score is the logit of the second class less the logit of
        the first class. `rows` are positions in the block of rows that `run` evaluates.
        None is all rows of the block.
        """
        logits = run.logits(exit, rows)
        if self.n_outputs == 1:
            return logits[:, 1:] - logits[:, :1]
        return logits

    def _blocks(self, X):
        """Yield the slice of each block of rows, and a run of the net on them."""
        block_size = self.net.eval_batch_size
        for start in range(0, num_samples(X), block_size):
            block = slice(start, start + block_size)
            yield block, self.net.start(_safe_indexing(X, block))

    def member_scores(self, X):
        """Return what each exit adds to the score of the exit before it.

        The result has shape (n_exits, n_samples, n_outputs).
        """
        added = np.empty((self.n_members, num_samples(X), self.n_outputs))
        for block, run in self._blocks(X):
            # Nothing comes before the first exit.
            previous = 0.0
            for k in range(self.n_members):
                scores = self._score(run, k)
                added[k, block] = scores - previous
                previous = scores
        return added

    def walk(self, X, thresholds, n_jobs=None, cache=NO_CACHE):
        """Evaluate each row until the thresholds stop it, as in :meth:`Engine.walk`."""
        # `n_jobs` is not used: the net's library has its own threads. `cache` is not
        # used: hidden states are too large to be kept.
        walk = start_walk(self, num_samples(X))
        # A run evaluates one exit of a block of rows after the other, and keeps the
        # hidden states of these rows.
        for block, run in self._blocks(X):
            # The default of `run` binds the run of this block, not of a later one.
            def go_on(k, rows, scores, run=run):
                # The score of an exit replaces `scores`, those of the exit before it.
                return self._score(run, k, rows)

            # Views: the results of the block are written into the arrays of `walk`.
            block_walk = Walk(
                walk.scores[block], walk.n_evaluated[block], walk.answers[block]
            )
            walk_in_turn(
                go_on,
                thresholds=thresholds,
                beta=self.beta,
                walk=block_walk,
                release=run.release,  # drops the hidden states of rows that stop
            )
        return walk

    def timed_calls(self):
        # `stage_call(exit, previous)` goes on after the exit `previous`. If `previous`
        # is -1, it starts with the rows themselves.
        return {k: self.net.stage_call(k, k - 1) for k in range(self.n_members)}
