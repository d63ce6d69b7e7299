"""Savings of a router: cost, quality and time, compared with references."""

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from skroute.metrics._curve import BudgetSweep, check_bills, find_router
from skroute.metrics._off_policy import (
    MeanEstimate,
    cost_of_deciding,
    count_seen,
    prepare_evaluation,
    read_log,
    skewness,
    with_interval,
)
from skroute.metrics._tradeoff import (
    RESAMPLING,
    BootstrapInterval,
    check_all_known,
    check_qualities_known,
    intervals,
    random_mix,
)
from skroute.utils._compat import Integral, Interval, Real, num_samples, validate_params
from skroute.utils._named import check_rows_match
from skroute.utils._optional import axes_of
from skroute.utils._plotting import LATER_COLOURS, REFERENCE_COLOUR, finish_axes
from skroute.utils._tables import Column, Table, format_value
from skroute.utils._typing import ArrayLike, NDArray
from skroute.utils._validation import check_numbers

# Names of rows of the table of savings: the router, and two of its references.
_ROUTER = "router"
_MIX = "random mix at no more cost"
_UNLIMITED = "without a budget"
# Name of the reference that costs at most as much as the router.
_BEST_WITHIN = "best single choice at no more cost"
# Name of the only reference of a log: the rule that made the logged choices.
_LOG_RULE = "rule of the log"
# End of a warning that the router was fitted on rows of the evaluation: the harm.
_TOO_GOOD = "its quality on them is too good"


class Saving(NamedTuple):
    """Savings of a router, compared with one reference.

    All numbers are means per row. A difference is positive if the router is better.

    Attributes
    ----------
    reference : str
        Name of the reference.

    cost, quality, seconds : float
        Means of the reference. `seconds` is NaN if seconds were not given.

    cost_saved : BootstrapInterval
        Cost of the reference minus cost of the router.

    share_saved : BootstrapInterval
        `cost_saved` as a share of the cost of the reference. NaN if the reference costs
        nothing.

    quality_gained : BootstrapInterval
        Quality of the router minus quality of the reference. Below 0 it is a loss.

    seconds_saved : BootstrapInterval
        Seconds of the reference minus seconds of the router.
    """

    reference: str
    cost: float
    quality: float
    seconds: float
    cost_saved: BootstrapInterval
    share_saved: BootstrapInterval
    quality_gained: BootstrapInterval
    seconds_saved: BootstrapInterval


