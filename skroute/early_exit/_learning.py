"""Learning the order and the thresholds of QWYC, and choosing among the thresholds.

A row is bad at a position of the order if leaving there above the upper threshold gives
a wrong answer. Its value there is what the thresholds are compared with.
"""

from collections.abc import Mapping
from numbers import Real
from typing import NamedTuple

import numpy as np

from skroute.base import note_failure
from skroute.early_exit._algorithms import (
    checked,
    doubtful,
    full_answers,
    is_wrong,
    lagrangian_path,
    leaving,
    never,
    qwyc_order,
    running_values,
    widened,
)
from skroute.early_exit._calibration import (
    Tradeoff,
    allowed_wrong,
    fewest_rows,
    hold_out,
    last_accepted,
)
from skroute.early_exit._votes import vote_path
from skroute.guarantees._means import share_upper_bound
from skroute.utils._compat import num_samples
from skroute.utils._typing import NDArray
from skroute.utils._validation import warn

# A warning is given if more than this share of the rows with one answer of the full
# ensemble may get another answer. The documentation of the parameter `alpha` names it.
MOST_OF_AN_ANSWER = 0.1

# If `stopping` is "auto", its two values "thresholds" and "votes" are compared on this
# share of the rows to learn from. The documentation of the parameter names it.
COMPARED_ON = 1 / 3
# With fewer rows than this, `stopping` "auto" is "thresholds" without a comparison,
# which would be noise.
FEWEST_TO_COMPARE = 100

# Number of prices of a wrong answer. Thresholds are learned for each, before
# calibration chooses among them. With 40 prices, thresholds of neighbouring prices
# differ by about a tenth in disagreement.
N_POLICIES = 40
# Prices of a wrong answer for thresholds on partial sums, in units of the cost of the
# full ensemble. At the first price hardly a row is wrong. At the last one, an error is
# worth the evaluation of half of the ensemble.
PRICES = np.geomspace(256.0, 0.5, N_POLICIES)
# Prices of a wrong answer for numbers of votes, in units of the cost of the full
# ensemble. Errors of votes are expected numbers of rows, which become far smaller than
# one row. Higher prices than for thresholds thus make a difference.
VOTE_PRICES = np.geomspace(65536.0, 0.5, N_POLICIES)
# The policy of the first price may be wrong too often on other rows. More cautious
# policies come before it. Their thresholds are moved outwards by these distances, in
# standard deviations of what the remaining members add.
WIDER = np.geomspace(3.0, 0.02, 16)

# `SEARCH_ERRORS`, `SEARCH_SHARE`, `SEARCH_SPREAD` and `SOFTNESS` were chosen on splits
# of the training rows of Adult, Covertype and Letter.

# Least number of rows that the order search may answer otherwise than the full
# ensemble. A count of 80 rows is exact to about a tenth, 1 / sqrt(80).
SEARCH_ERRORS = 80
# The order search may make this share of the errors that `alpha` allows. It need not
# make all of them: thresholds are learned again once the order is known.
SEARCH_SHARE = 1 / 3
# The order search compares members by the number of rows decided, averaged over the
# allowed number of errors and 10 numbers on either side of it. At one number alone, a
# single row decides between members.
SEARCH_SPREAD = 10
# Doubt about the full ensemble's answer to a row while thresholds are learned: the
# parameter `softness` of :func:`doubtful`, in standard deviations of the full scores. A
# threshold then depends on all rows near a tie. About other rows there is no doubt.
SOFTNESS = 0.01
# Largest share of the rows that the search may answer wrongly to reach `SEARCH_ERRORS`.
# Without this limit, nearly all of few rows might be wrong.
MOST_SEARCH_ERRORS = 0.05
# Least number of allowed errors by which the weight of an answer is divided, so that
# the weight is finite if `alpha` allows none.
LEAST_ALLOWED = 1e-3


