"""A pipeline that ends in an estimator of skroute, and transforms bought cells only."""

from typing import NamedTuple

import numpy as np
from sklearn.pipeline import Pipeline
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from skroute.base._delegation import DelegatedViewsMixin, inner_has
from skroute.features._groups import FeatureGroupsMixin, RawColumns
from skroute.features._lazy import LazyFeatures, RawRows
from skroute.utils._compat import num_samples, routing_enabled
from skroute.utils._frames import as_rows, is_mapping, names_and_columns
from skroute.utils._named import check_rows_match
from skroute.utils._typing import NDArray
from skroute.utils._validation import refuse_source

# Largest number of training rows on which `fit` finds the group of each transformed
# column. It bounds the time of `fit`: each group transforms them once or twice.
_MAX_VERIFIED_ROWS = 20_000

# In place of the position of a group: no group's cells change the output.
_NO_GROUP = -1

# Relative difference up to which two outputs are the same. Transformers may sum in
# another order, which changes float64 by about 1e-16 of its value.
_SAME_RTOL = 1e-9

# Absolute difference up to which two outputs are the same. It matters only near 0,
# where relative differences are large.
_SAME_ATOL = 1e-12


class RawGroups(NamedTuple):
    """Group of each raw column of a pipeline, and of each output of its transformers.

    Attributes
    ----------
    raw : RawRows
        Makes rows from the cells of some raw columns.

    group_of_raw : ndarray of shape (n_raw_columns,), dtype=int
        Group of each raw column.

    group_of_output : ndarray of shape (n_outputs,), dtype=int
        Group of the raw columns that each output is made from.
    """

    raw: RawRows
    group_of_raw: NDArray[np.intp]
    group_of_output: NDArray[np.intp]