@dataclass(frozen=True, eq=False, repr=False)
class Savings:
    """Result of :func:`savings` or :func:`off_policy_savings`.

    It prints as a short table.

    Attributes
    ----------
    cost, quality, seconds : float
        Means per row of the router. `seconds` is NaN if seconds were not given.

    compared : list of Saving
        What the router saves, for each reference.

    n_rows : int
        Number of rows.

    budget : float
        Budget of the router. Infinity is unlimited.

    billed : bool
        True if costs are bills. False if they are expected bills: bills come after the
        call, and were not given.

    confidence_level : float
        Confidence of each interval.

    cost_unit : str
        Unit of the costs.

    Examples
    --------
    >>> from skroute.metrics import Savings
    >>> Savings.__doc__.splitlines()[0]
    'Result of :func:`savings` or :func:`off_policy_savings`.'
    """

    cost: float
    quality: float
    seconds: float
    compared: list
    n_rows: int
    budget: float
    billed: bool
    confidence_level: float
    cost_unit: str = ""

    def __getitem__(self, reference):
        """Return the `Saving` of one reference, by its name."""
        for saving in self.compared:
            if saving.reference == reference:
                return saving
        names = [saving.reference for saving in self.compared]
        raise KeyError(f"There is no reference {reference!r} among {names!r}.")

    def to_frame(self):
        """Return the table as a data frame: rows for the router and each reference.

        Returns
        -------
        pandas.DataFrame
            The first row is that of the router. Columns are ``name``, ``cost``,
            ``quality``, ``seconds``, and ``cost_saved``, ``share_saved``,
            ``quality_gained`` and ``seconds_saved``, each with its ends ``..._low`` and
            ``..._high``. They are NaN in the row of the router.
        """
        return self._table().to_frame()

    def __repr__(self):
        return str(self._table())

    def _table(self):
        """Return the `Table` that is printed and becomes a frame."""
        names = [_ROUTER, *(saving.reference for saving in self.compared)]
        contenders = [self, *self.compared]
        cost_label = "cost" if self.billed else "expected cost"
        has_seconds = not np.isnan(self.seconds)
        columns = [
            Column("name", names, label=""),
            Column(
                "cost",
                [contender.cost for contender in contenders],
                label=cost_label,
                unit=self.cost_unit,
            ),
            Column("quality", [contender.quality for contender in contenders]),
            Column(
                "seconds",
                [contender.seconds for contender in contenders],
                in_text=has_seconds,
            ),
        ]
        for name in _DIFFERENCES:
            # The first row of the table is for the router.
            row_intervals = [_NO_INTERVAL]
            row_intervals += [getattr(saving, name) for saving in self.compared]
            # `cost_saved` is not printed: the column `share_saved` is in its place.
            is_printed = name != "cost_saved"
            if name == "seconds_saved":
                is_printed = has_seconds
            columns += _interval_columns(name, names, row_intervals, in_text=is_printed)
        # Infinity, which is unlimited, is printed as "no limit".
        budget = format_value(self.budget, infinite="no limit")
        title = f"Savings: {self.n_rows:,} rows, budget {budget}"
        note = (
            f"Means per row. Intervals of {self.confidence_level:.0%} are of the "
            "difference to the router, paired by row."
        )
        return Table(title, columns, notes=[note])

    def plot(self, *, ax: Any = None) -> Any:
        """Draw the share of the cost that is saved and the quality that is gained.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to draw on. None makes a new figure.

        Returns
        -------
        matplotlib Axes
        """
        ax = axes_of(self, ax)
        for position, saving in enumerate(self.compared):
            share = saving.share_saved
            gained = saving.quality_gained
            ax.errorbar(
                100 * share.estimate,
                gained.estimate,
                xerr=_bars(share, factor=100.0),
                yerr=_bars(gained, factor=1.0),
                fmt="o",
                color=LATER_COLOURS[position],
                fillstyle="none",
                # Two references are often the same model. The circle of the first one
                # is then inside the circle of the second one.
                markersize=6 + 4 * position,
                capsize=3,
                label=f"compared with {saving.reference}",
            )
        ax.axhline(0.0, color=REFERENCE_COLOUR, linestyle="--", linewidth=1)
        ax.axvline(0.0, color=REFERENCE_COLOUR, linestyle="--", linewidth=1)
        finish_axes(
            ax,
            xlabel=f"{'Cost' if self.billed else 'Expected cost'} saved (%)",
            ylabel="Quality gained",
            title="What the router saves and gains "
            f"({self.confidence_level:.0%} intervals)",
        )
        return ax


# Fields of `Saving` that are means of the reference.
_MEANS = ("cost", "quality", "seconds")
# Fields of `Saving` that are intervals.
_DIFFERENCES = ("cost_saved", "share_saved", "quality_gained", "seconds_saved")
# Entry of the router's own row: the router is not compared with itself.
_NO_INTERVAL = BootstrapInterval(
    estimate=np.nan, low=np.nan, high=np.nan, standard_error=np.nan, n_samples=0
)
# Labels of columns in the printed table.
_LABELS = {
    "share_saved": "router saves",
    "quality_gained": "router's quality",
    "seconds_saved": "router saves seconds",
}


def _interval_columns(name, contenders, row_intervals, *, in_text):
    """Return three columns for one difference: estimates and both ends of intervals.

    The printed table leaves the columns of the ends out.

    Parameters
    ----------
    name : str
        One of `_DIFFERENCES`.
    contenders : list of str
        Names of the rows of the table.
    row_intervals : list of BootstrapInterval
        One for each row.
    in_text : bool
        True if the printed table has the estimates.

    Returns
    -------
    list of Column
    """
    is_share = name == "share_saved"
    texts = []
    for contender, interval in zip(contenders, row_intervals):
        # Router and mix cost the same by construction. So no saving is printed.
        if is_share and contender == _MIX:
            texts.append("")
        else:
            texts.append(_difference_text(interval, is_share=is_share))
    columns = [
        Column(
            name,
            [interval.estimate for interval in row_intervals],
            label=_LABELS.get(name),
            texts=texts,
            in_text=in_text,
        )
    ]
    for end in ("low", "high"):
        ends = [getattr(interval, end) for interval in row_intervals]
        columns.append(Column(f"{name}_{end}", ends, in_text=False))
    return columns


def _difference_text(interval, *, is_share):
    """Return a difference with its interval as text, a share in per cent."""
    if np.isnan(interval.estimate):
        # The cell of an unknown difference is empty.
        return ""
    numbers = [interval.estimate, interval.low, interval.high]
    if is_share:
        estimate, low, high = [f"{number:.1%}" for number in numbers]
    else:
        estimate, low, high = [f"{number:+.4f}" for number in numbers]
    if np.isnan(interval.low):
        # The estimate has no interval.
        return estimate
    return f"{estimate} ({low} to {high})"