class ExitOptions(NamedTuple):
    """The parameters of QWYC that learning depends on.

    Attributes
    ----------
    alpha : float or ndarray of shape (n_answers,)
        Share of all rows, or of the rows of each answer, that may be answered
        otherwise.

    order : ndarray of shape (n_members,), dtype=int64, or "qwyc"
        A permutation, or the search of Algorithm 1.

    stopping : {"auto", "thresholds", "votes"}
        How rows stop.

    use_lo, use_hi : bool
        If False, there is no lower (upper) threshold: no row leaves below (above).

    never_leave : bool
        True if no row may stop early, so that no thresholds are learned.

    n_jobs : int or None
        Threads of the order search.
    """

    alpha: float | NDArray[np.float64]
    order: NDArray[np.int64] | str = "qwyc"
    stopping: str = "thresholds"
    use_lo: bool = True
    use_hi: bool = True
    never_leave: bool = False
    n_jobs: int | None = None


class ScoredRows(NamedTuple):
    """The scores of the members on rows, and how a sum of scores becomes an answer.

    Attributes
    ----------
    scores : ndarray of shape (n_members, n_samples, n_outputs)
        What each member adds.

    offset : ndarray of shape (n_outputs,)
        Score before any member.

    beta : float
        Full score of one output above which the answer is the second class.
    """

    scores: NDArray
    offset: NDArray[np.float64]
    beta: float

    @property
    def n_rows(self):
        """Number of rows."""
        return self.scores.shape[1]

    @property
    def n_answers(self):
        """Number of answers that are possible."""
        return max(2, self.scores.shape[2])

    def taken(self, rows):
        """Return the `ScoredRows` of the rows at the positions `rows`."""
        return self._replace(scores=self.scores[:, rows])

    def answers(self):
        """Return the full ensemble's answers to the rows, by :func:`full_answers`."""
        return full_answers(self.scores, self.offset, self.beta)

    def values_and_bad(self, order):
        """Return sums or margins, and where leaving at the upper threshold is wrong.

        They are `values` and `bad` of :func:`running_values`.
        """
        return running_values(self.scores, order, self.offset, self.beta)


class Learned(NamedTuple):
    """An order and candidate thresholds, learned on rows.

    Attributes
    ----------
    order : ndarray of shape (n_members,), dtype=int64
        Members in order of evaluation.

    policies : list of (lo, hi)
        Thresholds by position, from cautious to hurried.

    values, bad : ndarray of shape (n_members, n_samples)
        From :func:`running_values`, of the rows.
    """

    order: NDArray[np.int64]
    policies: list
    values: NDArray[np.float32]
    bad: NDArray[np.bool_]


class Promise(NamedTuple):
    """The bound that the chosen thresholds must meet on held-out rows.

    Attributes
    ----------
    confidence : float
        Confidence of the upper bounds.

    guarantee : bool
        True if the upper bound must meet `alpha`, False if the expectation must.
    """

    confidence: float
    guarantee: bool


class Calibrated(NamedTuple):
    """Cost and disagreement of sets of thresholds on rows, and the set in use.

    Attributes
    ----------
    tradeoff : Tradeoff
        Cost and disagreement of all sets.

    bounds : ndarray of shape (1,) or (n_answers,)
        Upper bounds of the disagreement, of all rows or of the rows of each answer, as
        `alpha` is. NaN if no rows were held out.

    staged_disagreement : ndarray of shape (n_members,)
        Share of rows that left with another answer, up to each position.

    wrong : ndarray of shape (n_answers,), dtype=int64
        Number of rows with each answer of the full ensemble that got another answer.

    n_rows : ndarray of shape (n_answers,), dtype=int64
        Number of rows with each answer of the full ensemble.
    """

    tradeoff: Tradeoff
    bounds: NDArray[np.float64]
    staged_disagreement: NDArray[np.float64]
    wrong: NDArray[np.int64]
    n_rows: NDArray[np.int64]


class Exits(NamedTuple):
    """The order of evaluation, and the thresholds at which rows leave an ensemble.

    Attributes
    ----------
    order : ndarray of shape (n_members,), dtype=int64
        Members in order of evaluation.

    stopping : {"thresholds", "votes"}
        How rows stop. If the option was "auto", the better of the two.

    calibrated : Calibrated
        The thresholds, and their cost and disagreement.
    """

    order: NDArray[np.int64]
    stopping: str
    calibrated: Calibrated