class CostAwarePipeline(DelegatedViewsMixin, Pipeline):
    """A :class:`~sklearn.pipeline.Pipeline` that ends in an estimator of skroute.

    It has the calls of the cost protocol, ``predict_routed``, ``predict_cost``,
    ``route``, and every call takes a `budget`. If the last step buys features, such as
    :class:`~skroute.gating.AdaptGatingClassifier`,

    - its ``feature_groups`` and ``feature_costs`` name the *raw* columns, those that
      the first step sees. The cost of a row is that of the raw columns behind the
      outputs that were used;
    - rows may be :class:`LazyFeatures`: raw columns are fetched and transformed in
      groups, as rows buy them.

    Transformers must keep groups apart: each of their outputs is made from raw columns
    of one group. `fit` verifies it on training rows, and names the groups that are
    mixed.

    Parameters
    ----------
    steps : list of tuples
        Names and estimators, as in :class:`~sklearn.pipeline.Pipeline`.

    transform_input : list of str, default=None
        As in :class:`~sklearn.pipeline.Pipeline`.

    memory : str or object with the joblib.Memory interface, default=None
        As in :class:`~sklearn.pipeline.Pipeline`.

    verbose : bool, default=False
        As in :class:`~sklearn.pipeline.Pipeline`.

    Attributes
    ----------
    choices_, min_budget_
        Attributes of the last step.

    classes_, n_features_in_, feature_names_in_, named_steps
        As in :class:`~sklearn.pipeline.Pipeline`.

    Raises
    ------
    ValueError
        In `fit`, if a transformer mixes columns of several groups. The message has the
        cost of a row that uses them.

    See Also
    --------
    LazyFeatures : Features fetched when a row needs them.

    Notes
    -----
    When a group is transformed, each of the other columns has one training cell in all
    rows, the first that is not missing. The outputs of the other columns are not used.

    Examples
    --------
    >>> import pandas as pd
    >>> from sklearn.compose import make_column_transformer
    >>> from sklearn.preprocessing import OneHotEncoder, StandardScaler
    >>> from skroute.features import CostAwarePipeline
    >>> from skroute.gating import SequentialFeatureClassifier
    >>> rows = pd.DataFrame(
    ...     {"sex": ["f", "m"] * 50, "age": range(100), "crp": [1.0, 9.0] * 50}
    ... )
    >>> encode = make_column_transformer(
    ...     (OneHotEncoder(), ["sex"]), (StandardScaler(), ["age", "crp"])
    ... )
    >>> buy = SequentialFeatureClassifier(
    ...     feature_groups={"form": ["sex", "age"], "blood": ["crp"]},
    ...     feature_costs={"form": 1, "blood": 20},
    ...     random_state=0,
    ... )
    >>> pipe = CostAwarePipeline([("encode", encode), ("buy", buy)])
    >>> _ = pipe.fit(rows, rows["sex"] == "f")
    >>> float(pipe.predict_cost(rows, budget=5).mean())
    1.0
    """

    def fit(self, X, y=None, **params):
        """Fit the transformers, then the last step on what they return.

        Parameters
        ----------
        X : {array-like, dataframe} of shape (n_samples, n_features)
            Rows with all columns that can be bought.

        y : array-like of shape (n_samples,), default=None
            Targets.

        **params : dict
            As in :class:`~sklearn.pipeline.Pipeline`.

        Returns
        -------
        self
            The fitted estimator.
        """
        refuse_source(X)
        check_rows_match(X=X, y=y, **params)
        # None: the transformers are all skipped, or the last step buys no features.
        self._raw_groups = None
        try:
            return super().fit(X, y, **params)
        finally:
            if self._raw_groups is not None:
                # `_fit` has set the raw columns for the fit of the last step only.
                # None: the parameters of this step name its own columns again.
                self._final_estimator._name_groups_by(None)

    def _fit(self, X, y=None, *args, **kwargs):
        """Fit the transformers, and name the groups of the last step by raw columns.

        Overrides a method of scikit-learn's Pipeline, which calls it before it fits the
        last step.

        Returns
        -------
        array-like
            The rows for the last step.
        """
        Xt = super()._fit(X, y, *args, **kwargs)
        last = self._final_estimator
        if not isinstance(last, FeatureGroupsMixin):
            return Xt
        if self._transformers():
            self._raw_groups = self._find_raw_groups(X)
            raw_columns = RawColumns(
                names=self._raw_groups.raw.names,
                group_of_output=self._raw_groups.group_of_output,
            )
            last._name_groups_by(raw_columns)
        return to_dense(Xt)

    def _transformers(self):
        """Return the steps before the last, without those that are skipped."""
        steps = [step for _, step in self.steps[:-1]]
        return [step for step in steps if step not in (None, "passthrough")]

    def _find_raw_groups(self, X):
        """Find the group of each raw column and output. No output may mix groups.

        Parameters
        ----------
        X : {array-like, dataframe} of shape (n_rows, n_raw_columns)
            Training rows, before the transformers.

        Returns
        -------
        RawGroups
        """
        last = self._final_estimator
        raw = RawRows.of(X)
        group_names, group_of_raw = last._read_groups(raw.names)
        outputs = find_groups(self[:-1].transform, raw, X, group_of_raw)
        if len(outputs.mixed):
            mixed_names = [group_names[group] for group in outputs.mixed]
            group_costs = last._group_costs(group_names)  # (n_groups,)
            mixed_cost = group_costs[outputs.mixed].sum()
            raise ValueError(
                f"The transformers mix columns of the groups {mixed_names!r}: what "
                "they make of them cannot be bought in parts, and would cost "
                f"{mixed_cost:.6g} for each row. Give each group a transformer of its "
                "own, in a ColumnTransformer, make one group of them, or put the "
                "transformer into the models that need it."
            )
        return RawGroups(
            raw=raw, group_of_raw=group_of_raw, group_of_output=outputs.group_of
        )

    # Calls of the cost protocol -------------------------------------------------------

    def decision_estimator(self):
        """Return the last step.

        Returns
        -------
        estimator
        """
        return self._final_estimator

    def _is_late(self, X):
        """Return True if the last step buys features, and `X` is a source of them."""
        buys_features = isinstance(self._final_estimator, FeatureGroupsMixin)
        is_source = isinstance(X, LazyFeatures) or is_mapping(X)
        return buys_features and is_source

    def rows_for_decision(self, X):
        """Return the rows that the last step gets.

        Parameters
        ----------
        X : array-like, dataframe, mapping or LazyFeatures
            Rows, of shape (n_samples, n_features). Features that are bought later are
            transformed when they are read.

        Returns
        -------
        array-like or LazyFeatures
        """
        check_is_fitted(self)
        if self._is_late(X):
            lazy = X if isinstance(X, LazyFeatures) else LazyFeatures(X)
            return self._transform_late(lazy)
        for transformer in self._transformers():
            X = transformer.transform(X)
        if isinstance(self._final_estimator, FeatureGroupsMixin):
            return to_dense(X)
        return X

    def _transform_late(self, lazy):
        """Return lazy features that are transformed when they are read.

        Parameters
        ----------
        lazy : LazyFeatures
            Raw features.

        Returns
        -------
        LazyFeatures
        """
        if self._raw_groups is None:
            return lazy  # all transformers are skipped
        source = TransformedSource(
            lazy=lazy,
            raw_groups=self._raw_groups,
            transform=self[:-1].transform,
            output_names=self._final_estimator._column_names(),
        )
        return LazyFeatures(source, n_samples=len(lazy))

    @available_if(inner_has("predict"))
    def predict(self, X, **params):
        """Return the answers of the last step.

        Parameters
        ----------
        X : array-like, dataframe, mapping or LazyFeatures
            Rows, of shape (n_samples, n_features).

        **params : keyword arguments
            Parameters of a call of the last step, such as `budget`.

        Returns
        -------
        ndarray of shape (n_samples,)
            The answers, one for each row.
        """
        if routing_enabled() and not self._is_late(X):
            return super().predict(X, **params)
        return self._call_inner("predict", X, **params)

    @available_if(inner_has("predict_proba"))
    def predict_proba(self, X, **params):
        """Return the class probabilities of the last step.

        Parameters
        ----------
        X : array-like, dataframe, mapping or LazyFeatures
            Rows, of shape (n_samples, n_features).

        **params : keyword arguments
            Parameters of a call of the last step, such as `budget`.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Probabilities of the classes.
        """
        if routing_enabled() and not self._is_late(X):
            return super().predict_proba(X, **params)
        return self._call_inner("predict_proba", X, **params)

    @available_if(inner_has("score"))
    def score(self, X, y=None, sample_weight=None, **params):
        """Return the score of the last step.

        Parameters
        ----------
        X : array-like, dataframe, mapping or LazyFeatures
            Rows, of shape (n_samples, n_features).

        y : array-like of shape (n_samples,), default=None
            True targets.

        sample_weight : array-like of shape (n_samples,), default=None
            Sample weights.

        **params : keyword arguments
            Parameters of a call of the last step, such as `budget`.

        Returns
        -------
        float
            The score. Higher is better.
        """
        if sample_weight is not None:
            params["sample_weight"] = sample_weight
        if routing_enabled() and not self._is_late(X):
            return super().score(X, y, **params)
        return self._call_inner("score", X, y=y, **params)