def _bars(interval, *, factor):
    """Return the lengths of an error bar below and above its point, times `factor`.

    The shape is (2, 1). `factor` is 100 for per cent, and 1 for the unit of the
    interval.
    """
    lengths = [
        interval.estimate - interval.low,
        interval.high - interval.estimate,
    ]
    return factor * np.array(lengths)[:, np.newaxis]


# Rows with every outcome --------------------------------------------------------------


class Contender(NamedTuple):
    """Outcomes of a router or of a reference on each row.

    Attributes
    ----------
    cost, quality, seconds : ndarray of shape (n_rows,)
        Cost, quality and time of each row. `seconds` is NaN if seconds were not given.
        In some functions, the fields are means over rows, or have a further axis of
        single choices.
    """

    cost: NDArray[np.float64]
    quality: NDArray[np.float64]
    seconds: NDArray[np.float64]


@validate_params({"cost_unit": [str], **RESAMPLING}, prefer_skip_nested_validation=True)
def savings(
    estimator: Any,
    X: Any,
    y: ArrayLike,
    *,
    costs: Any = None,
    seconds: Any = None,
    today: Any = None,
    budget: float | None = None,
    row_quality: Any = None,
    cost_unit: str = "",
    confidence_level: float = 0.95,
    n_resamples: int = 1000,
    random_state: Any = 0,
    **params: Any,
) -> Savings:
    """Compute what a fitted router saves on held-out rows, with paired intervals.

    The router is compared with the answers of today, the best single choice, the best
    single choice that costs no more than the router, and the random mix of single
    choices that costs as much as the router. All are evaluated on the same rows. The
    intervals are for the mean of the differences on each row. An estimator without
    single choices is compared with itself without a budget. The random mix has no share
    saved in the printed table. It costs less than the router if no mix that spends more
    is better.

    Parameters
    ----------
    estimator : estimator
        A fitted router or certified router, a pipeline that ends with one, or a search
        over one of these.

    X : array-like of shape (n_samples, n_features)
        Rows that the estimator has not been fitted on.

    y : array-like of shape (n_samples,) or (n_samples, n_columns)
        True answers, or the quality of each choice on each row, all known.

    costs : {array-like, dataframe} of shape (n_samples, n_choices), default=None
        Bills of each choice on each row, as in :func:`accuracy_cost_curve`. None takes
        the costs that the estimator reports.

    seconds : {array-like, dataframe} of shape (n_samples, n_choices), default=None
        Time that each choice takes on each row. None leaves times out.

    today : str or array-like of shape (n_samples,), default=None
        Name of the single choice that answers all rows today, or one name for each row.
        None leaves this reference out.

    budget : float, default=None
        Mean cost per sample. None takes the estimator's own budget.

    row_quality : callable, default=None
        As in :func:`accuracy_cost_curve`.

    cost_unit : str, default=""
        Unit of the costs, for the printed table.

    confidence_level, n_resamples, random_state
        As in :func:`bootstrap_interval`. The intervals do not include the variation
        between fits of the router.

    **params : keyword arguments
        Further arguments of ``predict_routed``.

    Returns
    -------
    Savings
        It prints as a table. ``to_frame()`` returns it as a data frame, and ``plot()``
        draws it. ``result["random mix at no more cost"]`` is one of its rows.

    Raises
    ------
    ValueError
        If outcomes are not known, a budget is not feasible, or `today` has a name that
        is not a single choice.

    TypeError
        If the costs of the estimator are fixed, and `costs` or `seconds` is given.

    See Also
    --------
    off_policy_savings : The same for a log of one answer per request.
    accuracy_cost_curve : Quality and cost at many budgets.

    Notes
    -----
    The best single choice is the best one on the rows of `fit`, if the estimator has
    the attribute ``mean_quality_``. Otherwise it is the best one on the test rows,
    where its quality is then too high on average. If a cheaper choice is nearly as
    good, the router saves much against the best choice, and little or nothing against
    the cheaper choice: read both lines.

    Examples
    --------
    >>> from sklearn.linear_model import Ridge
    >>> from skroute.datasets import make_routing_problem
    >>> from skroute.metrics import savings
    >>> from skroute.routing import BudgetRouter
    >>> problem = make_routing_problem(2000, n_models=3, n_features=2, random_state=0)
    >>> X, Q = problem.data, problem.quality
    >>> router = BudgetRouter(Ridge(), costs=problem.costs, budget=0.4)
    >>> router = router.fit(X[:1000], Q[:1000])
    >>> saved = savings(router, X[1000:], Q[1000:], n_resamples=100)
    >>> saved["random mix at no more cost"].quality_gained.low > 0
    True
    >>> print(saved)  # doctest: +ELLIPSIS
    Savings: 1,000 rows, budget 0.4
    ...
    """
    check_rows_match(X=X, y=y, costs=costs, seconds=seconds, today=today, **params)
    sweep = BudgetSweep(estimator, X, y, row_quality=row_quality, costs=costs, **params)
    if today is not None:
        # A wrong name is an error before any model is called.
        if not sweep.single_names:
            raise ValueError(
                f"today={today!r} must name single choices, but "
                f"{type(sweep.router).__name__} has none. Leave today out."
            )
        _columns_of_today(today, sweep.single_names, sweep.n_rows)
    if seconds is not None:
        seconds = _as_matrix(seconds)
        try:
            check_bills(sweep.router, sweep.n_rows, seconds)
        except (TypeError, ValueError) as error:
            error.add_note("This is about seconds, which are read as costs are.")
            raise
    check_qualities_known(sweep)
    # This warns if the router was fitted on many of the rows.
    count_seen(sweep.router, sweep.X, _TOO_GOOD)
    call = sweep.router.make_call(budget, **sweep.params)
    outcomes = sweep.outcomes(call.budget)
    # `check_all_known` takes and returns a table. This table has one column.
    quality_table = check_all_known(outcomes.quality[:, np.newaxis], "y")
    router = Contender(
        cost=outcomes.cost,
        quality=quality_table[:, 0],
        seconds=_seconds_of(sweep, sweep.router.plan(sweep.X, call), seconds),
    )
    router_cost = float(router.cost.mean())
    references = _references(sweep, call, router_cost, today=today, seconds=seconds)
    operating_budget = call.budget
    certificate = getattr(sweep.router, "certificate_", None)
    if certificate is not None:
        # The router works at a certified point within the budget of the call.
        operating_budget = min(operating_budget, certificate.operating_budget)
    return _compare(
        router,
        references,
        budget=operating_budget,
        billed=outcomes.billed,
        cost_unit=cost_unit,
        confidence_level=confidence_level,
        n_resamples=n_resamples,
        random_state=random_state,
    )