# Parameters ---------------------------------------------------------------------------


def order_of(order, engine, rng):
    """Return the parameter `order` as a permutation, or "qwyc" for the order search.

    Parameters
    ----------
    order : str or array-like of shape (n_members,)
        "qwyc", "natural", "random", or a permutation of the members.

    engine : Engine
    rng : RandomState
        Draws a random order.

    Returns
    -------
    ndarray of shape (n_members,), dtype=int64, or "qwyc"

    Raises
    ------
    ValueError
        If `order` is no permutation, or the engine does not allow it.
    """
    n_members = engine.n_members
    natural = np.arange(n_members)
    is_name = isinstance(order, str)
    # In the following checks, a name stands for the natural order.
    permutation = natural if is_name else np.asarray(order)
    if permutation.ndim != 1 or not np.array_equal(np.sort(permutation), natural):
        raise ValueError(
            f"order must be a permutation of 0, ..., {n_members - 1} (the ensemble has "
            f"{n_members} members) or a name, got {order!r}."
        )
    if engine.has_fixed_order:
        # Only the natural order is allowed, which "qwyc" stands for as well.
        is_random = is_name and order == "random"
        if is_random or not np.array_equal(permutation, natural):
            raise ValueError(
                f"order={order!r} is not possible: each exit goes on from the one "
                "before it, so that the exits of a net have one order, which "
                '"qwyc" and "natural" are.'
            )
    if engine.has_fixed_order or not is_name or order == "natural":
        return permutation.astype(np.int64)
    if order == "random":
        return rng.permutation(n_members)
    return order


def shares_of(alpha, classes):
    """Return the parameter `alpha` as a number, or as an array of class shares.

    Parameters
    ----------
    alpha : float or mapping from label to float
        Share of all rows, or of the rows of each class, that may change.

    classes : ndarray of shape (n_classes,)

    Returns
    -------
    float or ndarray of shape (n_answers,), dtype=float64
        An array if `alpha` is a mapping. An ensemble of one class has two answers,
        which have the same share.

    Raises
    ------
    ValueError
        If a class has no share, a share has no class, or a share is not from 0 to 1.
    """
    if not isinstance(alpha, Mapping):
        return float(alpha)
    labels = classes.tolist()
    missing = [label for label in labels if label not in alpha]
    unknown = [label for label in alpha if label not in labels]
    if missing or unknown:
        raise ValueError(
            f"alpha must have a share for each class {labels!r} and for nothing else: "
            f"{missing!r} have none, {unknown!r} are no classes. The same share for "
            "all is dict.fromkeys(classes, share)."
        )
    shares = [alpha[label] for label in labels]
    for label, share in zip(labels, shares, strict=True):
        if (
            not isinstance(share, Real)
            or isinstance(share, bool)
            or not 0 <= share <= 1
        ):
            raise ValueError(
                f"alpha[{label!r}] must be a number from 0 to 1, got {share!r}."
            )
    if len(shares) == 1:
        # An ensemble of one class has one output, and thus two answers, as an ensemble
        # of two classes has.
        shares = [shares[0], shares[0]]
    return np.array(shares, dtype=np.float64)


def stopping_of(engine, mode, stopping, order):
    """Return the parameter `stopping`. It stays "auto" only if votes are possible.

    Parameters
    ----------
    engine : Engine
    mode, stopping, order
        Parameters of :class:`~skroute.early_exit.QWYCEnsemble`.

    Returns
    -------
    {"auto", "thresholds", "votes"}
        "auto" stands for a comparison of the two others.

    Raises
    ------
    ValueError
        If `mode` or `stopping` does not fit the ensemble.
    """
    if engine.n_outputs > 1 and mode == "negative":
        raise ValueError(
            "mode='negative' needs two classes: there is no negative class among "
            f"{engine.n_outputs}. Use mode='both'."
        )
    # Members count alike if they are averaged with equal weights.
    members_count_alike = engine.averages_members and np.ptp(engine.weights) == 0
    if stopping == "votes" and not members_count_alike:
        raise ValueError(
            "stopping='votes' needs members that count alike, as those of a forest or "
            "of bagging, and not of boosting or with weights. Use stopping='auto' or "
            "'thresholds'."
        )
    # With votes, members are evaluated by rising cost. Votes are tried only if the
    # order is the default one, which is learned.
    is_learned_order = isinstance(order, str) and order == "qwyc"
    if stopping == "auto" and not (is_learned_order and members_count_alike):
        return "thresholds"
    return stopping


