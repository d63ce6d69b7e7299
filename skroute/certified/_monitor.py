"""Does a promise still hold? An alarm whose false alarm rate holds over all time."""

import threading
from collections.abc import Mapping
from copy import deepcopy
from math import exp, log, log1p
from sys import float_info
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_random_state

from skroute.utils._compat import Integral, Interval, Real, validate_params

# Shares of the largest bet that is possible for the kind of promise. Of costs the largest is that
# of a row that costs nothing; of signed losses that of a row that gains one.
_COST_BETS = np.geomspace(0.02, 0.5, 8)
_LOSS_BETS = np.geomspace(0.1, 0.6, 5)


class ChoicePromise(NamedTuple):
    """What is promised about the rows that one choice answers.

    Attributes
    ----------
    max_loss : float or None
        Largest mean loss on these rows.

    budget : float or None
        Largest mean cost of these rows.
    """

    max_loss: float | None = None
    budget: float | None = None


class Alarm(NamedTuple):
    """What a monitor found broken, and when.

    Attributes
    ----------
    kind : str
        ``"cost"`` or ``"loss"``.

    row : int
        Number of rows that had been fed when it was noticed.

    mean : float
        Mean of the costs, or of the audited losses, up to then; of the rows of `choice` alone
        where there is one.

    promised : float
        What the mean was promised to be at most.

    choice : str or None
        The choice whose own promise is broken; None for the promise about all rows.
    """

    kind: str
    row: int
    mean: float
    promised: float
    choice: str | None = None


class Bettor:
    """A mixture of fixed bets against one promise.

    Parameters
    ----------
    kind : {"cost", "loss"}
    choice : str or None
    promised : float
    low : float
        The smallest value that is possible, which limits the bets.
    most : float
        Values above it count as it.
    threshold : float
        Log of the capital at which there is an alarm.
    """

    def __init__(self, kind, choice, promised, low, most, threshold):
        shares = _COST_BETS if kind == "cost" else _LOSS_BETS
        self.kind, self.choice, self.promised = kind, choice, float(promised)
        self.most, self.threshold = float(most), threshold
        self.bets = shares / (promised - low)
        self._bets = self.bets.tolist()
        self.wealth = [-log(len(shares))] * len(shares)
        self.total, self.n, self.alarm = 0.0, 0, None

    @property
    def label(self):
        """Name in a picture."""
        return self.kind if self.choice is None else f"{self.kind} of {self.choice}"

    def capital(self):
        """Log of the capital."""
        top = max(self.wealth)
        return top + log(sum(exp(part - top) for part in self.wealth))

    def feed_one(self, value, row):
        """Bet on one value; the alarm, the first time it is raised."""
        gain = min(value, self.most) - self.promised
        self.wealth = [logged + log1p(bet * gain) for logged, bet in zip(self.wealth, self._bets)]
        self.total += value
        self.n += 1
        if self.alarm is None and self.capital() >= self.threshold:
            self.alarm = Alarm(self.kind, row, self.total / self.n, self.promised, self.choice)
            return self.alarm
        return None

    def feed(self, values, rows):
        """Bet on values, which came with the numbers `rows`; the alarm, the first time."""
        gains = np.minimum(values, self.most) - self.promised
        paths = np.log1p(self.bets[:, None] * gains).cumsum(axis=1)
        paths += np.array(self.wealth)[:, None]
        raised = None
        if self.alarm is None:
            top = paths.max(axis=0)
            over = top + np.log(np.exp(paths - top).sum(axis=0)) >= self.threshold
            if over.any():
                k = int(over.argmax())
                mean = (self.total + float(values[: k + 1].sum())) / (self.n + k + 1)
                raised = Alarm(self.kind, int(rows[k]), mean, self.promised, self.choice)
                self.alarm = raised
        self.wealth = paths[:, -1].tolist()
        self.total += float(values.sum())
        self.n += len(values)
        return raised


