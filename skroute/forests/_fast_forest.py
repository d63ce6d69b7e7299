"""FastForest: a fitted ensemble of trees, evaluated exactly and fast."""

from copy import deepcopy
from functools import partial
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone, is_classifier
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils import check_array, get_tags
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, validate_data

from skroute.base import note_failure
from skroute.base._inspection import unfrozen
from skroute.forests._answers import (
    answer,
    decision,
    exact_sums,
    label_positions,
    labels_at,
)
from skroute.forests._library import (
    compare,
    own_predict,
    own_proba,
    own_sums,
    rows_at_thresholds,
    varied_rows,
)
from skroute.forests._readers import find_reader
from skroute.forests._rows import are_plain, refuse_tables, rows_of
from skroute.forests._wrapped import (
    TakenApart,
    prepared,
    take_apart,
    weights_alone,
)
from skroute.utils._compat import (
    HasMethods,
    Integral,
    _fit_context,
    num_samples,
    process_routing,
    routing_enabled,
)
from skroute.utils._frames import as_rows, column_keys
from skroute.utils._named import check_rows_match
from skroute.utils._pickles import VersionedPickleMixin
from skroute.utils._typing import ArrayLike
from skroute.utils._validation import check_truth, check_weights

# Attributes that `fit` sets. `_transformers` prepare the rows for the ensemble.
# `_may_be_renamed` is True if the columns of a data frame may have other names than
# `feature_names_in_`, see `_take_names`.
_FITTED_ATTRIBUTES = (
    "forest_",
    "classes_",
    "n_features_in_",
    "feature_names_in_",
    "_transformers",
    "_may_be_renamed",
)
# Prefixes of the names that LightGBM ("Column_0", ...) and CatBoost ("0", ...) give to
# the columns of an array.
_PREFIXES_OF_NUMBERED_COLUMNS = ("Column_", "")
# Tolerated difference between the forest and its library in probabilities and in
# predicted numbers, in units of the machine epsilon of the sums. Sums and labels must
# be equal.
_ROUNDINGS_OF_ANSWER = 4


def _classifies(self):
    """Return True if `self`, a `FastForest`, has `predict_proba`, or raise an error.

    The error is an AttributeError, as `available_if` needs.
    """
    forest = vars(self).get("forest_")
    if forest is None:
        has_classes = is_classifier(self)
    else:
        has_classes = forest.classes is not None
    if not has_classes:
        raise AttributeError("Only the forest of a classifier has predict_proba.")
    return True


def _has_scores(self):
    """Return True if `self` (FastForest) has `decision_function`, or raise an error.

    The error is an AttributeError, as `available_if` needs.
    """
    # Raises an AttributeError for a regressor, which has no `decision_function`.
    _classifies(self)
    forest = vars(self).get("forest_")
    if forest is None:
        # Before `fit`, the reader of the ensemble decides.
        reader = find_reader(take_apart(self.estimator).ensemble)
        averages = reader is not None and reader.averages_probabilities
    else:
        averages = forest.answer_rule.kind == "mean"
    if averages:
        raise AttributeError(
            "A forest that averages probabilities has no decision_function."
        )
    return True