# Learning -----------------------------------------------------------------------------


def learn(sample, costs, options, on_position=None):
    """Learn order and thresholds from the scores of the members on rows.

    Parameters
    ----------
    sample : ScoredRows
        The rows to learn from.

    costs : ndarray of shape (n_members,)
        In the ensemble's own order.

    options : ExitOptions
        Its `stopping` is not "auto".

    on_position : callable, default=None
        Called without arguments after each position of the order search.

    Returns
    -------
    Learned
    """
    allowed_errors = _allowed_errors(sample, options.alpha)
    order = options.order
    if isinstance(order, str):
        order = _learn_order(sample, costs, options, allowed_errors.share, on_position)
    values, bad = sample.values_and_bad(order)
    # From cautious to hurried: the policy that never leaves early, policies that are
    # more cautious than the policy of the first price, and the policies of all prices.
    policies = [never(len(values))]
    if not options.never_leave:
        path = _learn_thresholds(
            sample,
            order=order,
            values=values,
            bad=bad,
            costs=costs,
            options=options,
            weights=allowed_errors.weights,
        )
        most_cautious_lo, most_cautious_hi = path[0]
        policies += widened(values, most_cautious_lo, most_cautious_hi, WIDER)
        policies += path
    return Learned(order, policies, values, bad)


def _learn_order(sample, costs, options, share, on_position):
    """Return the order in which members are evaluated: by cost, or by the order search.

    Parameters
    ----------
    sample, costs, options, on_position
        As for :func:`learn`.

    share : float
        Share of the rows that may be answered otherwise.

    Returns
    -------
    ndarray of shape (n_members,), dtype=int64
    """
    if options.stopping == "votes":
        # Votes count alike: members differ in nothing but their cost. The cheapest
        # member is first.
        return np.argsort(costs, kind="stable")
    # Share of wrong rows at which the search makes enough errors to compare members.
    least_share = min(SEARCH_ERRORS / sample.n_rows, MOST_SEARCH_ERRORS)
    search_share = max(share * SEARCH_SHARE, least_share)
    # The thresholds of the search are not used: they are learned again.
    order, _, _ = qwyc_order(
        sample.scores,
        sample.offset,
        sample.beta,
        costs,
        search_share,
        use_lo=options.use_lo,
        use_hi=options.use_hi,
        spread=SEARCH_SPREAD,
        n_jobs=options.n_jobs,
        on_position=on_position,
    )
    return order


def _learn_thresholds(sample, *, order, values, bad, costs, options, weights):
    """Return thresholds for each price of an error, from cautious to hurried.

    Parameters
    ----------
    sample, options
        As for :func:`learn`.

    order, values, bad
        As in :class:`Learned`.

    costs : ndarray of shape (n_members,)
        In the ensemble's own order.

    weights : ndarray of shape (2, n_samples) or None
        As for :func:`lagrangian_path`.

    Returns
    -------
    list of (lo, hi)
    """
    if options.stopping == "votes":
        return vote_path(
            sample.scores[order],
            sample.offset,
            sample.beta,
            costs[order],
            costs.sum() * VOTE_PRICES,
            use_lo=options.use_lo,
            use_hi=options.use_hi,
        )
    chance_wrong = bad
    if options.use_lo:
        # `doubtful` is for ensembles with one output. Those of several outputs have no
        # lower thresholds.
        chance_wrong = doubtful(values, bad, sample.beta, SOFTNESS)
    return lagrangian_path(
        values,
        chance_wrong,
        costs[order],
        costs.sum() * PRICES,
        use_lo=options.use_lo,
        use_hi=options.use_hi,
        weights=weights,
    )


