"""Monitor of a promise, with a limit on the probability of any false alarm."""

import threading
from copy import deepcopy
from math import log
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils import check_random_state

from skroute.utils._compat import Integral, Interval, Real, validate_params
from skroute.utils._named import check_rows_match
from skroute.utils._optional import axes_of
from skroute.utils._plotting import REFERENCE_COLOUR, colours_of, finish_axes
from skroute.utils._tables import format_value, frame_of_record
from skroute.utils._tolerances import LIMIT_ROOM
from skroute.utils._typing import ArrayLike, NDArray
from skroute.utils._validation import check_numbers

# Bets against a promise of a cost, as shares of the largest possible bet. The largest
# possible bet would lose all its capital on a row that costs nothing. Small bets notice
# small changes, and large bets notice large ones sooner.
_COST_BETS = np.geomspace(0.02, 0.5, 8)
# Bets against a promise of a loss, as shares of the largest possible bet. The largest
# possible bet would lose all its capital on a row with the smallest signed loss. Large
# bets notice large losses sooner. A loss of 0.1 against a promise of 0.02 is noticed
# after 180 audited rows with bets up to 0.9, and after 234 rows with bets up to 0.6
# (medians, after 1,000 audited rows without a loss).
_LOSS_BETS = np.geomspace(0.1, 0.9, 5)
# Number of values (costs, or audited losses) after which a new bettor starts, so that a
# late change is noticed, too.
_RESTART_INTERVAL = 250
# Default of `max_cost`, as a multiple of `budget`.
_DEFAULT_MAX_COST = 10
# Largest number of points of the history that `plot` draws. If there are more, every
# second point is dropped.
_MAX_HISTORY = 2000


class Alarm(NamedTuple):
    """Alarm of a monitor: the mean of some values is above the promised one.

    Attributes
    ----------
    kind : {"cost", "loss"}
        Kind of the promise that is broken.
    row : int
        Number of rows fed when the alarm was raised.
    mean : float
        Mean of the last `n_rows` costs, or audited losses, up to then.
    promised : float
        The mean that was promised.
    n_rows : int
        Number of costs or losses since the leading bettor started. Its capital has
        grown most.
    """

    kind: str
    row: int
    mean: float
    promised: float
    n_rows: int

    def __repr__(self) -> str:
        mean = format_value(self.mean)
        promised = format_value(self.promised)
        values_text = "costs" if self.kind == "cost" else "audited losses"
        return (
            f"Alarm at row {self.row:,}: the {self.kind} was {mean} on average over "
            f"the last {self.n_rows:,} {values_text}, promised was at most {promised}"
        )

    def to_frame(self) -> Any:
        """Return the alarm as a data frame.

        Returns
        -------
        pandas.DataFrame
            One row, with the fields as columns.
        """
        return frame_of_record(self._asdict())


class Leaders(NamedTuple):
    """For each size of a bet, the bettor whose capital has grown most.

    Attributes
    ----------
    growth : ndarray of shape (n_bets,), dtype=float64
        Log of the factor by which the capital of this bettor has grown. Minus infinity
        before the first bettor.

    since : ndarray of shape (n_bets,), dtype=int64
        Number of values before this bettor started.

    total : ndarray of shape (n_bets,), dtype=float64
        Sum of the values since this bettor started.
    """

    growth: NDArray[np.float64]
    since: NDArray[np.int64]
    total: NDArray[np.float64]