class References(NamedTuple):
    """Outcomes of the references, on the rows on which the router is evaluated.

    Attributes
    ----------
    named : dict from str to Contender
        References with an outcome on each row.
    singles : Contender or None
        Outcomes of all single choices, each of shape (n_rows, n_singles), for the
        random mix. None if there are no single choices.
    """

    named: dict[str, Contender]
    singles: Contender | None


def _seconds_of(sweep, plan, seconds):
    """Return the time of each row of a plan, NaN if no seconds were given.

    Parameters
    ----------
    sweep : BudgetSweep
        Its router bills the plan.
    plan : Plan
    seconds
        As in :func:`savings`.

    Returns
    -------
    ndarray of shape (n_rows,)
    """
    n_rows = len(plan.route)
    if seconds is None:
        return np.full(n_rows, np.nan)
    # `bill` sums seconds as if they were costs of calls, and adds the cost of deciding,
    # which is no time. The bill of a table of zeros is this cost. It is subtracted.
    seconds = _as_matrix(seconds)
    zeros = seconds * 0  # A frame keeps its names.
    seconds_and_deciding = sweep.router.bill(plan, seconds)
    deciding = sweep.router.bill(plan, zeros)
    return seconds_and_deciding - deciding


def _as_matrix(table):
    """Return a list of rows as an array. Frames and arrays stay as they are."""
    return table if hasattr(table, "shape") else check_numbers(table, "seconds")