class _AllowedErrors(NamedTuple):
    """The share of rows that may be answered wrongly, and the weights of errors.

    An answer is wrong if the full ensemble gives another one.

    Attributes
    ----------
    share : float
        Share of all rows that may be answered wrongly.

    weights : ndarray of shape (2, n_samples) or None
        Number of errors that a wrong answer to each row counts for. ``weights[0]`` is
        for leaving above the upper threshold, ``weights[1]`` for leaving below the
        lower one. None counts each error as one.
    """

    share: float
    weights: NDArray[np.float64] | None


def _allowed_errors(sample, alpha):
    """Return the share of errors that `alpha` allows, and the weight of each error.

    Parameters
    ----------
    sample : ScoredRows
    alpha : float or ndarray of shape (n_answers,)
        As in :class:`ExitOptions`.

    Returns
    -------
    _AllowedErrors
    """
    if np.ndim(alpha) == 0:
        # Without weights, each error counts as one.
        return _AllowedErrors(float(alpha), weights=None)
    answers = sample.answers()
    share = float(alpha[answers].mean())
    if share == 0:
        # No error is allowed on any of these rows.
        return _AllowedErrors(share, weights=None)
    # The allowed errors of all answers together are `share * n_rows`. Each answer that
    # may have errors gets an equal part of this number. An error on one of its rows
    # counts for this part divided by the number of its allowed errors.
    n_rows = len(answers)
    n_rows_of_answer = np.bincount(answers, minlength=len(alpha))
    n_allowed = np.maximum(alpha * n_rows_of_answer, LEAST_ALLOWED)
    weight_of_answer = share * n_rows / (n_allowed * np.count_nonzero(alpha))
    n_outputs = sample.scores.shape[2]
    if n_outputs == 1:
        # With one output there are two answers. A row that leaves above the upper
        # threshold gets answer 1, so that its error is one on a row of answer 0.
        # Leaving below the lower threshold is the reverse.
        above = np.full(n_rows, weight_of_answer[0])
        below = np.full(n_rows, weight_of_answer[1])
    else:
        # With several outputs there is no lower threshold: `below` is not used.
        above = weight_of_answer[answers]
        below = above
    return _AllowedErrors(share, weights=np.stack([above, below]))


# Calibration --------------------------------------------------------------------------


def calibrate(
    policies, values, bad, *, answers, n_answers, costs, alpha, promise=None, labels=()
):
    """Evaluate sets of thresholds on rows, and choose the one to use.

    Parameters
    ----------
    policies : list of (lo, hi)
        From cautious to hurried. The first one never leaves early.

    values, bad : ndarray of shape (n_members, n_samples)
        From :func:`running_values`: the values that thresholds are compared with, and
        True where leaving above the upper threshold gives a wrong answer.

    answers : ndarray of shape (n_samples,), dtype=int64
        The full ensemble's answers, as positions among the classes.

    n_answers : int
        Number of answers that are possible.

    costs : ndarray of shape (n_members,)
        In evaluation order.

    alpha : float or ndarray of shape (n_answers,)
        As in :class:`ExitOptions`.

    promise : Promise, default=None
        None if the rows are those that the thresholds were learned from.

    labels : list, default=()
        The classes, for a warning.

    Returns
    -------
    Calibrated
    """
    policies = [checked(policy, len(costs)) for policy in policies]
    n_rows = np.bincount(answers, minlength=n_answers)
    cost_so_far = np.cumsum(costs)
    cost = np.empty(len(policies))
    disagreement = np.empty(len(policies))
    # Number of rows, by policy and answer, that the policy or a more cautious one
    # answers wrongly. This number never falls from one policy to the next. Conformal
    # risk control needs that.
    n_ever_wrong = np.empty((len(policies), n_answers), dtype=np.int64)
    # True for rows that one of the policies so far answers wrongly.
    ever_wrong = np.zeros(len(answers), dtype=bool)
    for i, policy in enumerate(policies):
        position, side = leaving(values, *policy)
        wrong = is_wrong(position, side, bad)
        ever_wrong |= wrong
        cost[i] = cost_so_far[position].mean()
        disagreement[i] = wrong.mean()
        n_ever_wrong[i] = np.bincount(answers[ever_wrong], minlength=n_answers)
    chosen, bounds = _choose(n_ever_wrong, n_rows, alpha, promise, labels)
    position, side = leaving(values, *policies[chosen])
    wrong = is_wrong(position, side, bad)
    n_wrong_by_position = np.bincount(position[wrong], minlength=len(costs))
    return Calibrated(
        tradeoff=Tradeoff(policies, cost, disagreement, chosen),
        bounds=bounds,
        staged_disagreement=np.cumsum(n_wrong_by_position) / len(answers),
        wrong=np.bincount(answers[wrong], minlength=n_answers),
        n_rows=n_rows,
    )