class Bettors:
    """Bettors against one promise, with a new bettor at regular intervals.

    Parameters
    ----------
    kind : {"cost", "loss"}
        Kind of the values.
    promised : float
        The mean that is promised.
    bets : ndarray of shape (n_bets,)
        Shares of the largest possible bet.
    smallest : float
        Smallest possible value. It limits the bets.
    largest : float
        Larger values are replaced by it.
    log_threshold : float
        Log of the capital at which there is an alarm.

    Attributes
    ----------
    log_capitals : ndarray of shape (n_bets,)
        Log of the capital of all bettors, for each bet.
    leaders : Leaders
    n_values : int
        Number of values so far.
    alarm : Alarm or None
        The first alarm.
    """

    def __init__(self, kind, promised, *, bets, smallest, largest, log_threshold):
        self.kind = kind
        self.promised = float(promised)
        self.largest = float(largest)
        self.log_threshold = log_threshold
        # With the largest possible bet, the smallest value loses all capital. This bet
        # is 1 over the distance of that value from the promised mean.
        self.bets = bets / (promised - smallest)
        n_bets = len(self.bets)
        # Before the first bettor starts, capitals are 0: their log is minus infinity.
        self.log_capitals = np.full(n_bets, -np.inf)
        self.leaders = Leaders(
            growth=np.full(n_bets, -np.inf),
            since=np.zeros(n_bets, dtype=np.int64),
            total=np.zeros(n_bets),
        )
        self.n_values = 0
        self.alarm = None

    def feed(self, values, rows):
        """Bet on new values, and return how far the capital is from an alarm.

        At the first value after which the capital reaches the threshold, `alarm` is
        set.

        Parameters
        ----------
        values : ndarray of shape (n_values,), dtype=float64
        rows : ndarray of shape (n_values,), dtype=int64
            Number of the row of each value, counted from 1.

        Returns
        -------
        float
            Log of the whole capital, minus the log of the capital at which there is an
            alarm.
        """
        from skroute.guarantees._kernels import NO_ALARM, restarted_bets

        # The kernel changes `log_capitals` and `leaders` in place. It returns the
        # position of the value that raises the alarm.
        position = restarted_bets(
            values,
            self.n_values,
            self.promised,
            self.largest,
            self.bets,
            self.log_capitals,
            self.leaders,
            self.log_threshold,
            _RESTART_INTERVAL,
        )
        if position != NO_ALARM and self.alarm is None:
            self.alarm = self._make_alarm(
                n_values=self.n_values + position + 1, row=int(rows[position])
            )
        self.n_values += len(values)
        return float(np.logaddexp.reduce(self.log_capitals) - self.log_threshold)

    def _make_alarm(self, *, n_values, row):
        """Return the alarm after `n_values` values, the last of them in row `row`.

        Its mean is the mean of the values since the leading bettor started.
        """
        # The initial capitals of all bettors sum to less than 1. If the whole capital
        # is above 1, the capital of the leading bettor has grown. The mean of the
        # values since it started is thus above the promised one.
        leading = int(self.leaders.growth.argmax())
        n_rows = n_values - int(self.leaders.since[leading])
        mean = float(self.leaders.total[leading]) / n_rows
        return Alarm(self.kind, row, mean, self.promised, n_rows)