class TransformedSource:
    """Source of transformed features, which fetches the raw columns behind them.

    It is the parameter `source` of :class:`LazyFeatures`.

    Parameters
    ----------
    lazy : LazyFeatures
        The raw features.

    raw_groups : RawGroups
        Groups of the raw columns and of the outputs.

    transform : callable
        Transforms rows of all raw columns.

    output_names : list
        Name of each output of the transformers.
    """

    def __init__(self, *, lazy, raw_groups, transform, output_names):
        self.lazy = lazy
        self.raw_groups = raw_groups
        self.transform = transform
        self.output_names = output_names

    def __call__(self, columns, rows):
        """Return some outputs of the transformers for some rows.

        Parameters
        ----------
        columns : list
            Names of the outputs.

        rows : ndarray of int of shape (n_rows,)

        Returns
        -------
        ndarray of shape (n_rows, len(columns))
        """
        raw = self.raw_groups.raw
        output_positions = [self.output_names.index(column) for column in columns]
        groups = self.raw_groups.group_of_output[output_positions]
        # All raw columns of these groups are fetched.
        is_fetched = np.isin(self.raw_groups.group_of_raw, groups)  # (n_raw_columns,)
        raw_positions = np.flatnonzero(is_fetched)
        raw_names = [raw.names[position] for position in raw_positions]
        columns_of_cells = self.lazy.fetch(raw_names, rows)
        cells_of_position = dict(zip(raw_positions, columns_of_cells))
        # The other raw columns are filled: no output that is returned reads them.
        raw_rows = raw.rows(cells_of_position, len(rows))
        outputs = to_array(self.transform(raw_rows))  # (n_rows, n_outputs)
        return outputs[:, output_positions]