def _choose(n_wrong, n_rows, alpha, promise, labels):
    """Return the index of the thresholds to use, and bounds of their disagreement.

    Parameters
    ----------
    n_wrong : ndarray of shape (n_policies, n_answers), dtype=int64
        Number of rows with each answer of the full ensemble that the policy or a more
        cautious one answers wrongly.

    n_rows : ndarray of shape (n_answers,), dtype=int64
        Number of rows with each answer of the full ensemble.

    alpha, promise, labels
        As for :func:`calibrate`.

    Returns
    -------
    chosen : int
        Index of a policy. 0 is the one that never leaves early.

    bounds : ndarray of shape (1,) or (n_answers,)
        0 if `chosen` is 0, NaN if nothing is promised.
    """
    shares = np.atleast_1d(alpha)
    if np.ndim(alpha) == 0:
        # If `alpha` is one number, it is a share of all rows: the counts of all answers
        # are added up.
        n_wrong = n_wrong.sum(axis=1, keepdims=True)
        n_rows = n_rows.sum(keepdims=True)
    if promise is None:
        # The allowed numbers of errors, rounded down. They keep `alpha` on these rows.
        allowed = (shares * n_rows).astype(np.int64)
        chosen = max(0, last_accepted(n_wrong, allowed))
        # NaN: nothing is promised about other rows.
        return chosen, np.full(len(shares), np.nan)
    # Bounds of several answers hold at the same time (Bonferroni).
    confidence = 1 - (1 - promise.confidence) / len(shares)
    allowed = np.empty(len(shares), dtype=np.int64)
    for i, share in enumerate(shares):
        allowed[i] = allowed_wrong(n_rows[i], share, confidence, promise.guarantee)
    # If no policy is accepted, the first one is used. It never leaves early, so that it
    # is never wrong.
    chosen = max(0, last_accepted(n_wrong, allowed))
    if chosen == 0:
        # There is only one policy if early exits were switched off. No warning then.
        if len(n_wrong) > 1:
            _warn_of_no_exit(alpha, n_rows, promise.guarantee, confidence, labels)
        return chosen, np.zeros(len(shares))
    bounds = np.empty(len(shares))
    for i, n_allowed in enumerate(allowed):
        bounds[i] = share_upper_bound(n_allowed, n_rows[i], confidence=confidence)
    return chosen, bounds


# Learning and calibration -------------------------------------------------------------


