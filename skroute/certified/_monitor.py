"""Does a promise still hold? An alarm whose false alarm rate holds over all time."""

import threading
from math import exp, log, log1p
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_random_state

from skroute.utils._compat import Integral, Interval, Real, validate_params

# Shares of the largest bet that is possible for the kind of promise. Of costs the largest is that
# of a row that costs nothing; of signed losses that of a row that gains one.
_COST_BETS = np.geomspace(0.02, 0.5, 8)
_LOSS_BETS = np.geomspace(0.1, 0.6, 5)
_COST_BETS_LIST = _COST_BETS.tolist()


class Alarm(NamedTuple):
    """What a monitor found broken, and when.

    Attributes
    ----------
    kind : str
        ``"cost"`` or ``"loss"``.

    row : int
        Number of rows that had been fed when it was noticed.

    mean : float
        Mean of the costs, or of the audited losses, up to then.

    promised : float
        What the mean was promised to be at most.
    """

    kind: str
    row: int
    mean: float
    promised: float


class PromiseMonitor:
    r"""Watch what happens and raise an alarm when a promise is broken.

    A bettor bets against each promise with a mixture of fixed bets. While a promise is true his
    capital is a supermartingale, and reaches :math:`1 / \alpha` with a probability of at most
    :math:`\alpha` **at any time**, however long one watches and however often one looks (Ville's
    inequality). Two promises share `false_alarm`.

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
        Draws the rows that are audited.

    Attributes
    ----------
    alarm_ : Alarm or None
        The first alarm.

    n_rows_ : int
        Rows fed so far.

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

    The alarm tells cost from loss. After it the monitor keeps counting and stays at this alarm;
    :meth:`reset` begins anew, with all of `false_alarm` again.

    References
    ----------
    .. [1] I. Waudby-Smith, A. Ramdas, "Estimating means of bounded random variables by
       betting", Journal of the Royal Statistical Society B 86, 2024.

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
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        if max_loss is None and budget is None:
            raise ValueError("There is nothing to watch: give max_loss, budget, or both.")
        if max_loss is not None and not -loss_range < max_loss < loss_range:
            raise ValueError(
                f"max_loss={max_loss!r} must lie between -loss_range and loss_range="
                f"{loss_range!r}: any other promise is never, or always, broken."
            )
        if budget is not None and (max_cost is not None and max_cost <= budget):
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

    def reset(self) -> None:
        """Begin anew: no rows, no alarm, all of `false_alarm` for the time from now on."""
        with self._lock:
            self.alarm_: Alarm | None = None
            self.n_rows_ = self.n_audited_ = 0
            n_promises = (self.max_loss is not None) + (self.budget is not None)
            self._threshold = log(n_promises / self.false_alarm)
            self._wealth = {
                "cost": [-log(len(_COST_BETS))] * len(_COST_BETS),
                "loss": [-log(len(_LOSS_BETS))] * len(_LOSS_BETS),
            }
            self._sums = {"cost": 0.0, "loss": 0.0}
            self._history: list[tuple[int, float, float]] = []

    @validate_params(
        {"n_rows": [Interval(Integral, 0, None, closed="left")]},
        prefer_skip_nested_validation=True,
    )
    def audit(self, n_rows: int = 1) -> NDArray[np.bool_]:
        """Which of the next rows to buy the reference's answer, or a label, for.

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
        """Feed what happened.

        Parameters
        ----------
        cost : float or array-like of shape (n_rows,), default=None
            What every row cost, in the order in which they came.

        loss : float or array-like of shape (n_audited,), default=None
            Signed losses of the audited ones among them. Feed every loss that :meth:`audit` asked
            for: to leave some out is to choose.

        Returns
        -------
        Alarm or None
            The first alarm, now or before.

        Raises
        ------
        ValueError
            If a cost is negative, a loss is outside of its range, or one is not finite.
        """
        if loss is None and isinstance(cost, float | int) and 0 <= cost < np.inf:
            return self._update_one(float(cost))
        costs, losses = _column(cost, "cost"), _column(loss, "loss")
        if len(costs) and costs.min() < 0:
            raise ValueError(f"cost must not be negative, got {costs.min():.17g}.")
        if len(losses) and np.abs(losses).max() > self.loss_range * (1 + 1e-9):
            raise ValueError(
                f"loss must be within loss_range={self.loss_range!r}, got "
                f"{np.abs(losses).max():.17g}."
            )
        with self._lock:
            before = self.n_rows_
            self.n_rows_ += len(costs)
            if self.budget is not None and len(costs):
                most = 10 * self.budget if self.max_cost is None else self.max_cost
                bets = _COST_BETS / self.budget
                self._bet("cost", np.minimum(costs, most), self.budget, bets, before)
            if self.max_loss is not None and len(losses):
                self.n_audited_ += len(losses)
                bets = _LOSS_BETS / (self.loss_range + self.max_loss)
                self._bet("loss", losses, self.max_loss, bets, None)
            self._remember()
            return self.alarm_

    def _update_one(self, cost):
        """`update` with the cost of one row, without arrays: what a service does per request."""
        with self._lock:
            self.n_rows_ += 1
            if self.budget is not None:
                most = 10 * self.budget if self.max_cost is None else self.max_cost
                gain = min(cost, most) / self.budget - 1
                wealth = [
                    logged + log1p(bet * gain)
                    for logged, bet in zip(self._wealth["cost"], _COST_BETS_LIST)
                ]
                self._wealth["cost"] = wealth
                self._sums["cost"] += min(cost, most)
                if self.alarm_ is None and _log_sum(wealth) >= self._threshold:
                    mean = self._sums["cost"] / self.n_rows_
                    self.alarm_ = Alarm("cost", self.n_rows_, mean, float(self.budget))
            if self.n_rows_ % 64 == 0:
                self._remember()
            return self.alarm_

    def _remember(self):
        """A point of the picture; when there are 2,000, every second one goes."""
        point = (_log_sum(self._wealth[kind]) for kind in ("cost", "loss"))
        self._history.append((self.n_rows_, *point))
        if len(self._history) > 2000:
            self._history = self._history[1::2]

    def _bet(self, kind, values, promised, bets, before):
        """Let the bettor of one promise bet on values; `before` counts the rows before them."""
        gains = np.log1p(bets[:, None] * (values - promised)).cumsum(axis=1)
        paths = np.array(self._wealth[kind])[:, None] + gains
        self._wealth[kind] = paths[:, -1].tolist()
        top = paths.max(axis=0)
        capital = top + np.log(np.exp(paths - top).sum(axis=0))
        over = capital >= self._threshold
        if self.alarm_ is None and over.any():
            k = int(over.argmax())
            seen = (self.n_rows_ if kind == "cost" else self.n_audited_) - len(values) + k + 1
            mean = (self._sums[kind] + values[: k + 1].sum()) / seen
            row = self.n_rows_ if before is None else before + k + 1
            self.alarm_ = Alarm(kind, row, float(mean), float(promised))
        self._sums[kind] += float(values.sum())

    def plot(self, *, ax=None):
        """Draw the capital of each bettor over time, and the line at which there is an alarm.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to draw on. None makes a new figure.

        Returns
        -------
        matplotlib Axes
        """
        from skroute.utils._optional import import_optional

        pyplot = import_optional("matplotlib.pyplot", "PromiseMonitor.plot")
        if ax is None:
            _, ax = pyplot.subplots(layout="constrained")
        history = np.array(self._history or [(0, 0.0, 0.0)])
        for column, kind in ((1, "cost"), (2, "loss")):
            if (self.budget if kind == "cost" else self.max_loss) is not None:
                ax.plot(history[:, 0], history[:, column] / np.log(10), label=kind)
        ax.axhline(self._threshold / np.log(10), color="0.6", linestyle="--", linewidth=1)
        ax.set(xlabel="Rows", ylabel="Evidence against the promise (powers of ten)")
        ax.legend(loc="best")
        return ax

    def __getstate__(self):
        with self._lock:
            return {name: value for name, value in vars(self).items() if name != "_lock"}

    def __setstate__(self, state):
        vars(self).update(state)
        self._lock = threading.Lock()


def _column(values, name):
    """Numbers as a float column; None as an empty one."""
    values = np.atleast_1d(np.asarray([] if values is None else values, dtype=np.float64))
    if values.ndim != 1 or not np.isfinite(values).all():
        raise ValueError(f"{name} must be a finite number or one per row, got {values!r}.")
    return values


def _log_sum(parts):
    top = max(parts)
    return top + log(sum(exp(part - top) for part in parts))