def to_dense(table):
    """Return a sparse matrix as an array, and any other table as it is.

    Estimators that buy features take no sparse matrices.
    """
    if hasattr(table, "toarray"):
        return table.toarray()
    return table


def to_array(table):
    """Return the output of a transformer as an array, (n_rows, n_outputs)."""
    return np.asarray(to_dense(table))


# Groups of raw columns behind the outputs of transformers -----------------------------


class OutputGroups(NamedTuple):
    """Group of raw columns that each output of the transformers is made from.

    Attributes
    ----------
    group_of : ndarray of shape (n_outputs,), dtype=int
        Group of the raw columns that each output is made from. It has no meaning if
        `mixed` has groups.

    mixed : ndarray of int
        Groups that some output is made from together. Empty if each output is made from
        one group.
    """

    group_of: NDArray[np.intp]
    mixed: NDArray[np.intp]


def find_groups(transform, raw, X, group_of_raw):
    """Find the group that each output of the transformers is made from.

    Each group is transformed alone: in training rows, each column of the other groups
    has the same cell in all rows. There are three cases.

    - One group reproduces an output alone. The output belongs to this group.
    - Several groups reproduce an output, as it is constant on these rows. The output
      belongs to the group whose cells change it.
    - No group reproduces an output. It is made from several groups, which are then in
      `mixed`. The caller refuses them.

    Parameters
    ----------
    transform : callable
        Transforms rows of all raw columns.

    raw : RawRows

    X : {array-like, dataframe} of shape (n_rows, n_raw_columns)
        Training rows. Only the first `_MAX_VERIFIED_ROWS` of them are transformed.

    group_of_raw : ndarray of shape (n_raw_columns,), dtype=int
        Group of each raw column.

    Returns
    -------
    OutputGroups
    """
    verified_rows = as_rows(X)[:_MAX_VERIFIED_ROWS]
    probe = _GroupProbe(transform, raw, verified_rows, group_of_raw)
    groups = np.arange(int(group_of_raw.max()) + 1)
    # True if a group reproduces an output alone. (n_groups, n_outputs)
    reproduces = np.array([probe.reproduced_by([group]) for group in groups])
    is_mixed_output = ~reproduces.any(axis=0)
    mixed = []
    if is_mixed_output.any():
        # A group is mixed if all other groups together do not reproduce a mixed output.
        for group in groups:
            without_group = probe.reproduced_by(groups[groups != group])
            if not without_group[is_mixed_output].all():
                mixed.append(group)
    # The first group that reproduces the output. For a mixed output this is 0, which
    # is not used: the caller refuses mixed groups.
    group_of = reproduces.argmax(axis=0)
    # An output that several groups reproduce is constant on these rows.
    is_constant = reproduces.sum(axis=0) > 1
    if is_constant.any():
        changed_by = probe.group_that_changes()
        # An output that no group changes stays with the first group.
        is_changed = is_constant & (changed_by != _NO_GROUP)
        group_of = np.where(is_changed, changed_by, group_of)
    return OutputGroups(group_of=group_of, mixed=np.array(mixed, dtype=np.intp))