def learn_exits(
    engine,
    options,
    *,
    X,
    X_calibration,
    share,
    confidence,
    guarantee,
    costs,
    rng,
    task,
    labels,
):
    """Learn order and thresholds on some rows, and calibrate them on other rows.

    Parameters
    ----------
    engine : Engine
        In the ensemble's own order.

    options : ExitOptions
        The parameters of QWYC that learning depends on.

    X : indexable
        Rows to learn from.

    X_calibration : indexable or None
        Rows that nothing else has used. If None, a `share` of `X` is held out.

    share : float
        Share of `X` that is held out to calibrate on. 0 holds out nothing.

    confidence, guarantee
        As in :class:`Promise`. Nothing is promised without held-out rows.

    costs : ndarray of shape (n_members,)
        In the ensemble's own order.

    rng : RandomState
        Draws the held-out rows.

    task : task of a callback
        Reports steps.

    labels : list
        The classes, for warnings.

    Returns
    -------
    Exits
    """
    sample, calibration_sample = _score_rows(
        engine, X=X, X_calibration=X_calibration, share=share, rng=rng
    )
    if options.stopping == "auto":
        with task.step("thresholds or votes"):
            stopping = better_stopping(options, sample, costs, rng)
        options = options._replace(stopping=stopping)
    # Number of positions that are searched, 0 if the order is given.
    n_positions = engine.n_members - 1 if isinstance(options.order, str) else 0
    with task.step("order and thresholds", n_positions) as step:

        def on_position():
            # This step contains nothing. Its end reports one more position.
            with step.step("position"):
                pass

        learned = learn(sample, costs, options, on_position)
    if calibration_sample is None:
        # Thresholds are chosen on the rows that they were learned from.
        promise = None
        calibration_sample = sample
        values = learned.values
        bad = learned.bad
    else:
        promise = Promise(confidence, guarantee)
        values, bad = calibration_sample.values_and_bad(learned.order)
    calibrated = calibrate(
        learned.policies,
        values,
        bad,
        answers=calibration_sample.answers(),
        n_answers=calibration_sample.n_answers,
        costs=costs[learned.order],
        alpha=options.alpha,
        promise=promise,
        labels=labels,
    )
    return Exits(learned.order, options.stopping, calibrated)


def _score_rows(engine, *, X, X_calibration, share, rng):
    """Score the rows to learn from and those to calibrate on.

    Parameters are those of :func:`learn_exits`.

    Returns
    -------
    sample : ScoredRows
        The rows to learn from.

    calibration_sample : ScoredRows or None
        The rows to calibrate on. None if no rows are held out.
    """
    n_rows = num_samples(X)
    with note_failure("the ensemble", n_rows, "scoring members"):
        scores = engine.member_scores(X)
    sample = ScoredRows(scores, engine.offset, engine.beta)
    if X_calibration is not None:
        calibration_scores = engine.member_scores(X_calibration)
        return sample, sample._replace(scores=calibration_scores)
    train, held_out = hold_out(n_rows, share, rng, sample.answers())
    if held_out is None:
        return sample, None
    return sample.taken(train), sample.taken(held_out)


def better_stopping(options, sample, costs, rng):
    """Return "thresholds" or "votes", the one that costs less on held-out rows.

    Parameters
    ----------
    options : ExitOptions
        Its `stopping` is "auto".

    sample, costs
        As for :func:`learn`.

    rng : RandomState
        Draws the rows on which both are compared.

    Returns
    -------
    {"thresholds", "votes"}
    """
    if options.never_leave or sample.n_rows < FEWEST_TO_COMPARE:
        return "thresholds"
    answers = sample.answers()
    train, held_out = hold_out(sample.n_rows, COMPARED_ON, rng, answers)
    train_sample = sample.taken(train)
    held_out_sample = sample.taken(held_out)
    # Costs of the policies that keep `alpha` on the held-out rows, by value of
    # `stopping`.
    costs_of_stopping = {}
    for stopping in ("thresholds", "votes"):
        candidate = options._replace(stopping=stopping)
        learned = learn(train_sample, costs, candidate)
        values, bad = held_out_sample.values_and_bad(learned.order)
        calibrated = calibrate(
            learned.policies,
            values,
            bad,
            answers=answers[held_out],
            n_answers=sample.n_answers,
            costs=costs[learned.order],
            alpha=options.alpha,
        )
        tradeoff = calibrated.tradeoff
        costs_of_stopping[stopping] = tradeoff.cost[tradeoff.chosen]
    return min(costs_of_stopping, key=costs_of_stopping.get)


# Warnings -----------------------------------------------------------------------------