def _references(sweep, call, router_cost, *, today, seconds):
    """Return the references that a router is compared with (`References`).

    Parameters
    ----------
    sweep : BudgetSweep
        Evaluation of the router on the test rows.
    call : Call
        The call of the router.
    router_cost : float
        Mean cost of the router on the test rows.
    today, seconds
        As in :func:`savings`.
    """
    singles = sweep.single_choices()
    if not singles.names:
        # The only reference is the router itself without a budget.
        unlimited = sweep.outcomes(np.inf)
        unlimited_call = sweep.router.make_call(np.inf, **sweep.params)
        plan = sweep.router.plan(sweep.X, unlimited_call)
        reference = Contender(
            cost=unlimited.cost,
            quality=unlimited.quality,
            seconds=_seconds_of(sweep, plan, seconds),
        )
        return References(named={_UNLIMITED: reference}, singles=None)
    check_all_known(singles.quality, "y")
    # Seconds of each single choice on each row. The shape is (n_rows, n_singles), as of
    # `singles.cost` and `singles.quality`.
    times = _seconds_of_singles(sweep, singles.names, call=call, seconds=seconds)
    named = {}
    if today is not None:
        # The column of the choice of the current system, for each row.
        label, columns = _columns_of_today(today, singles.names, sweep.n_rows)
        rows = np.arange(sweep.n_rows)
        named[label] = Contender(
            cost=singles.cost[rows, columns],
            quality=singles.quality[rows, columns],
            seconds=times[rows, columns],
        )
    mean_qualities = _means_of_singles(sweep.router, singles)
    best = int(np.argmax(mean_qualities))
    column_of_label = {f"best single choice: {singles.names[best]}": best}
    # The best choice may cost much more than another one that is nearly as good. So
    # the best choice that costs no more than the router is a reference, too.
    costs_no_more = singles.cost.mean(axis=0) <= router_cost
    # The quality -inf excludes choices that cost more than the router.
    qualities_within = np.where(costs_no_more, mean_qualities, -np.inf)
    best_within = int(np.argmax(qualities_within))
    is_any_within = qualities_within[best_within] > -np.inf
    if is_any_within and best_within != best:
        label = f"{_BEST_WITHIN}: {singles.names[best_within]}"
        column_of_label[label] = best_within
    for label, column in column_of_label.items():
        named[label] = Contender(
            cost=singles.cost[:, column],
            quality=singles.quality[:, column],
            seconds=times[:, column],
        )
    all_singles = Contender(cost=singles.cost, quality=singles.quality, seconds=times)
    return References(named=named, singles=all_singles)


def _seconds_of_singles(sweep, names, *, call, seconds):
    """Return the time that each single choice takes on each row, NaN if not given.

    Parameters
    ----------
    sweep : BudgetSweep
    names : list of str
        The single choices. Abstaining may be one of them.
    call : Call
        The call of the router.
    seconds
        As in :func:`savings`.

    Returns
    -------
    ndarray of shape (n_rows, n_singles)
        NaN if no seconds were given.
    """
    times = np.full((sweep.n_rows, len(names)), np.nan)
    if seconds is None:
        return times
    for column, name in enumerate(names):
        if name in sweep.router.single_choices_:
            plan = sweep.router.plan_single(sweep.X, name, call)
            times[:, column] = _seconds_of(sweep, plan, seconds)
        else:
            # Abstaining takes no time.
            times[:, column] = 0.0
    return times


def _columns_of_today(today, names, n_rows):
    """Return a name for the current system (`today`), and its choice for each row.

    Parameters
    ----------
    today : str or array-like of shape (n_rows,)
    names : list of str
        The single choices.
    n_rows : int

    Returns
    -------
    label : str
        Name of the reference.
    columns : ndarray of shape (n_rows,), dtype=int64
        Positions among `names`.
    """
    if isinstance(today, str):
        label = f"today: {today}"
        choices = np.full(n_rows, today, dtype=object)
    else:
        label = "today"
        choices = np.asarray(today, dtype=object)
    if choices.shape != (n_rows,):
        raise ValueError(
            f"today must be a name or have one name for each of {n_rows} rows, got "
            f"shape {choices.shape}."
        )
    position_of_name = {name: position for position, name in enumerate(names)}
    unknown = [name for name in choices if str(name) not in position_of_name]
    if unknown:
        raise ValueError(
            f"today has {unknown[0]!r}, which is not one of the single choices "
            f"{names!r}."
        )
    return label, np.array([position_of_name[str(name)] for name in choices])


def _means_of_singles(router, singles):
    """Return the mean quality of each single choice, by which the best one is found.

    If the router has means over the rows of `fit`, these are returned. Otherwise they
    are means over the test rows.

    Parameters
    ----------
    router : fitted decision estimator
    singles : SingleChoices
        Outcomes on the test rows.

    Returns
    -------
    ndarray of shape (n_singles,)
        Minus infinity for a choice that cannot be the best one.
    """
    # A certified router has no means of its own, but the estimator inside has.
    estimator = getattr(router, "estimator_", router)
    means = getattr(estimator, "mean_quality_", None)
    names = list(router.single_choices_)
    n_names = len(names)
    # `mean_quality_` has one entry for each of `choices_`. The entries are used only if
    # the single choices come first there, in the same order.
    singles_come_first = list(router.choices_)[:n_names] == names
    if means is None or not singles_come_first:
        means = singles.quality.mean(axis=0)
    # `singles` may have one more column than `names`, for abstaining. It cannot be the
    # best single choice.
    ranked = np.full(len(singles.names), -np.inf)
    ranked[:n_names] = np.asarray(means)[:n_names]
    # A choice of unknown quality (NaN) cannot be the best one either.
    return np.where(np.isnan(ranked), -np.inf, ranked)