class PromiseMonitor:
    r"""Monitor losses and costs, and raise an alarm when a guarantee is no longer true.

    The test is a game. Bettors bet, row by row, that the promise is broken. They start
    with one unit of money together. While the promise is true, no bet gains on average.
    So their money reaches :math:`1 / \alpha` units with a probability of at most
    :math:`\alpha` **at any time**, however long one watches and however often one
    looks (Ville's inequality). If their money reaches it, the monitor raises an alarm.
    A new bettor starts every 250 rows, so that a late change is noticed, too. Two
    promises are two games, with half of `false_alarm` each.

    The guarantee: the probability that **a false alarm is ever raised** is at most
    `false_alarm`. A change is noticed by the last bettor that started before it. The
    delay grows with the logarithm of the number of good rows before the change, since
    later bettors start with less money. The time per row stays the same, even after a
    million rows.

    Parameters
    ----------
    max_loss : float, default=None
        The promised mean signed loss. None watches no loss.

    budget : float, default=None
        The promised mean cost. None watches no cost.

    audit_rate : float, default=0.1
        Probability with which :meth:`audit` selects a row. Raising it notices changes
        sooner, and buys more answers of the reference. With the default, a loss of 0.1
        against a promise of 0.02 is noticed within 3,000 rows in 95 % of the cases,
        after up to 10,000 good rows.

    false_alarm : float, default=0.05
        Probability of a false alarm over all time. Raising it notices changes sooner.

    loss_range : float, default=1.0
        Largest possible difference of two losses of a row.

    max_cost : float, default=None
        Larger costs are replaced by it, which can delay an alarm and never makes a
        false one. None is ten times `budget`.

    random_state : int, RandomState instance or None, default=None
        Determines the rows that are audited. Pass an int for the same rows at every
        run.

    Attributes
    ----------
    alarm_ : namedtuple or None
        The first alarm, with the fields ``kind`` (``"cost"`` or ``"loss"``), ``row``
        (number of rows fed when it was raised), ``mean`` (of the last ``n_rows`` costs,
        or audited losses, up to then), ``promised`` and ``n_rows``. These rows begin
        with the bettor whose capital has grown most, near the change. Their mean is
        above the promised one. The rows were chosen because their mean is large, so
        that later rows are needed to estimate the present mean.

    alarms_ : list of namedtuple
        The first alarm of each promise, in order of time.

    n_rows_ : int
        Number of rows fed so far: the number of costs, or of losses if it is larger.

    n_audited_ : int
        Number of losses fed so far.

    See Also
    --------
    CertifiedRouter : Router with such a promise.

    Notes
    -----
    The audited rows must be drawn at random: let :meth:`audit` draw them among **all**
    rows. A row that the reference itself answered has a loss of 0, which need not be
    bought: feed 0. If the reference answers half of the rows, twice the `audit_rate`
    costs the same.

    After an alarm the monitor keeps counting, and may raise one about the other
    promise. :meth:`reset` starts again, with all of `false_alarm`. To know which choice
    an alarm is about, feed one monitor for each choice with the rows that it answered.

    One monitor can be fed from several threads. A pickle is a copy with the state of
    that moment.

    References
    ----------
    .. [1] I. Waudby-Smith, A. Ramdas, "Estimating means of bounded random variables by
       betting", Journal of the Royal Statistical Society B 86, 2024.
    .. [2] J. Shin, A. Ramdas, A. Rinaldo, "E-detectors: a nonparametric framework for
       sequential change detection", 2022, arXiv 2203.03532.

    Examples
    --------
    >>> import numpy as np
    >>> from skroute.certified import PromiseMonitor
    >>> rng = np.random.default_rng(0)
    >>> monitor = PromiseMonitor(budget=1.0)
    >>> print(monitor.update(cost=rng.exponential(0.9, 5000)))
    None
    >>> monitor.update(cost=rng.exponential(1.5, 5000)).kind
    'cost'
    """

    @validate_params(
        {
            "max_loss": [Real, None],
            "budget": [Interval(Real, 0, None, closed="neither"), None],
            "audit_rate": [Interval(Real, 0, 1, closed="right")],
            "false_alarm": [Interval(Real, 0, 1, closed="neither")],
            "loss_range": [Interval(Real, 0, None, closed="neither")],
            "max_cost": [Interval(Real, 0, None, closed="neither"), None],
            "random_state": ["random_state"],
        },
        prefer_skip_nested_validation=True,
    )
    def __init__(
        self,
        *,
        max_loss: float | None = None,
        budget: float | None = None,
        audit_rate: float = 0.1,
        false_alarm: float = 0.05,
        loss_range: float = 1.0,
        max_cost: float | None = None,
        random_state: Any = None,
    ) -> None:
        if max_loss is None and budget is None:
            raise ValueError(
                "There is nothing to watch: give max_loss, budget, or both."
            )
        if max_loss is not None and not -loss_range < max_loss < loss_range:
            raise ValueError(
                f"max_loss={max_loss!r} must lie between -loss_range and loss_range="
                f"{loss_range!r}: any other promise is never, or always, broken."
            )
        if budget is not None and max_cost is not None and max_cost <= budget:
            raise ValueError(f"max_cost={max_cost!r} must be above budget={budget!r}.")
        self.max_loss = max_loss
        self.budget = budget
        self.audit_rate = audit_rate
        self.false_alarm = false_alarm
        self.loss_range = loss_range
        self.max_cost = max_cost
        self.random_state = random_state
        self._lock = threading.Lock()
        self._random = check_random_state(random_state)
        self.reset()

    def __repr__(self) -> str:
        promises = []
        if self.max_loss is not None:
            promises.append(f"max_loss={self.max_loss!r}")
        if self.budget is not None:
            promises.append(f"budget={self.budget!r}")
        alarm = self.alarm_
        alarm_text = "no alarm" if alarm is None else repr(alarm)
        return (
            f"PromiseMonitor({', '.join(promises)}): {self.n_rows_:,} rows, "
            f"{self.n_audited_:,} audited; {alarm_text}"
        )

    def reset(self) -> None:
        """Start again, without rows and alarms, and with the whole `false_alarm`."""
        with self._lock:
            self.n_rows_ = 0
            self.n_audited_ = 0
            # Number of losses fed, those that are NaN included.
            self._n_losses = 0
            # A tuple for each update: the number of rows after the update, and then for
            # each promise the number that `Bettors.feed` returned.
            self._history: list[tuple[float, ...]] = []
            watches_both = self.max_loss is not None and self.budget is not None
            n_promises = 2 if watches_both else 1
            # Each promise may raise a false alarm with an equal share of `false_alarm`.
            log_threshold = log(n_promises / self.false_alarm)
            self._bettors = {}
            if self.budget is not None:
                max_cost = self.max_cost
                if max_cost is None:
                    max_cost = _DEFAULT_MAX_COST * self.budget
                self._bettors["cost"] = Bettors(
                    "cost",
                    self.budget,
                    bets=_COST_BETS,
                    smallest=0.0,
                    largest=max_cost,
                    log_threshold=log_threshold,
                )
            if self.max_loss is not None:
                self._bettors["loss"] = Bettors(
                    "loss",
                    self.max_loss,
                    bets=_LOSS_BETS,
                    smallest=-self.loss_range,
                    largest=self.loss_range,
                    log_threshold=log_threshold,
                )

    @property
    def alarms_(self) -> list[Alarm]:
        """The first alarm of each promise, in order of time."""
        with self._lock:
            return self._alarms_so_far()

    @property
    def alarm_(self) -> Alarm | None:
        """The first alarm, or None."""
        return _first_or_none(self.alarms_)

    def _alarms_so_far(self):
        """Return the alarms in order of time. The caller holds the lock."""
        alarms = [
            bettors.alarm
            for bettors in self._bettors.values()
            if bettors.alarm is not None
        ]
        return sorted(alarms, key=lambda alarm: alarm.row)

    @validate_params(
        {"n_rows": [Interval(Integral, 0, None, closed="left")]},
        prefer_skip_nested_validation=True,
    )
    def audit(self, n_rows: int = 1) -> NDArray[np.bool_]:
        """Select the next rows that need an answer of the reference, or a label.

        Parameters
        ----------
        n_rows : int, default=1
            Number of rows.

        Returns
        -------
        ndarray of shape (n_rows,), dtype=bool
            Each entry is True with probability `audit_rate`, independently of all else.
        """
        with self._lock:
            return self._random.random_sample(n_rows) < self.audit_rate

    def update(
        self, *, cost: ArrayLike | None = None, loss: ArrayLike | None = None
    ) -> Alarm | None:
        """Add the losses and the costs of new rows.

        Parameters
        ----------
        cost : float or array-like of shape (n_rows,), default=None
            Costs of the new rows, in order of time.

        loss : float or array-like of shape (n_audited,) or (n_rows,), default=None
            Signed losses of the audited rows among the new rows, or of all new rows,
            with NaN for rows that were not audited. Without `cost`, losses with NaN
            have one entry for each new row. Feed the loss of every row that
            :meth:`audit` selected: leaving some out makes the alarm invalid.

        Returns
        -------
        namedtuple or None
            The first alarm, raised now or before (``alarm_``).

        Raises
        ------
        ValueError
            If a cost is negative, a loss is outside of its range, or one is not finite.
            Nothing is counted then.
        """
        largest_loss = self.loss_range * (1 + LIMIT_ROOM)
        costs = _column(cost, "cost", low=0.0)
        losses = _column(
            loss, "loss", low=-largest_loss, high=largest_loss, allow_nan=True
        )
        check_rows_match(cost=cost, loss=loss)
        is_audited = ~np.isnan(losses)
        has_unaudited = not is_audited.all()
        if has_unaudited and cost is not None and len(losses) != len(costs):
            raise ValueError(
                f"loss has {len(losses)} entries, some of them NaN, and cost has "
                f"{len(costs)}. NaN stands for a row that was not audited, so that "
                "loss must have one entry for each cost. Give NaN for the other rows, "
                "or leave the NaN out of loss."
            )
        with self._lock:
            # Rows are counted by their costs. Without costs, they are counted by their
            # losses, NaN included.
            self._n_losses += len(losses)
            self.n_audited_ += int(is_audited.sum())
            n_before = self.n_rows_
            self.n_rows_ = max(n_before + len(costs), self._n_losses)
            # Numbers of the new rows, counted from 1.
            rows = np.arange(n_before, self.n_rows_) + 1
            audited_losses = losses[is_audited]
            if len(losses) == len(rows):
                # Each entry of `losses` is that of one row.
                audited_rows = rows[is_audited]
            else:
                # The rows of these losses are not known: the last row stands for all.
                audited_rows = np.full(len(audited_losses), self.n_rows_)
            evidence = []
            for kind, bettors in self._bettors.items():
                if kind == "cost":
                    evidence.append(bettors.feed(costs, rows))
                else:
                    evidence.append(bettors.feed(audited_losses, audited_rows))
            self._history.append((self.n_rows_, *evidence))
            if len(self._history) > _MAX_HISTORY:
                # Every second point is dropped. The number of points is odd here: the
                # newest one stays.
                self._history = self._history[::2]
            return _first_or_none(self._alarms_so_far())

    def plot(self, *, ax: Any = None) -> Any:
        """Draw the evidence against each promise over time, with an alarm at 0.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to draw on. None makes a new figure.

        Returns
        -------
        matplotlib Axes
            Axes of the plot.
        """
        ax = axes_of(self, ax)
        with self._lock:
            kinds = list(self._bettors)
            # (n_updates, 1 + n_promises). Column 0 has the number of rows.
            history = np.array(self._history)
        for column, (kind, colour) in enumerate(zip(kinds, colours_of(kinds)), start=1):
            if len(history):
                powers_of_ten = history[:, column] / np.log(10)
                ax.plot(history[:, 0], powers_of_ten, color=colour, label=kind)
        ax.axhline(
            0.0, color=REFERENCE_COLOUR, linestyle="--", linewidth=1, label="alarm"
        )
        finish_axes(
            ax,
            xlabel="Rows",
            ylabel="Evidence against the promise (powers of ten)",
            title="Evidence that a promise is broken",
        )
        return ax

    def __getstate__(self):
        with self._lock:
            # A deep copy: the monitor may be fed while its state is pickled.
            state = {
                name: value for name, value in vars(self).items() if name != "_lock"
            }
            return deepcopy(state)

    def __setstate__(self, state):
        vars(self).update(state)
        self._lock = threading.Lock()


def _first_or_none(alarms):
    """Return the first alarm of a list, or None if it is empty."""
    if not alarms:
        return None
    return alarms[0]


def _column(values, name, **limits):
    """Return numbers as a checked array of one axis, which is empty for None.

    `limits` are keywords of `check_numbers`.
    """
    if values is None:
        return np.empty(0)
    return check_numbers(np.atleast_1d(values), name, shape=(None,), **limits)