def _warn_of_no_exit(alpha, n_rows, guarantee, confidence, labels):
    """Warn that no thresholds keep `alpha`, with the number of rows that are needed.

    Parameters
    ----------
    alpha : float or ndarray of shape (n_answers,)
    n_rows : ndarray of shape (1,) or (n_answers,)
        Number of calibration rows: of all answers if `alpha` is a number, else of each
        answer.

    guarantee, confidence
        As in :class:`Promise`, for each answer.

    labels : list
        The classes.
    """
    reason = ""
    if np.ndim(alpha):
        shares = alpha
        # The answer with the fewest allowed errors.
        hardest = int(np.argmin(n_rows * shares))
        # An ensemble of one class has one output, and thus two answers, but only one
        # label. The label is shown for both answers. Otherwise each answer has a label.
        n_without_label = len(shares) - len(labels)
        label = labels[max(0, hardest - n_without_label)]
        limit = "none may change, which no number of rows shows."
        if shares[hardest] > 0:
            needed = fewest_rows(shares[hardest], confidence, guarantee)
            limit = (
                f"{shares[hardest]:g} may change: that takes {needed} rows at least."
            )
        reason = (
            f" The full ensemble gives {n_rows[hardest]} of them the answer {label!r}, "
            f"of which {limit}"
        )
        # The message shows `alpha` as it was passed: a share for each label.
        share_of_labels = shares[n_without_label:].tolist()
        alpha = dict(zip(labels, share_of_labels, strict=True))
    warn(
        f"No early exit keeps alpha={alpha!r} on {n_rows.sum()} calibration rows: "
        f"every member is evaluated on every row.{reason} Give more rows, hold out a "
        "larger share of them, give rows that the ensemble was not fitted on, or raise "
        "alpha."
    )


class _RareAnswer(NamedTuple):
    """An answer of the full ensemble, many rows of which may get another answer.

    Attributes
    ----------
    share : float
        Share of the rows with this answer that may get another one.

    label : object
        The class that is the answer.

    n_wrong : int
        Number of calibration rows with this answer that got another one.

    n_rows : int
        Number of calibration rows with this answer.
    """

    share: float
    label: object
    n_wrong: int
    n_rows: int


def warn_of_rare_answers(alpha, calibrated, labels, confidence):
    """Warn if early exit may change the answers of many rows with a rare answer.

    An answer is rare if `alpha` allows more than the share `MOST_OF_AN_ANSWER` of its
    rows to change. There is no warning about it if held-out rows show that few of its
    rows change.

    Parameters
    ----------
    alpha : float or ndarray of shape (n_answers,)
        There is no warning for an array, which has a share for each answer.

    calibrated : Calibrated
    labels : list
        The classes.

    confidence : float
        Confidence of upper bounds of the share of rows that are answered otherwise.
    """
    never_leaves = calibrated.tradeoff.chosen == 0
    if np.ndim(alpha) > 0 or never_leaves:
        return
    n_all_rows = calibrated.n_rows.sum()
    # Bounds are NaN if the rows are those that thresholds were learned from.
    is_held_out = not np.isnan(calibrated.bounds[0])
    rare_answers = []
    # An ensemble of one class has one label, but counts of two answers (one output).
    # The second count is not read.
    for label, n_wrong, n_rows in zip(
        labels, calibrated.wrong, calibrated.n_rows, strict=False
    ):
        # An answer without rows has no errors.
        share = 0.0
        if n_rows > 0:
            # All allowed errors may be on the rows of this answer.
            share = min(1.0, alpha * n_all_rows / n_rows)
        if share <= MOST_OF_AN_ANSWER:
            continue
        if is_held_out:
            bound = share_upper_bound(n_wrong, n_rows, confidence=confidence)
            if bound <= MOST_OF_AN_ANSWER:
                continue
        rare_answers.append(_RareAnswer(share, label, n_wrong, n_rows))
    if not rare_answers:
        return
    rarest = max(rare_answers, key=lambda answer: answer.share)
    other_answers = ""
    if len(rare_answers) > 1:
        other_answers = f" {len(rare_answers) - 1} more classes are alike."
    warn(
        f"alpha={alpha!r} is a share of all rows: of the rows that the full ensemble "
        f"answers with {rarest.label!r}, {rarest.n_rows} of {n_all_rows}, it is "
        f"{rarest.share:.0%}, and {rarest.n_wrong} of these {rarest.n_rows} got "
        f"another answer.{other_answers} Give a share for each answer, "
        "alpha=dict.fromkeys(classes, share), to keep those of rare classes."
    )