def _compare(
    router,
    references,
    *,
    budget,
    billed,
    cost_unit,
    confidence_level,
    n_resamples,
    random_state,
):
    """Return what a router saves, compared with each reference.

    Parameters
    ----------
    router : Contender
        Outcomes of the router.
    references : References
    budget, billed, cost_unit, confidence_level
        Fields of `Savings`.
    n_resamples, random_state
        As in :func:`savings`.

    Returns
    -------
    Savings
    """
    # Three arrays of the router, then three arrays of each reference: cost, quality and
    # seconds.
    arrays = [router.cost, router.quality, router.seconds]
    for reference in references.named.values():
        arrays.extend(reference)
    names = list(references.named)
    if references.singles is not None:
        # The mix is computed from the means of all single choices.
        arrays.extend(references.singles)
        names.append(_MIX)
    # One interval for each field of each reference, one reference after the other.
    results = intervals(
        partial(_saving_fields_of_references, n_named=len(references.named)),
        arrays,
        confidence_level=confidence_level,
        n_resamples=n_resamples,
        random_state=random_state,
    )
    fields = [*_MEANS, *_DIFFERENCES]
    compared = []
    for position, name in enumerate(names):
        start = position * len(fields)
        values = dict(zip(fields, results[start : start + len(fields)]))
        for field in _MEANS:
            # A mean of the reference has no interval in `Saving`.
            values[field] = values[field].estimate
        compared.append(Saving(name, **values))
    return Savings(
        cost=float(router.cost.mean()),
        quality=float(router.quality.mean()),
        seconds=float(router.seconds.mean()),
        compared=compared,
        n_rows=len(router.cost),
        budget=float(budget),
        billed=billed,
        confidence_level=confidence_level,
        cost_unit=cost_unit,
    )


def _saving_fields_of_references(cost, quality, seconds, *means, n_named):
    """Return `Saving` fields of each reference, from means of router and references.

    Parameters
    ----------
    cost, quality, seconds : float
        Means of the router.
    *means : float or ndarray of shape (n_singles,)
        Cost, quality and seconds of each named reference. After them, if there are any,
        cost, quality and seconds of the single choices, for the random mix.
    n_named : int
        Number of named references.

    Returns
    -------
    ndarray of shape (n_references, n_fields)
        Fields are in the order of `_MEANS`, then `_DIFFERENCES`.
    """
    router = Contender(cost, quality, seconds)
    n_means = len(_MEANS)
    table = []
    for position in range(n_named):
        start = position * n_means
        reference = Contender(*means[start : start + n_means])
        table.append(_saving_fields(router, reference))
    # Empty if there are no single choices.
    means_of_singles = means[n_named * n_means :]
    if means_of_singles:
        mix = _mix_of(Contender(*means_of_singles), cost)
        table.append(_saving_fields(router, mix))
    return np.array(table)


def _saving_fields(router, reference):
    """Return the fields of `Saving` for one reference, as a list of floats.

    `router` and `reference` are `Contender` with means over rows. The fields are in the
    order of `_MEANS`, then `_DIFFERENCES`.
    """
    cost_saved = reference.cost - router.cost
    share_saved = np.nan  # A reference without cost leaves no share to save.
    if reference.cost > 0:
        share_saved = cost_saved / reference.cost
    return [
        *reference,
        cost_saved,
        share_saved,
        router.quality - reference.quality,
        reference.seconds - router.seconds,
    ]


