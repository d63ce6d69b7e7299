"""Does a promise still hold? An alarm whose false alarm rate holds over all time."""

import threading
from copy import deepcopy
from math import log
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils import check_random_state

from skroute.utils._compat import Integral, Interval, Real, validate_params
from skroute.utils._named import check_rows_match
from skroute.utils._optional import axes_of
from skroute.utils._tolerances import LIMIT_ROOM
from skroute.utils._typing import ArrayLike, NDArray
from skroute.utils._validation import check_numbers

# Shares of the largest bet that is possible for the kind of promise. Of costs the largest is that
# of a row that costs nothing; of signed losses that of a row that gains one.
_BETS = {"cost": np.geomspace(0.02, 0.5, 8), "loss": np.geomspace(0.1, 0.6, 5)}
# Rows after which a new bettor starts.
_EVERY = 250


class Alarm(NamedTuple):
    """See `alarm_` of :class:`PromiseMonitor`."""

    kind: str
    row: int
    mean: float
    promised: float
    n_rows: int


class Leaders(NamedTuple):
    """The bettor whose money has grown most, for each bet.

    Attributes
    ----------
    growth : ndarray of shape (n_bets,), dtype=float64
        Log of what one unit of its money has become. Minus infinity before the first bettor.

    since : ndarray of shape (n_bets,), dtype=int64
        Number of values before it started.

    total : ndarray of shape (n_bets,), dtype=float64
        Sum of the values since then.
    """

    growth: NDArray[np.float64]
    since: NDArray[np.int64]
    total: NDArray[np.float64]


class Bettors:
    """Bettors against one promise, a new one every so many values.

    Parameters
    ----------
    kind : {"cost", "loss"}
    promised : float
    low : float
        The smallest value that is possible, which limits the bets.
    most : float
        Values above it count as it.
    threshold : float
        Log of the money at which there is an alarm.
    """

    def __init__(self, kind, promised, low, most, threshold):
        self.kind, self.promised, self.most = kind, float(promised), float(most)
        self.threshold = threshold
        self.bets = _BETS[kind] / (promised - low)
        n_bets = len(self.bets)
        self.money = np.full(n_bets, -np.inf)
        self.leaders = Leaders(
            growth=np.full(n_bets, -np.inf),
            since=np.zeros(n_bets, dtype=np.int64),
            total=np.zeros(n_bets),
        )
        self.n = 0
        self.alarm = None

    def feed(self, values, rows):
        """Bet on the values of some rows; ``alarm`` is the first one.

        Returns the log of the money over that at which there is an alarm.
        """
        from skroute.guarantees._kernels import restarted_bets

        at = restarted_bets(
            values,
            self.n,
            self.promised,
            self.most,
            self.bets,
            self.money,
            self.leaders,
            self.threshold,
            _EVERY,
        )
        if at >= 0 and self.alarm is None:
            self.alarm = self._alarm_at(self.n + at + 1, int(rows[at]))
        self.n += len(values)
        return float(np.logaddexp.reduce(self.money) - self.threshold)

    def _alarm_at(self, n_values, row):
        """Return the alarm after `n_values` values, about the values of the leading bettor."""
        # Shares sum to less than 1 unit: where all money together is above 1, that of this bettor
        # has grown, so that the mean of its values is above what is promised.
        leading = int(self.leaders.growth.argmax())
        n_rows = n_values - int(self.leaders.since[leading])
        mean = float(self.leaders.total[leading]) / n_rows
        return Alarm(self.kind, row, mean, self.promised, n_rows)


