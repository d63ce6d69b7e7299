"""A pipeline with the cost protocol, which transforms only what was bought."""

from contextlib import ExitStack

import numpy as np
from sklearn.pipeline import Pipeline
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from skroute.base._delegation import DelegatedViewsMixin, inner_has
from skroute.features._groups import FeatureGroupsMixin
from skroute.features._lazy import LazyFeatures, RawRows
from skroute.utils._compat import num_samples, routing_enabled
from skroute.utils._frames import as_rows, is_mapping, names_and_columns
from skroute.utils._named import check_rows_match
from skroute.utils._validation import refuse_source

# Training rows on which it is verified that a transformer keeps groups apart.
_VERIFIED = 20_000


class CostAwarePipeline(DelegatedViewsMixin, Pipeline):
    """A :class:`~sklearn.pipeline.Pipeline` that ends in an estimator of skroute.

    It has the calls of the cost protocol, ``predict_routed``, ``predict_cost``, ``route``, and
    every call takes a `budget`. Where the last step buys features, such as
    :class:`~skroute.gating.AdaptGatingClassifier`,

    - its ``feature_groups`` and ``feature_costs`` name the *raw* columns, those that the first
      step sees, and the cost of a row is that of the raw columns behind what was used;
    - rows may be given as :class:`LazyFeatures`: the transformers are asked for one group of raw
      columns after the other, as rows buy them.

    Transformers must keep groups apart: each column that they make is made of raw columns of
    one group. `fit` verifies it on training rows, and names a transformer that mixes groups.

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
        Of the last step.

    classes_, n_features_in_, feature_names_in_, named_steps
        As in :class:`~sklearn.pipeline.Pipeline`.

    Raises
    ------
    ValueError
        In `fit`, if a transformer mixes columns of several groups; the message says what a row
        that uses it would cost.

    See Also
    --------
    LazyFeatures : Features fetched when a row needs them.

    Notes
    -----
    A group is transformed next to one training cell in each of the other columns, the first that
    is not missing. The results of the other columns are not used.

    Examples
    --------
    >>> import pandas as pd
    >>> from sklearn.compose import make_column_transformer
    >>> from sklearn.preprocessing import OneHotEncoder, StandardScaler
    >>> from skroute.features import CostAwarePipeline
    >>> from skroute.gating import SequentialFeatureClassifier
    >>> rows = pd.DataFrame({"sex": ["f", "m"] * 50, "age": range(100), "crp": [1.0, 9.0] * 50})
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
            Rows with all that can be bought.

        y : array-like of shape (n_samples,), default=None
            Targets.

        **params : dict
            As in :class:`~sklearn.pipeline.Pipeline`.

        Returns
        -------
        self
        """
        refuse_source(X)
        check_rows_match(X=X, y=y, **params)
        self._behind = None
        with ExitStack() as self._while_fitting:
            try:
                return super().fit(X, y, **params)
            finally:
                del self._while_fitting

    def _fit(self, X, y=None, *args, **kwargs):
        Xt = super()._fit(X, y, *args, **kwargs)
        last = self._final_estimator
        if not isinstance(last, FeatureGroupsMixin):
            return Xt
        if any(step not in (None, "passthrough") for _, step in self.steps[:-1]):
            raw = RawRows.of(X)
            group_names, raw_group_of = last._read_groups(raw.names)
            group_of, mixed = find_groups(self[:-1].transform, raw, X, raw_group_of)
            if len(mixed):
                raise ValueError(
                    f"The transformers mix columns of the groups "
                    f"{[group_names[group] for group in mixed]!r}: what they make of them cannot "
                    "be bought in parts, and would cost "
                    f"{last._group_costs(group_names)[mixed].sum():.6g} for each row. Give each "
                    "group a transformer of its own, in a ColumnTransformer, make one group of "
                    "them, or put the transformer into the models that need it."
                )
            self._behind = raw, raw_group_of, group_of
            self._while_fitting.enter_context(last._made_of(raw.names, group_of))
        return Xt.toarray() if hasattr(Xt, "toarray") else Xt

    # The cost protocol ----------------------------------------------------------------

    def decision_estimator(self):
        """Return the last step.

        Returns
        -------
        estimator
        """
        return self._final_estimator

    def _is_late(self, X):
        buys = isinstance(self._final_estimator, FeatureGroupsMixin)
        return buys and (isinstance(X, LazyFeatures) or is_mapping(X))

    def rows_for_decision(self, X):
        """Return what the last step gets.

        Parameters
        ----------
        X : {array-like, dataframe, mapping, LazyFeatures} of shape (n_samples, n_features)
            The rows. Features that are bought later are transformed when they are read.

        Returns
        -------
        array-like or LazyFeatures
        """
        check_is_fitted(self)
        last = self._final_estimator
        if self._is_late(X):
            return self._late(X if isinstance(X, LazyFeatures) else LazyFeatures(X))
        for _, transformer in self.steps[:-1]:
            if transformer not in (None, "passthrough"):
                X = transformer.transform(X)
        is_sparse = hasattr(X, "toarray") and isinstance(last, FeatureGroupsMixin)
        return X.toarray() if is_sparse else X

    def _late(self, lazy):
        """What the transformers will make of features that have yet to be bought."""
        if self._behind is None:
            return lazy
        raw, raw_group_of, group_of = self._behind
        seen, transform = self._final_estimator._column_names(), self[:-1].transform

        def source(columns, rows):
            outputs = [seen.index(column) for column in columns]
            bought = np.flatnonzero(np.isin(raw_group_of, group_of[outputs]))
            cells = lazy.fetch([raw.names[at] for at in bought], rows)
            return dense(transform(raw.rows(dict(zip(bought, cells)), len(rows))))[
                :, outputs
            ]

        return LazyFeatures(source, n_samples=len(lazy))

    @available_if(inner_has("predict"))
    def predict(self, X, **params):
        """Answers of the last step.

        Parameters
        ----------
        X : {array-like, dataframe, mapping, LazyFeatures} of shape (n_samples, n_features)
            The rows.

        **params : keyword arguments
            What the last step takes in a call, such as `budget`.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        if routing_enabled() and not self._is_late(X):
            return super().predict(X, **params)
        return self._call_inner("predict", X, **params)

    @available_if(inner_has("predict_proba"))
    def predict_proba(self, X, **params):
        """Class probabilities of the last step.

        Parameters
        ----------
        X : {array-like, dataframe, mapping, LazyFeatures} of shape (n_samples, n_features)
            The rows.

        **params : keyword arguments
            What the last step takes in a call, such as `budget`.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
        """
        if routing_enabled() and not self._is_late(X):
            return super().predict_proba(X, **params)
        return self._call_inner("predict_proba", X, **params)

    @available_if(inner_has("score"))
    def score(self, X, y=None, sample_weight=None, **params):
        """Score of the last step.

        Parameters
        ----------
        X : {array-like, dataframe, mapping, LazyFeatures} of shape (n_samples, n_features)
            The rows.

        y : array-like of shape (n_samples,), default=None
            True targets.

        sample_weight : array-like of shape (n_samples,), default=None
            Sample weights.

        **params : keyword arguments
            What the last step takes in a call, such as `budget`.

        Returns
        -------
        float
        """
        if sample_weight is not None:
            params["sample_weight"] = sample_weight
        if routing_enabled() and not self._is_late(X):
            return super().score(X, y, **params)
        return self._call_inner("score", X, y=y, **params)


def dense(table):
    """What a transformer returned as an array."""
    return np.asarray(table.toarray() if hasattr(table, "toarray") else table)


def find_groups(transform, raw, X, raw_group_of):
    """The group that each output of a transformer is made of, and groups that it mixes.

    Each group of training rows is transformed beside one row's cells in all other columns. An
    output belongs to the group that gives, alone, what all columns gave, on all rows looked at;
    one that is constant there, to the group of which another cell moves it.
    """
    X = as_rows(X)[:_VERIFIED]
    columns, n_rows = names_and_columns(X)[1], num_samples(X)
    whole = dense(transform(X))

    def same(groups):
        own = {at: columns[at] for at in np.flatnonzero(np.isin(raw_group_of, groups))}
        return _same(dense(transform(raw.rows(own, n_rows))), whole)

    every = np.arange(int(raw_group_of.max()) + 1)
    alone = np.array([same([group]) for group in every])
    mixed, lost = every[:0], ~alone.any(axis=0)
    if lost.any():
        mixed = every[[not same(every[every != group])[lost].all() for group in every]]
    group_of = alone.argmax(axis=0)
    if (constant := alone.sum(axis=0) > 1).any():
        moved = _moved_by(transform, raw, raw_group_of)
        group_of = np.where(constant & (moved >= 0), moved, group_of)
    return group_of, mixed


def _moved_by(transform, raw, raw_group_of):
    """The group whose cells move each output of one row; -1 where none does."""
    still = dense(transform(raw.rows({}, 1)))
    found = np.full(still.shape[1], -1)
    for group in np.unique(raw_group_of):
        for other in (_moved, lambda cell: None):
            cells = {
                at: [other(raw.filler[at])]
                for at in np.flatnonzero(raw_group_of == group)
            }
            try:
                moved = ~_same(dense(transform(raw.rows(cells, 1))), still)
            except (ValueError, TypeError):
                # What the transformer does not take.
                continue
            found[moved & (found < 0)] = group
    return found


def _moved(cell):
    return cell if cell is None or isinstance(cell, str) else 2 * cell + 1


def _same(ours, theirs):
    """Which columns are the same but for rounding."""
    if ours.dtype.kind == "O" or theirs.dtype.kind == "O":
        texts = (
            np.array([[str(v) for v in row] for row in part]) for part in (ours, theirs)
        )
        return np.equal(*texts).all(axis=0)
    return np.isclose(ours, theirs, rtol=1e-9, atol=1e-12, equal_nan=True).all(axis=0)