class _GroupProbe:
    """Transformation of rows that keep the cells of some groups and fill all others.

    Parameters
    ----------
    transform : callable
        Transforms rows of all raw columns.

    raw : RawRows
        Makes rows from the cells of some raw columns.

    X : {array-like, dataframe} of shape (n_rows, n_raw_columns)
        Training rows.

    group_of_raw : ndarray of int of shape (n_raw_columns,)
        Group of each raw column.
    """

    def __init__(self, transform, raw, X, group_of_raw):
        self.transform = transform
        self.raw = raw
        self.group_of_raw = group_of_raw
        # One series or array of shape (n_rows,) for each raw column.
        _, self.columns = names_and_columns(X)
        self.n_rows = num_samples(X)
        # The true outputs, from the cells of all groups. (n_rows, n_outputs)
        self.outputs = to_array(transform(X))

    def reproduced_by(self, groups):
        """Return True for outputs that the columns of some groups alone reproduce.

        Parameters
        ----------
        groups : sequence of int
            Positions of the groups.

        Returns
        -------
        ndarray of bool of shape (n_outputs,)
        """
        cells = {}
        for column in np.flatnonzero(np.isin(self.group_of_raw, groups)):
            cells[column] = self.columns[column]
        outputs_of_groups = self._transform_cells(cells, self.n_rows)
        return _same_columns(outputs_of_groups, self.outputs)

    def group_that_changes(self):
        """Return the first group whose cells change each output, or `_NO_GROUP`.

        The cells are changed to other ones, then to missing ones.

        Returns
        -------
        ndarray of int of shape (n_outputs,)
        """
        # One row, in which each column has its first training cell that is not missing.
        unchanged = self._transform_cells({}, n_rows=1)
        n_outputs = unchanged.shape[1]
        changed_by = np.full(n_outputs, _NO_GROUP)
        for group in np.unique(self.group_of_raw):
            columns = np.flatnonzero(self.group_of_raw == group)
            for change in (_other_cell, _missing_cell):
                # One changed cell for each column of the group, in a single row.
                cells = {
                    column: [change(self.raw.filler[column])] for column in columns
                }
                try:
                    changed = self._transform_cells(cells, n_rows=1)
                except (ValueError, TypeError):
                    # The transformer does not take such a cell.
                    continue
                is_changed = ~_same_columns(changed, unchanged)
                changed_by[is_changed & (changed_by == _NO_GROUP)] = group
        return changed_by

    def _transform_cells(self, cells, n_rows):
        """Transform rows with cells for some columns and constants in all others.

        Parameters
        ----------
        cells : dict from int to array-like of shape (n_rows,)
            Cells of some raw columns, by the position of the column.

        n_rows : int

        Returns
        -------
        ndarray of shape (n_rows, n_outputs)
        """
        return to_array(self.transform(self.raw.rows(cells, n_rows)))


def _other_cell(cell):
    """Return a number that differs from the number in a cell.

    A text and a missing cell (None) stay as they are.
    """
    if cell is None or isinstance(cell, str):
        return cell
    # The result differs from the cell, except for -1, which stays.
    return 2 * cell + 1


def _missing_cell(cell):
    """Return a missing cell, which is None."""
    return None


def _same_columns(first, second):
    """Return True for columns of two tables that are the same up to rounding.

    Parameters
    ----------
    first, second : ndarray of shape (n_rows, n_columns)

    Returns
    -------
    ndarray of bool of shape (n_columns,)
    """
    # Kind O: objects, which are compared by their texts.
    if first.dtype.kind == "O" or second.dtype.kind == "O":
        to_text = np.frompyfunc(str, 1, 1)
        return (to_text(first) == to_text(second)).all(axis=0)
    is_same = np.isclose(
        first, second, rtol=_SAME_RTOL, atol=_SAME_ATOL, equal_nan=True
    )
    return is_same.all(axis=0)