def _mix_of(singles, cost):
    """Return the means of the best random mix of single choices at a mean cost.

    Parameters
    ----------
    singles : Contender
        Means of the single choices, each of shape (n_singles,).
    cost : float
        Mean cost of the mix.

    Returns
    -------
    Contender
        NaN if `cost` is below the cost of the cheapest choice.
    """
    # The corners of the best mixes, by rising cost. Each corner is a single choice.
    mix = random_mix(singles.cost, singles.quality)
    smallest_cost = mix.cost[0]
    # Above this cost no mix is better: the last corner is the best choice.
    largest_cost = mix.cost[-1]
    is_below = cost < smallest_cost
    if is_below and not np.isclose(cost, smallest_cost, atol=0.0):
        return Contender(cost=np.nan, quality=np.nan, seconds=np.nan)
    # A cost that is still below the smallest one is below it by rounding.
    cost = float(np.clip(cost, smallest_cost, largest_cost))
    quality = float(np.interp(cost, mix.cost, mix.quality))
    seconds_of_corners = []
    # A corner has the seconds of the single choice with its cost and quality.
    for corner_cost, corner_quality in zip(mix.cost, mix.quality):
        distance = np.abs(singles.cost - corner_cost)
        distance += np.abs(singles.quality - corner_quality)
        seconds_of_corners.append(singles.seconds[np.argmin(distance)])
    seconds = float(np.interp(cost, mix.cost, seconds_of_corners))
    return Contender(cost, quality, seconds)


# Logs of one answer per request -------------------------------------------------------


@validate_params(
    {
        "cost_unit": [str],
        "confidence_level": [Interval(Real, 0.0, 1.0, closed="neither")],
        "cv": [Interval(Integral, 2, None, closed="left")],
    },
    prefer_skip_nested_validation=True,
)
def off_policy_savings(
    estimator: Any,
    X: Any,
    q: ArrayLike,
    *,
    choice: ArrayLike,
    costs: ArrayLike,
    propensity: ArrayLike | None = None,
    seconds: ArrayLike | None = None,
    budget: float | None = None,
    cost_unit: str = "",
    confidence_level: float = 0.95,
    cv: int = 5,
    **params: Any,
) -> Savings:
    """Compute what a router would have saved on a log of one answer per request.

    The reference is the rule that wrote the log, whose outcomes are known. The
    difference on each row is estimated doubly robustly. The error of the mean
    difference is much smaller than the error of the router's mean in
    :func:`off_policy_curve`, because the rows on which router and log agree cancel.

    Parameters
    ----------
    estimator, X, q, choice, propensity, confidence_level, cv
        As in :func:`off_policy_curve`.

    costs : array-like of shape (n_samples,)
        Bill of the answer that was given.

    seconds : array-like of shape (n_samples,), default=None
        Time that the answer took. None leaves times out.

    budget : float, default=None
        Mean cost per sample. None takes the estimator's own budget.

    cost_unit : str, default=""
        Unit of the costs, for the printed table.

    **params : keyword arguments
        Further arguments of ``route``.

    Returns
    -------
    Savings
        With one reference, ``"rule of the log"``.

    Raises
    ------
    ValueError
        If the log has no overlap with the router. Also for values and shapes that a log
        cannot have.

    See Also
    --------
    savings : The same where the outcomes of all choices are known.

    Notes
    -----
    The difference of a row is its doubly robust term minus the logged outcome. The
    doubly robust term starts with the value that a model expects of the router's
    choice. Where router and log agree, the error of the model on the logged answer is
    added, times one over the propensity. Rows of unknown quality are left out.
    Intervals are computed as in :func:`off_policy_curve`.

    References
    ----------
    .. [1] M. Dudik, J. Langford, L. Li, "Doubly Robust Policy Evaluation and Learning",
       ICML 2011, equation 1.

    Examples
    --------
    >>> import numpy as np
    >>> from skroute.datasets import make_routing_problem
    >>> from skroute.metrics import off_policy_savings
    >>> from skroute.routing import BudgetRouter
    >>> problem = make_routing_problem(3000, n_models=2, n_features=2, random_state=0)
    >>> X, Q = problem.data, problem.quality
    >>> router = BudgetRouter(costs=problem.costs, budget=0.5).fit(X[:1000], Q[:1000])
    >>> rows = np.arange(2000)
    >>> choice = np.random.default_rng(0).integers(0, 2, 2000)
    >>> saved = off_policy_savings(
    ...     router,
    ...     X[1000:],
    ...     Q[1000:][rows, choice],
    ...     choice=choice,
    ...     costs=np.asarray(problem.costs)[choice],
    ...     propensity=np.full(2000, 0.5),
    ... )
    >>> saved["rule of the log"].quality_gained.low > 0
    True
    """
    check_rows_match(
        X=X,
        q=q,
        choice=choice,
        propensity=propensity,
        costs=costs,
        seconds=seconds,
        **params,
    )
    if costs is None:
        raise ValueError(
            "costs must have the bill of each answer, array-like of shape "
            f"({num_samples(X)},), got None."
        )
    router, X = find_router(estimator, X)
    names = [str(name) for name in router.choices_]
    log = read_log(
        names, num_samples(X), q=q, choice=choice, propensity=propensity, costs=costs
    )
    if seconds is not None:
        all_seconds = check_numbers(seconds, "seconds", shape=log.cost.shape, low=0.0)
    # This warns if the router was fitted on many of the rows.
    count_seen(router, X, _TOO_GOOD)
    call = router.make_call(budget, **params)
    plan = router.plan(X, call)
    evaluation = prepare_evaluation(
        X,
        log,
        routes=[plan.route],
        budgets=np.array([call.budget]),
        names=names,
        cv=cv,
        confidence_level=confidence_level,
    )
    # Positions of the rows of known quality. All terms below are for these rows.
    rows = evaluation.decisions.rows
    logged_cost = log.cost[rows]
    logged_quality = log.quality[rows]
    # The rule of the log pays for calls. The router also pays for deciding.
    call_terms = evaluation.doubly_robust_terms(log.cost, is_ratio=True)
    cost_terms = call_terms + cost_of_deciding(router, plan)[rows]
    quality_terms = evaluation.doubly_robust_terms(log.quality)
    # NaN: without `seconds`, nothing is known about times.
    logged_seconds = np.full(len(rows), np.nan)
    seconds_terms = logged_seconds
    if seconds is not None:
        logged_seconds = all_seconds[rows]
        seconds_terms = evaluation.doubly_robust_terms(all_seconds, is_ratio=True)
    saving = Saving(
        _LOG_RULE,
        cost=float(logged_cost.mean()),
        quality=float(logged_quality.mean()),
        seconds=float(logged_seconds.mean()),
        cost_saved=_interval_of(evaluation, logged_cost - cost_terms),
        share_saved=_interval_of(evaluation, _share_terms(logged_cost, cost_terms)),
        quality_gained=_interval_of(evaluation, quality_terms - logged_quality),
        seconds_saved=_interval_of(evaluation, logged_seconds - seconds_terms),
    )
    return Savings(
        cost=float(cost_terms.mean()),
        quality=float(quality_terms.mean()),
        seconds=float(seconds_terms.mean()),
        compared=[saving],
        n_rows=len(rows),
        budget=float(call.budget),
        billed=True,
        confidence_level=confidence_level,
        cost_unit=cost_unit,
    )