class PromiseMonitor:
    r"""Monitor losses and costs, and raise an alarm when a guarantee is no longer true.

    Bettors bet against each promise, a new one every 250 rows, each with a mixture of fixed bets.
    All start with shares of one unit of money. While a promise is true their money together is a
    supermartingale, and reaches :math:`1 / \alpha` with a probability of at most :math:`\alpha`
    **at any time**, however long one watches and however often one looks (Ville's inequality).
    The promises share `false_alarm` equally.

    The promise is that **no false alarm is ever raised**, but with a probability of
    `false_alarm`. A change is noticed by the bettor that started last before it: the delay grows
    with the logarithm of the rows that were good before, as the shares do, and a row takes the
    same time after a million.

    Parameters
    ----------
    max_loss : float, default=None
        The mean signed loss that is promised; None watches no loss.

    budget : float, default=None
        The mean cost that is promised; None watches no cost.

    audit_rate : float, default=0.02
        Probability with which :meth:`audit` asks for the loss of a row. Raising it notices
        sooner and buys more answers of the reference.

    false_alarm : float, default=0.05
        Probability of a false alarm over all time. Raising it notices sooner.

    loss_range : float, default=1.0
        What two losses of a row can differ by at most.

    max_cost : float, default=None
        Costs above it count as it, which can delay an alarm and never makes a false one. None
        is ten times `budget`.

    random_state : int, RandomState instance or None, default=None
        Determines the rows that are audited. Pass an int for the same rows at every run.

    Attributes
    ----------
    alarm_ : namedtuple or None
        The first alarm: ``kind``, ``"cost"`` or ``"loss"``; ``row``, the number of rows fed when
        it was noticed; ``mean`` of the last ``n_rows`` costs, or audited losses, up to then; and
        what it was ``promised`` to be at most. These rows are those of the test that fired: they
        begin with the bettor whose money has grown most, near the change. Their mean is above
        what is promised. It was chosen because it is large: later rows estimate the mean of now.

    alarms_ : list of namedtuple
        The first alarm of each promise, in the order in which they came.

    n_rows_ : int
        Rows fed so far: those with a cost, or the losses where these are more.

    n_audited_ : int
        Losses fed so far.

    See Also
    --------
    CertifiedRouter : Where promises come from.

    Notes
    -----
    The audited rows must be drawn at random: let :meth:`audit` draw them among **all** rows. Where
    the reference itself has served a row, its loss is 0 and need not be bought: feed 0. If the
    reference serves half of the rows, twice the `audit_rate` costs the same.

    After an alarm the monitor keeps counting, and may raise one about the other promise;
    :meth:`reset` begins anew, with all of `false_alarm` again. To know which choice an alarm is
    about, feed one monitor for each choice with the rows that it answered.

    One monitor can be fed from several threads. A pickle is a copy with the books of that moment.

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
        audit_rate: float = 0.02,
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
        asked = f"max_loss={self.max_loss!r}, budget={self.budget!r}"
        return f"PromiseMonitor({asked}): {self.n_rows_} rows, alarm_={self.alarm_!r}"

    def reset(self) -> None:
        """Start again: no rows, no alarm, and the whole of `false_alarm` for later rows."""
        with self._lock:
            self.n_rows_ = 0
            self.n_audited_ = 0
            # Losses fed, with those that are NaN.
            self._n_losses = 0
            self._history: list[tuple[float, ...]] = []
            both = self.max_loss is not None and self.budget is not None
            threshold = log((1 + both) / self.false_alarm)
            self._bettors = {}
            if self.budget is not None:
                most = 10 * self.budget if self.max_cost is None else self.max_cost
                self._bettors["cost"] = Bettors(
                    "cost", self.budget, 0.0, most, threshold
                )
            if self.max_loss is not None:
                top = self.loss_range
                self._bettors["loss"] = Bettors(
                    "loss", self.max_loss, -top, top, threshold
                )

    @property
    def alarms_(self) -> list[Alarm]:
        """The first alarm of each promise, in the order in which they came."""
        with self._lock:
            return self._alarms_so_far()

    @property
    def alarm_(self) -> Alarm | None:
        """The first alarm, or None."""
        return next(iter(self.alarms_), None)

    def _alarms_so_far(self):
        """Return the alarms in order of time; the caller holds the lock."""
        found = [
            bettors.alarm
            for bettors in self._bettors.values()
            if bettors.alarm is not None
        ]
        return sorted(found, key=lambda alarm: alarm.row)

    @validate_params(
        {"n_rows": [Interval(Integral, 0, None, closed="left")]},
        prefer_skip_nested_validation=True,
    )
    def audit(self, n_rows: int = 1) -> NDArray[np.bool_]:
        """Select which of the next rows need an answer of the reference, or a label.

        Parameters
        ----------
        n_rows : int, default=1
            Number of rows.

        Returns
        -------
        ndarray of shape (n_rows,), dtype=bool
            Each is True with the probability `audit_rate`, independently of all else.
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
            What every row cost, in the order in which they came.

        loss : float or array-like of shape (n_audited,) or (n_rows,), default=None
            Signed losses of the audited rows among them, or of all rows with NaN where a row was
            not audited. Without `cost`, losses with NaN have one entry for each new row. Feed
            every loss that :meth:`audit` asked for: to leave some out is to choose.

        Returns
        -------
        namedtuple or None
            The first alarm, now or before (``alarm_``).

        Raises
        ------
        ValueError
            If a cost is negative, a loss is outside of its range, or one is not finite. Nothing
            is counted then.
        """
        top = self.loss_range * (1 + LIMIT_ROOM)
        costs = _column(cost, "cost", low=0.0)
        losses = _column(loss, "loss", low=-top, high=top, allow_nan=True)
        check_rows_match(cost=cost, loss=loss)
        known = np.flatnonzero(~np.isnan(losses))
        has_unaudited = len(known) < len(losses)
        if has_unaudited and cost is not None and len(losses) != len(costs):
            raise ValueError(
                f"loss has {len(losses)} entries, some of them NaN, and cost has {len(costs)}. "
                "NaN stands for a row that was not audited, so that loss must have one entry for "
                "each cost. Give NaN for the other rows, or leave the NaN out of loss."
            )
        with self._lock:
            before = self.n_rows_
            self.n_audited_ += len(known)
            # Losses that are fed alone have a row each, those that are NaN as well.
            self._n_losses += len(losses)
            self.n_rows_ = max(before + len(costs), self._n_losses)
            rows, late = (
                np.arange(before, self.n_rows_) + 1,
                np.full(len(known), self.n_rows_),
            )
            audited = rows[known] if len(losses) == len(rows) else late
            fed = {"cost": (costs, rows), "loss": (losses[known], audited)}
            evidence = [
                bettors.feed(*fed[kind]) for kind, bettors in self._bettors.items()
            ]
            self._history.append((self.n_rows_, *evidence))
            if len(self._history) > 2000:
                # Of the picture every second point goes.
                self._history = self._history[1::2]
            return next(iter(self._alarms_so_far()), None)

    def plot(self, *, ax: Any = None) -> Any:
        """Draw the evidence against each guarantee over time; at 0 there is an alarm.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to draw on. None makes a new figure.

        Returns
        -------
        matplotlib Axes
        """
        ax = axes_of(self, ax)
        with self._lock:
            kinds, history = list(self._bettors), np.array(self._history)
        for column, kind in enumerate(kinds, start=1):
            if len(history):
                ax.plot(history[:, 0], history[:, column] / np.log(10), label=kind)
        ax.axhline(0.0, color="0.6", linestyle="--", linewidth=1)
        ax.set(
            xlabel="Rows",
            ylabel="Evidence against the promise (powers of ten; 0: alarm)",
        )
        ax.legend(loc="best")
        return ax

    def __getstate__(self):
        with self._lock:
            # A deep copy: the books go on while this one is written.
            return deepcopy(
                {k: value for k, value in vars(self).items() if k != "_lock"}
            )

    def __setstate__(self, state):
        vars(self).update(state)
        self._lock = threading.Lock()


def _column(values, name, **limits):
    """Numbers as a float column; None as an empty one."""
    if values is None:
        return np.empty(0)
    return check_numbers(np.atleast_1d(values), name, shape=(None,), **limits)