class PromiseMonitor:
    r"""Watch what happens and raise an alarm when a promise is broken.

    A bettor bets against each promise with a mixture of fixed bets. While a promise is true his
    capital is a supermartingale, and reaches :math:`1 / \alpha` with a probability of at most
    :math:`\alpha` **at any time**, however long one watches and however often one looks (Ville's
    inequality). All promises share `false_alarm`: where `choices` are watched, half of it is for
    the promises about all rows and half for theirs.

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

    choices : mapping from str to ChoicePromise, default=None
        What is promised about the rows of each choice, by its name and **in the order that**
        `route` **counts them**; ``ChoicePromise()`` watches nothing of a choice. An alarm then
        names the choice. :meth:`CertifiedRouter.monitor` fills it in from the evidence.

    random_state : int, RandomState instance or None, default=None
        Draws the rows that are audited.

    Attributes
    ----------
    alarm_ : Alarm or None
        The first alarm.

    alarms_ : list of Alarm
        The first alarm of each promise, in the order in which they came. The false alarm rate
        is that of all together.

    n_rows_ : int
        Rows fed so far: those with a cost or a route, or the losses where these are more.

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

    An alarm tells cost from loss and, with `choices`, which choice it is about. After it the
    monitor keeps counting, and may raise alarms about other promises; :meth:`reset` begins anew,
    with all of `false_alarm` again.

    One monitor can be fed from several threads. A pickle is a copy with the books of that moment.

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
            "choices": [Mapping, None],
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
        choices: Mapping[str, ChoicePromise] | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        every = [(None, ChoicePromise(max_loss, budget)), *_promises_of(choices)]
        if all(promise == (None, None) for _, promise in every):
            raise ValueError("There is nothing to watch: give max_loss, budget, or choices.")
        for name, promise in every:
            _check_promise(promise, name, loss_range, max_cost)
        self.max_loss = max_loss
        self.budget = budget
        self.audit_rate = audit_rate
        self.false_alarm = false_alarm
        self.loss_range = loss_range
        self.max_cost = max_cost
        self.choices = choices
        self.random_state = random_state
        self._names = [name for name, _ in every[1:]]
        self._lock = threading.Lock()
        self._random = check_random_state(random_state)
        self._promises = every
        self.reset()

    def __repr__(self) -> str:
        asked = f"max_loss={self.max_loss!r}, budget={self.budget!r}"
        return f"PromiseMonitor({asked}): {self.n_rows_} rows, alarm_={self.alarm_!r}"

    def reset(self) -> None:
        """Begin anew: no rows, no alarm, all of `false_alarm` for the time from now on."""
        with self._lock:
            self.alarm_: Alarm | None = None
            self.alarms_: list[Alarm] = []
            self.n_rows_ = self.n_audited_ = 0
            self._bettors = self._hire()
            self._history: list[tuple[float, ...]] = []

    def _hire(self):
        """A bettor against each promise, by choice; None is for those about all rows."""
        of_all = sum(value is not None for value in self._promises[0][1])
        of_choices = sum(v is not None for _, promise in self._promises[1:] for v in promise)
        parts = 2 if of_all and of_choices else 1
        found = {}
        for name, (max_loss, budget) in self._promises:
            shared = of_all if name is None else of_choices
            threshold = log(parts * max(shared, 1) / self.false_alarm)
            if budget is not None:
                most = 10 * budget if self.max_cost is None else self.max_cost
                bettor = Bettor("cost", name, budget, 0.0, most, threshold)
                found[name] = [bettor]
            if max_loss is not None:
                top = self.loss_range
                bettor = Bettor("loss", name, max_loss, -top, top, threshold)
                found[name] = [*found.get(name, []), bettor]
        return found

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
        self,
        *,
        cost: ArrayLike | None = None,
        loss: ArrayLike | None = None,
        route: ArrayLike | None = None,
    ) -> Alarm | None:
        """Feed what happened.

        Parameters
        ----------
        cost : float or array-like of shape (n_rows,), default=None
            What every row cost, in the order in which they came.

        loss : float or array-like of shape (n_audited,) or (n_rows,), default=None
            Signed losses of the audited rows among them, or of all rows with NaN where a row was
            not audited; with `route` the latter. Feed every loss that :meth:`audit` asked for: to
            leave some out is to choose.

        route : int or array-like of shape (n_rows,), dtype=int, default=None
            Which choice answered each row, an index into `choices`.

        Returns
        -------
        Alarm or None
            The first alarm, now or before.

        Raises
        ------
        ValueError
            If a cost is negative, a loss is outside of its range, or one is not finite. Nothing
            is counted then.
        """
        if (
            loss is None
            and isinstance(cost, float | int)
            and not isinstance(cost, bool)
            and 0 <= cost <= float_info.max
        ):
            if route is None and not self._names:
                return self._update_one(cost, None)
            if isinstance(route, int | np.integer) and 0 <= route < len(self._names):
                return self._update_one(cost, self._names[route])
        costs, losses, routes = self._check_rows(cost, loss, route)
        known = np.flatnonzero(~np.isnan(losses))
        with self._lock:
            before = self.n_rows_
            self.n_rows_ += max(len(costs), 0 if routes is None else len(routes))
            self.n_audited_ += len(known)
            # Who feeds losses alone feeds a row with each.
            self.n_rows_ = max(self.n_rows_, self.n_audited_)
            in_rows = len(losses) == self.n_rows_ - before
            at = before + 1 + known if in_rows else np.full(len(known), self.n_rows_)
            raised = []
            for name, bettors in self._bettors.items():
                for bettor in bettors:
                    values, rows, of_cost = losses[known], at, bettor.kind == "cost"
                    if of_cost:
                        values, rows = costs, np.arange(before + 1, before + 1 + len(costs))
                    if name is not None and len(values):
                        of = routes if of_cost or routes is None else routes[known]
                        mine = [] if of is None else of == self._names.index(name)
                        values, rows = values[mine], rows[mine]
                    if len(values):
                        raised.append(bettor.feed(values, rows))
            self._note(alarm for alarm in raised if alarm is not None)
            self._remember()
            return self.alarm_

    def _update_one(self, cost, choice):
        """`update` with the cost of one row, without arrays: what a service does per request."""
        with self._lock:
            self.n_rows_ += 1
            names = (None,) if choice is None else (None, choice)
            bettors = [bettor for name in names for bettor in self._bettors.get(name, ())]
            alarms = [b.feed_one(cost, self.n_rows_) for b in bettors if b.kind == "cost"]
            self._note(alarm for alarm in alarms if alarm is not None)
            if self.n_rows_ % 64 == 0:
                self._remember()
            return self.alarm_

    def _note(self, alarms):
        """Alarms of one call, in the order of their rows."""
        self.alarms_ += sorted(alarms, key=lambda alarm: alarm.row)
        if self.alarms_:
            self.alarm_ = self.alarms_[0]

    def _check_rows(self, cost, loss, route):
        """Costs, losses (NaN: not audited) and routes, checked before anything is counted."""
        costs, losses = _column(cost, "cost"), _column(loss, "loss", missing=True)
        if np.isnan(losses).any() and loss is not None and route is None:
            if len(losses) != len(costs):
                raise ValueError(
                    "loss may be NaN, not audited, only where it has one entry per row, as cost: "
                    f"got {len(losses)} for {len(costs)} rows."
                )
        routes = None
        if route is not None:
            routes = np.atleast_1d(np.asarray(route))
            whole = routes.ndim == 1 and routes.dtype.kind in "iu" and self._names
            if not whole or (
                len(routes) and not 0 <= routes.min() <= routes.max() < len(self._names)
            ):
                raise ValueError(
                    f"route must be one index into choices={self._names!r} per row, whole numbers."
                )
            for name, given, values in (("cost", cost, costs), ("loss", loss, losses)):
                if given is not None and len(values) != len(routes):
                    raise ValueError(
                        f"{name} must have one entry per row, as route: got {len(values)} for "
                        f"{len(routes)} rows. A loss that was not audited is NaN."
                    )
        elif self._names and (cost is not None or loss is not None):
            raise ValueError(
                "route must be given: the promises about single choices are watched by it."
            )
        if len(costs) and costs.min() < 0:
            raise ValueError(f"cost must not be negative, got {costs.min():.17g}.")
        if len(losses) and np.nanmax(np.abs(losses), initial=0.0) > self.loss_range * (1 + 1e-9):
            raise ValueError(
                f"loss must be within loss_range={self.loss_range!r}, got "
                f"{np.nanmax(np.abs(losses)):.17g}."
            )
        return costs, losses, routes

    def _remember(self):
        """A point of the picture; when there are 2,000, every second one goes."""
        capital = [bettor.capital() for bettors in self._bettors.values() for bettor in bettors]
        self._history.append((self.n_rows_, *capital))
        if len(self._history) > 2000:
            self._history = self._history[1::2]

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
        with self._lock:
            bettors = [bettor for some in self._bettors.values() for bettor in some]
            history = np.array(self._history or [(0.0, *[0.0] * len(bettors))])
        for column, bettor in enumerate(bettors, start=1):
            # Each against its own line: what is above 0 has raised an alarm.
            over = (history[:, column] - bettor.threshold) / np.log(10)
            ax.plot(history[:, 0], over, label=bettor.label)
        ax.axhline(0.0, color="0.6", linestyle="--", linewidth=1)
        ax.set(xlabel="Rows", ylabel="Evidence against the promise (powers of ten; 0: alarm)")
        ax.legend(loc="best")
        return ax

    def __getstate__(self):
        with self._lock:
            # A deep copy: the books go on while this one is written.
            return deepcopy({k: value for k, value in vars(self).items() if k != "_lock"})

    def __setstate__(self, state):
        vars(self).update(state)
        self._lock = threading.Lock()


def _promises_of(choices):
    """Names and promises of the choices."""
    found = []
    for name, promise in (choices or {}).items():
        if not isinstance(name, str) or not isinstance(promise, ChoicePromise):
            raise ValueError(
                "choices must be a mapping from the name of each choice to a ChoicePromise, got "
                f"{name!r}: {promise!r}."
            )
        found.append((name, promise))
    return found


def _check_promise(promise, choice, loss_range, max_cost):
    """Refuse what is never, or always, broken."""
    of = "" if choice is None else f" of {choice!r}"
    for name, value in zip(promise._fields, promise):
        number = isinstance(value, Real) and not isinstance(value, bool | np.bool_)
        if value is not None and not (number and np.isfinite(value)):
            raise ValueError(f"{name}{of} must be a finite number or None, got {value!r}.")
    max_loss, budget = promise
    if max_loss is not None and not -loss_range < max_loss < loss_range:
        raise ValueError(
            f"max_loss{of}={max_loss!r} must lie between -loss_range and loss_range="
            f"{loss_range!r}: any other promise is never, or always, broken."
        )
    if budget is not None and budget <= 0:
        raise ValueError(f"budget{of} must be above 0, got {budget!r}.")
    if budget is not None and (max_cost is not None and max_cost <= budget):
        raise ValueError(f"max_cost={max_cost!r} must be above budget{of}={budget!r}.")


def _column(values, name, *, missing=False):
    """Numbers as a float column; None as an empty one."""
    if values is None:
        return np.empty(0)
    if isinstance(values, np.ma.MaskedArray) and values.mask.any():
        raise ValueError(f"{name} must be a finite number or one per row: some are masked.")
    given = np.asarray(values)
    column = np.atleast_1d(given).astype(np.float64) if given.dtype.kind in "biuf" else None
    if (
        column is None
        or column.ndim != 1
        or not (np.isfinite(column) | (missing & np.isnan(column))).all()
    ):
        raise ValueError(f"{name} must be a finite number or one per row.")
    return column