def _share_terms(logged_cost, cost_terms):
    """Return a term for each row. Their mean is the share of the cost that is saved.

    The share is a ratio of two means. To first order, its standard error is the
    standard error of the mean of these terms.

    Parameters
    ----------
    logged_cost : ndarray of shape (n_rows,)
    cost_terms : ndarray of shape (n_rows,)
        Terms of the router's cost.

    Returns
    -------
    ndarray of shape (n_rows,)
        NaN if the log costs nothing.
    """
    mean_cost = logged_cost.mean()
    if mean_cost == 0:
        return np.full(len(logged_cost), np.nan)
    share = 1 - cost_terms.mean() / mean_cost
    # Influence of each row on the share, by the delta method. Its mean is 0.
    influence = ((1 - share) * logged_cost - cost_terms) / mean_cost
    return share + influence


def _interval_of(evaluation, terms):
    """Return the mean of the terms of rows, with its interval (`BootstrapInterval`).

    Parameters
    ----------
    evaluation : LogEvaluation
        It has one budget. Its effective sample size gives the degrees of freedom.
    terms : ndarray of shape (n_rows,)
        If a term is NaN, which is not known, the result is NaN.

    Returns
    -------
    BootstrapInterval
    """
    n_rows = len(terms)
    if np.isnan(terms).any():
        return BootstrapInterval(
            estimate=np.nan,
            low=np.nan,
            high=np.nan,
            standard_error=np.nan,
            n_samples=n_rows,
        )
    mean = terms.mean()
    # The evaluation has one budget, so there is one effective size.
    (effective_size,) = evaluation.decisions.effective_sizes()
    estimate = with_interval(
        MeanEstimate(
            estimate=mean,
            standard_error=terms.std(ddof=1) / np.sqrt(n_rows),
            skewness=skewness(terms - mean),
        ),
        degrees=effective_size - 1,
        confidence_level=evaluation.confidence_level,
    )
    return BootstrapInterval(
        estimate=float(estimate.estimate),
        low=float(estimate.low),
        high=float(estimate.high),
        standard_error=float(estimate.standard_error),
        n_samples=n_rows,
    )