class FastForest(VersionedPickleMixin, MetaEstimatorMixin, BaseEstimator):
    """A fitted ensemble of trees, evaluated exactly and many times faster.

    It takes boosting, forests, bagging and AdaBoost of decision trees from LightGBM,
    XGBoost, CatBoost and scikit-learn. The ensemble may be at the end of a
    :class:`~sklearn.pipeline.Pipeline`, and its threshold may be moved by
    :class:`~sklearn.model_selection.FixedThresholdClassifier` or
    :class:`~sklearn.model_selection.TunedThresholdClassifierCV`.

    The answers are those of the library: trees, thresholds, and the treatment of
    missing values and categories are the same, and sums have the same order and
    precision. Answers are compared when the forest is built, and a difference is an
    error.

    Trees of at most 64 leaves are evaluated by bit vectors, in blocks of rows [1]_.
    Larger trees are walked from the root to a leaf, on binned rows. Few rows are walked
    as they are.

    Parameters
    ----------
    estimator : estimator object, default=None
        The ensemble, or a pipeline that ends in one. It is cloned and fitted. A fitted
        ensemble is passed inside of a :class:`~sklearn.frozen.FrozenEstimator`. It is
        easier to call :meth:`from_ensemble`. None in a forest that was loaded from a
        file, or made from a raw booster.

    n_jobs : int, default=None
        Threads for blocks of rows. None is 1 unless in a
        :func:`joblib.parallel_config` context, -1 all processors.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels, of a classifier.

    n_features_in_ : int
        Number of columns.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of the columns, where the ensemble was fitted on a data frame.

    forest_ : Forest
        The trees as arrays, and how the library adds them up and answers.

    See Also
    --------
    skroute.early_exit.QWYCEnsemble : Stops evaluating trees early.

    Notes
    -----
    A pickle holds the arrays only: `estimator` is left out, and the library of the
    ensemble is not needed to load it. A loaded forest answers, but cannot be fitted
    again.

    Sums are equal to the last bit, and so are labels. The order in which random forests
    add up depends on their threads: their averages differ by rounding.

    References
    ----------
    .. [1] C. Lucchese, F. M. Nardini, S. Orlando, R. Perego, N. Tonellotto,
           R. Venturini,
           "QuickScorer: a Fast Algorithm to Rank Documents with Additive Ensembles of
           Regression Trees", SIGIR 2015.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.ensemble import HistGradientBoostingClassifier
    >>> from skroute.forests import FastForest
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = HistGradientBoostingClassifier(max_iter=20).fit(X, y)
    >>> fast = FastForest.from_ensemble(model)
    >>> np.array_equal(fast.predict_proba(X), model.predict_proba(X))
    True
    """

    _parameter_constraints: dict = {
        "estimator": [HasMethods(["fit", "predict"]), None],
        "n_jobs": [Integral, None],
    }

    def __init__(self, estimator: Any = None, *, n_jobs: int | None = None) -> None:
        self.estimator = estimator
        self.n_jobs = n_jobs

    @classmethod
    def from_ensemble(
        cls, model: Any, X: ArrayLike | None = None, *, n_jobs: int | None = None
    ) -> Self:
        """Return the forest of a fitted ensemble.

        Parameters
        ----------
        model : estimator object, lightgbm.Booster or xgboost.Booster
            Fitted.

        X : {array-like, dataframe} of shape (n_samples, n_features), default=None
            Rows on which answers are compared, in addition to rows at the thresholds of
            the trees. They are needed if a pipeline prepares the rows, or if categories
            are text. They are also needed if names of columns that LightGBM was fitted
            on have spaces, which it replaces.

        n_jobs : int, default=None
            Threads for blocks of rows.

        Returns
        -------
        FastForest
            Fitted.

        Raises
        ------
        TypeError
            If the model is no ensemble of trees that is read.

        ValueError
            If an option of the model is not supported, or an answer differs.
        """
        model = unfrozen(model)
        _check_ensemble(model)
        # A booster is not an estimator: it cannot be frozen.
        frozen = None
        if hasattr(model, "fit"):
            _check_is_fitted(model)
            frozen = FrozenEstimator(model)
        return cls(frozen, n_jobs=n_jobs)._read(model, X)

    def fit(self, X: ArrayLike, y: ArrayLike | None = None, **params: Any) -> Self:
        """Fit the ensemble, unless it is frozen, and read its trees.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            Rows.

        y : array-like of shape (n_samples,), default=None
            Targets.

        **params : dict
            Passed to ``fit`` of the ensemble by metadata routing. Without it,
            `sample_weight` alone is passed on, an array-like of shape (n_samples,).

        Returns
        -------
        self : FastForest
            The fitted estimator.

        Raises
        ------
        TypeError
            If `estimator` is no ensemble of trees that is read.

        ValueError
            If an option of the ensemble is not supported, or an answer differs. If
            weights are given, but the ensemble is frozen or its ``fit`` does not take
            them.
        """
        # A fit that fails leaves no fitted attribute behind.
        self._unfit()
        try:
            return self._validate_and_fit(X, y, params)
        except BaseException:
            self._unfit()
            raise

    @_fit_context(prefer_skip_nested_validation=False)
    def _validate_and_fit(self, X, y, params):
        """Fit the ensemble unless it is frozen, and convert its trees to `forest_`.

        `params` are the metadata that :meth:`fit` was given, such as `sample_weight`.
        The decorator checks the parameters of ``__init__`` first.
        """
        if self.estimator is None:
            raise ValueError(
                "estimator=None has nothing to fit: give an ensemble, or call "
                "FastForest.from_ensemble(model). A forest from a file only answers."
            )
        _check_ensemble(self.estimator)
        check_rows_match(X=X, y=y, **params)
        # The metadata that `fit` of the ensemble gets.
        if routing_enabled():
            params = process_routing(self, "fit", **params)["estimator"]["fit"]
        else:
            params = weights_alone(self.estimator, params, self)
        check_weights(params, num_samples(X))
        if isinstance(self.estimator, FrozenEstimator):
            _check_is_fitted(unfrozen(self.estimator))
            return self._read(self.estimator, X)
        with note_failure(type(self.estimator).__name__, num_samples(X), "fit"):
            fitted = clone(self.estimator).fit(X, y, **params)
        # Sets `n_features_in_` and `feature_names_in_`.
        validate_data(self, X, skip_check_array=True)
        return self._read(fitted, X)

    def _check_n_jobs(self):
        """Raise a ValueError unless `n_jobs` is None or an integer other than 0.

        A fitted forest uses a changed `n_jobs` at once, so that each call checks it.
        """
        n_jobs = self.n_jobs
        if n_jobs is None:
            return
        if not isinstance(n_jobs, (int, np.integer)) or n_jobs == 0:
            raise ValueError(
                f"n_jobs={n_jobs!r} has no meaning: give a number of threads, -1 or "
                "None."
            )

    def _unfit(self):
        """Delete all attributes that `fit` sets."""
        for name in _FITTED_ATTRIBUTES:
            self.__dict__.pop(name, None)

    def get_metadata_routing(self) -> MetadataRouter:
        """Return the routing of metadata.

        Returns
        -------
        MetadataRouter
            From ``fit`` to ``fit`` of the ensemble.
        """
        mapping = MethodMapping().add(caller="fit", callee="fit")
        return MetadataRouter(owner=self).add(
            estimator=self.estimator, method_mapping=mapping
        )

    def _read(self, model, X):
        """Read a fitted model, compare answers with it, and set fitted attributes.

        Parameters
        ----------
        model : object
            Fitted ensemble, or a model around one.

        X : {array-like, sparse matrix, dataframe} or None
            Rows on which answers are compared.

        Returns
        -------
        self : FastForest
        """
        self._check_n_jobs()
        model = unfrozen(model)
        parts = take_apart(model)
        forest = _forest_of(parts.ensemble)
        _check_answers(model, parts, forest=forest, X=X)
        # `cut` is the threshold of a threshold classifier of scikit-learn. It is None
        # if the model has no such threshold.
        self.forest_ = forest.with_cut(parts.cut)
        self._transformers = parts.transformers
        if forest.classes is not None:
            self.classes_ = forest.classes
        # If the ensemble was fitted just now, `_validate_and_fit` has set the columns.
        if not hasattr(self, "n_features_in_"):
            self.n_features_in_ = _n_columns_of(model, parts, forest=forest, X=X)
            self._take_names(model, X)
        return self

    def _take_names(self, model, X):
        """Set `feature_names_in_` from a fitted model, and check the columns of rows.

        Parameters
        ----------
        model : object
        X : {array-like, sparse matrix, dataframe} or None
        """
        names = _names_of_columns(model)
        if names:
            self.feature_names_in_ = np.asarray(names, dtype=object)
        ignores_names = self.forest_.read_rule.columns.ignores_names
        may_be_renamed = ignores_names and not self._transformers
        if X is None or not hasattr(X, "columns"):
            # `X` is not a data frame. A data frame of a later call may have other names
            # than `feature_names_in_`.
            self._may_be_renamed = may_be_renamed
            return
        columns = column_keys(X)
        if may_be_renamed and self._are_other_names(columns):
            # The names of this data frame become `feature_names_in_`.
            if all(isinstance(name, str) for name in columns):
                self.feature_names_in_ = np.asarray(columns, dtype=object)
        self._check_columns(X)

    def _are_other_names(self, columns):
        """Return True if `columns` may be other names of the columns seen in `fit`.

        LightGBM writes underscores in place of spaces: the names are then equal up to
        this change. Its `fit` can be given names (`feature_name=`) that differ from
        those of the frame: the two lists then have no name in common.

        Parameters
        ----------
        columns : list of str
            Names of the columns of rows.

        Returns
        -------
        bool
        """
        if not hasattr(self, "feature_names_in_"):
            return False
        columns = [str(name).replace(" ", "_") for name in columns]
        names = list(self.feature_names_in_)
        return columns == names or set(columns).isdisjoint(names)

    def _check_columns(self, X):
        """Raise a ValueError unless rows have the columns seen in `fit`."""
        may_be_renamed = vars(self).get("_may_be_renamed", False)
        if may_be_renamed and hasattr(X, "columns"):
            if self._are_other_names(column_keys(X)):
                # LightGBM takes columns by their position. Their number is checked when
                # the rows are read.
                return
        try:
            validate_data(self, X, reset=False, skip_check_array=True)
        except ValueError as error:
            ignores_names = self.forest_.read_rule.columns.ignores_names
            if not ignores_names or "feature names" not in str(error):
                raise
            raise ValueError(
                f"{error}If these names were given to fit of LightGBM (feature_name=), "
                "which takes columns by their place: give the rows as an array."
            ) from None

    def _scores(self, X):
        """Check rows of any kind, and return the sums of their leaves.

        They are an array of shape (n_samples, n_outputs), before any link.
        """
        if "forest_" not in vars(self):
            check_is_fitted(self, "forest_")
        # Checks take longer than the trees of one row. A plain array needs no check,
        # unless there are names or transformers.
        needs_checks = bool(self._transformers) or hasattr(self, "feature_names_in_")
        if needs_checks or not are_plain(self.forest_, X):
            refuse_tables(X)
            # Lists become arrays. An array without two dimensions raises an error.
            if getattr(X, "ndim", 0) != 2 and not hasattr(X, "columns"):
                X = check_array(X, dtype=None, ensure_all_finite=False)
            self._check_columns(X)
            X = prepared(self._transformers, X)
        self._check_n_jobs()
        rows = rows_of(self.forest_, X)
        return exact_sums(self.forest_, rows, n_jobs=self.n_jobs)

    def predict(self, X: ArrayLike) -> np.ndarray:
        """Return the predictions of the ensemble.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples,)
            Labels of a classifier, or numbers of a regressor. For a booster, the result
            of its own ``predict``, which may have shape (n_samples, n_classes).
        """
        scores = self._scores(X)
        if self.forest_.classes is None:
            return answer(self.forest_, scores)
        positions = label_positions(self.forest_, scores)
        return labels_at(self.forest_, self.classes_, positions=positions)

    @available_if(_classifies)
    def predict_proba(self, X: ArrayLike) -> np.ndarray:
        """Return the probabilities of the classes.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            In the order of ``classes_``, in the precision of the library.
        """
        scores = self._scores(X)
        return answer(self.forest_, scores)

    @available_if(_has_scores)
    def decision_function(self, X: ArrayLike) -> np.ndarray:
        """Return the sums of the leaves, before any link.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_classes)
            The ``decision_function`` of scikit-learn, ``raw_score`` of LightGBM and
            ``output_margin`` of XGBoost.
        """
        scores = decision(self.forest_, self._scores(X))
        if scores.shape[1] == 1:
            return scores[:, 0]
        return scores

    def score(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> float:
        """Return the accuracy of a classifier, or R2 of a regressor.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            Rows.

        y : array-like of shape (n_samples,)
            True answers.

        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows.

        Returns
        -------
        float
            As the ensemble's own.
        """
        check_truth(X=X, sample_weight=sample_weight, y=y)
        y_pred = self.predict(X)
        measure = r2_score if self.forest_.classes is None else accuracy_score
        return float(measure(y, y_pred, sample_weight=sample_weight))

    def __getstate__(self):
        state = super().__getstate__()
        if "forest_" in state:
            # A fitted forest answers without its ensemble, and without its library.
            return state | {"estimator": None}
        return state

    def __sklearn_clone__(self):
        # A forest from a file or of a raw booster cannot be fitted again: the clone is
        # the same object, as for a frozen estimator.
        if self.estimator is None and hasattr(self, "forest_"):
            return self
        # The clone of any other forest is not fitted.
        return super().__sklearn_clone__()

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        # Tags are needed before parameters are validated. `fit` refuses an estimator
        # without tags.
        is_instance = not isinstance(self.estimator, type)
        if is_instance and hasattr(self.estimator, "__sklearn_tags__"):
            tags = deepcopy(get_tags(self.estimator))
            tags.target_tags.multi_output = False
            if tags.classifier_tags is not None:
                tags.classifier_tags.multi_label = False
        elif hasattr(self, "classes_"):
            tags.estimator_type = "classifier"
        elif hasattr(self, "forest_"):
            tags.estimator_type = "regressor"
        return tags


def _check_ensemble(estimator):
    """Raise a TypeError unless an estimator ends in an ensemble that has a reader."""
    ensemble = take_apart(estimator).ensemble
    if find_reader(ensemble) is None:
        raise TypeError(
            "FastForest takes ensembles of decision trees of LightGBM, XGBoost, "
            "CatBoost or scikit-learn (boosting, forests, bagging, AdaBoost) and "
            f"pipelines that end in one, got {type(ensemble).__name__}."
        )


def _check_is_fitted(model):
    """Raise a NotFittedError unless a model around an ensemble is fitted."""
    ensemble = take_apart(model).ensemble
    # A sum of models of CatBoost has no fitted attribute, but this method.
    if hasattr(ensemble, "is_fitted") and ensemble.is_fitted():
        return
    check_is_fitted(model)


def _forest_of(ensemble):
    """Return the forest of a fitted ensemble, or raise an error if it has none.

    Parameters
    ----------
    ensemble : object
        Fitted ensemble that has a reader.

    Returns
    -------
    Forest

    Raises
    ------
    ValueError
        If the members of the ensemble are not trees, or it answers with positions of
        labels that it does not store.
    """
    forest = find_reader(ensemble).read(ensemble)
    if forest is None:
        raise ValueError(
            f"FastForest takes {type(ensemble).__name__} of decision trees, got "
            f"members of {type(ensemble.estimators_[0]).__name__}."
        )
    if forest.answer_rule.kind == "position" and forest.classes is None:
        raise ValueError(
            "The booster of XGBoost has the objective 'multi:softmax', which answers "
            "with positions of the classes: use 'multi:softprob'."
        )
    return forest


def _n_columns_of(model, parts, forest, X):
    """Return the number of columns that a model was fitted on.

    Parameters
    ----------
    model : object
    parts : TakenApart
        The ensemble in the model, and the parts around it.

    forest : Forest
    X : {array-like, sparse matrix, dataframe} or None
        Rows. Not None if there are transformers.

    Returns
    -------
    int
    """
    if not parts.transformers:
        return forest.n_features
    if hasattr(model, "n_features_in_"):
        return model.n_features_in_
    return np.shape(X)[1]


def _names_of_columns(model):
    """Return the names of the columns that a model was fitted on, [] without names."""
    names = getattr(model, "feature_names_in_", None)
    if names is None:
        names = getattr(model, "feature_names_", [])
    names = list(names)
    for prefix in _PREFIXES_OF_NUMBERED_COLUMNS:
        if names == [f"{prefix}{i}" for i in range(len(names))]:
            return []
    return names


def _check_answers(model, parts, forest, X):
    """Raise a ValueError if a forest answers some rows otherwise than its library.

    For rows of the user, answers are compared with those of the whole model. For rows
    at the thresholds, they are compared with those of the ensemble alone.

    Parameters
    ----------
    model : object
    parts : TakenApart
        The ensemble in the model, and the parts around it.

    forest : Forest
        The forest of the ensemble.

    X : {array-like, sparse matrix, dataframe} or None
        Rows of the user.
    """
    # None if the forest has categories of text, which cannot be drawn.
    threshold_rows = rows_at_thresholds(forest)
    if X is not None:
        refuse_tables(X)
        # Rows with new categories are tested if the library reads them.
        unseen = not forest.read_rule.columns.refuses_unseen
        probes = varied_rows(as_rows(X), unseen=unseen)
        moved_forest = forest.with_cut(parts.cut)
        _compare(model, parts, forest=moved_forest, probes=probes)
    elif parts.transformers:
        raise ValueError(
            "The rows are prepared by a pipeline: give rows X to compare answers on."
        )
    elif threshold_rows is None:
        raise ValueError(
            "The rows have categories of text: give rows X to compare answers on."
        )
    if threshold_rows is not None:
        ensemble = parts.ensemble
        alone = TakenApart(ensemble=ensemble, transformers=(), cut=None)
        probes = {"rows at the thresholds": threshold_rows}
        _compare(ensemble, alone, forest=forest, probes=probes)


def _compare(model, parts, forest, probes):
    """Raise a ValueError if a forest and a model answer test rows differently.

    Parameters
    ----------
    model : object
    parts : TakenApart
        The ensemble in the model, and the parts around it.

    forest : Forest
        With the model's threshold.

    probes : dict from str to rows
        Test rows by what is in them.
    """
    precision = np.finfo(forest.sum_rule.dtype).eps
    tolerance = max(forest.answer_rule.blur, _ROUNDINGS_OF_ANSWER * precision)
    classifies = forest.classes is not None
    compare(
        type(model).__name__,
        probes,
        library_answers=partial(_library_answers, model, parts, classifies),
        forest_answers=partial(_forest_answers, forest, parts.transformers),
        rtol=tolerance,
        atol=tolerance,
    )


def _library_answers(model, parts, classifies, X):
    """Return the answers of a library's model to rows, by the kind of answer.

    Parameters
    ----------
    model : object
    parts : TakenApart
        Of the model.

    classifies : bool
        True if the model has labels.

    X : {array-like, sparse matrix, dataframe}

    Returns
    -------
    dict from str to ndarray or None
        Keys are as in `_forest_answers`. None if the library has no such answer.
    """
    answers = {"sums": own_sums(parts.ensemble, prepared(parts.transformers, X))}
    if classifies:
        answers["labels"] = own_predict(model, X)
        answers["probabilities"] = own_proba(model, X)
    else:
        answers["numbers"] = own_predict(model, X)
    return answers


def _forest_answers(forest, transformers, X):
    """Return the answers of a forest to rows, by the kind of answer.

    Parameters
    ----------
    forest : Forest
    transformers : tuple of fitted transformers
        They prepare the rows.

    X : {array-like, sparse matrix, dataframe}

    Returns
    -------
    dict from str to ndarray
        ``"sums"``, and ``"numbers"`` or ``"labels"`` and ``"probabilities"``.
    """
    scores = exact_sums(forest, rows_of(forest, prepared(transformers, X)))
    answers = {"sums": decision(forest, scores)}
    if forest.classes is None:
        answers["numbers"] = answer(forest, scores)
    else:
        answers["labels"] = forest.classes[label_positions(forest, scores)]
        answers["probabilities"] = answer(forest, scores)
    return answers
