"""FastForest: a fitted ensemble of trees, evaluated exactly and fast."""

from copy import deepcopy
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
from skroute.forests._wrapped import prepared, take_apart, weights_alone
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


def _classifies(self):
    forest = vars(self).get("forest_")
    if not (is_classifier(self) if forest is None else forest.classes is not None):
        raise AttributeError("Only the forest of a classifier has predict_proba.")
    return True


def _has_scores(self):
    forest = vars(self).get("forest_")
    if forest is None:
        reader = find_reader(take_apart(self.estimator)[0])
        averages = reader is not None and reader.averages_probabilities
    else:
        averages = forest.answer_rule.kind == "mean"
    if not _classifies(self) or averages:
        raise AttributeError(
            "A forest that averages probabilities has no decision_function."
        )
    return True


class FastForest(VersionedPickleMixin, MetaEstimatorMixin, BaseEstimator):
    """A fitted ensemble of trees, evaluated exactly and many times faster.

    Boosting, forests, bagging and AdaBoost of decision trees from LightGBM, XGBoost, CatBoost
    and scikit-learn, also at the end of a :class:`~sklearn.pipeline.Pipeline` and with a
    threshold that :class:`~sklearn.model_selection.FixedThresholdClassifier` or
    :class:`~sklearn.model_selection.TunedThresholdClassifierCV` moved. The answers are those
    of the library: the same trees, thresholds, treatment of missing values and categories,
    and the sum in the same order and precision. They are compared when the forest is built,
    and a difference is an error.

    Trees of at most 64 leaves are evaluated by bit vectors, in blocks of rows [1]_; larger
    ones by a walk from the root to a leaf on binned rows, few rows on the rows as they are.

    Parameters
    ----------
    estimator : estimator object, default=None
        The ensemble, or a pipeline that ends in one. It is cloned and fitted; a fitted one
        is passed as :class:`~sklearn.frozen.FrozenEstimator`, and :meth:`from_ensemble`
        does both steps. None only in a forest that was loaded from a file.

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
    skroute.early_exit.QWYCEnsemble : Evaluates fewer trees, where few settle the answer.

    Notes
    -----
    A pickle holds the arrays only: `estimator` is left out, and the library of the
    ensemble is not needed to load it. What is loaded answers; it cannot be fitted again.

    Sums are equal to the last bit, and so are labels. The order in which random forests
    add up depends on their threads: their averages differ by rounding.

    References
    ----------
    .. [1] C. Lucchese, F. M. Nardini, S. Orlando, R. Perego, N. Tonellotto, R. Venturini,
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
        """The forest of a fitted ensemble.

        Parameters
        ----------
        model : estimator object, lightgbm.Booster or xgboost.Booster
            Fitted.

        X : {array-like, dataframe} of shape (n_samples, n_features), default=None
            Rows on which answers are compared, beside rows at the thresholds of the
            trees. Needed where categories are text, and where names of columns that
            LightGBM was fitted on have spaces, which it replaces.

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
        frozen = FrozenEstimator(model) if hasattr(model, "fit") else None
        if frozen is not None:
            _check_is_fitted(model)
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
            Passed to ``fit`` of the ensemble by metadata routing. Without it, `sample_weight`
            alone is passed on, an array-like of shape (n_samples,).

        Returns
        -------
        self : FastForest
            The fitted estimator.

        Raises
        ------
        TypeError
            If `estimator` is no ensemble of trees that is read.

        ValueError
            If an option of it is not supported, or an answer differs. If weights are given, and
            its ``fit`` does not take them or it is frozen.
        """
        self._unfit()
        try:
            return self._validate_and_fit(X, y, params)
        except BaseException:
            self._unfit()
            raise

    @_fit_context(prefer_skip_nested_validation=False)
    def _validate_and_fit(self, X, y, params):
        if self.estimator is None:
            raise ValueError(
                "estimator=None has nothing to fit: give an ensemble, or call "
                "FastForest.from_ensemble(model). A forest from a file only answers."
            )
        _check_ensemble(self.estimator)
        check_rows_match(X=X, y=y, **params)
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
        validate_data(self, X, skip_check_array=True)
        return self._read(fitted, X)

    def _check_n_jobs(self):
        """Acts at once, so that each call asks."""
        n_jobs = self.n_jobs
        if n_jobs is not None and (
            not isinstance(n_jobs, (int, np.integer)) or n_jobs == 0
        ):
            raise ValueError(
                f"n_jobs={n_jobs!r} has no meaning: give a number of threads, -1 or None."
            )

    def _unfit(self):
        fitted = (
            "forest_ classes_ n_features_in_ feature_names_in_ _before _may_be_renamed"
        )
        for name in fitted.split():
            self.__dict__.pop(name, None)

    def get_metadata_routing(self) -> MetadataRouter:
        """How metadata is passed on.

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
        self._check_n_jobs()
        model = unfrozen(model)
        ensemble, before, cut = take_apart(model)
        forest = _forest_of(ensemble)
        at_thresholds = rows_at_thresholds(forest)
        if X is not None:
            refuse_tables(X)
            probes = varied_rows(
                as_rows(X), unseen=not forest.read_rule.columns.refuses_unseen
            )
            _compare(model, ensemble, before, forest.with_cut(cut), probes)
        elif at_thresholds is None or before:
            why = "are prepared by a pipeline" if before else "have categories of text"
            raise ValueError(f"The rows {why}: give rows X to compare answers on.")
        if at_thresholds is not None:
            probes = {"rows at the thresholds": at_thresholds}
            _compare(ensemble, ensemble, (), forest, probes)
        self.forest_ = forest.with_cut(cut)
        self._before = before
        if forest.classes is not None:
            self.classes_ = forest.classes
        if not hasattr(self, "n_features_in_"):
            self.n_features_in_ = forest.n_features
            if before:
                self.n_features_in_ = getattr(model, "n_features_in_", np.shape(X)[1])
            self._take_names(model, X)
        return self

    def _take_names(self, model, X):
        """Set `feature_names_in_` from a fitted model, and compare the columns of rows with it."""
        names = list(
            getattr(model, "feature_names_in_", getattr(model, "feature_names_", []))
        )
        # What LightGBM calls columns without names, and those that are numbered.
        generic = [
            [f"{name}{i}" for i in range(len(names))] for name in ("Column_", "")
        ]
        if names and names not in generic:
            self.feature_names_in_ = np.asarray(names, dtype=object)
        may_be_renamed = (
            self.forest_.read_rule.columns.ignores_names and not self._before
        )
        if X is None or not hasattr(X, "columns"):
            self._may_be_renamed = may_be_renamed
            return
        columns = column_keys(X)
        if may_be_renamed and self._are_other_names(columns):
            if all(isinstance(name, str) for name in columns):
                self.feature_names_in_ = np.asarray(columns, dtype=object)
        self._check_columns(X)

    def _are_other_names(self, columns):
        """Return whether a model of LightGBM has other names for the columns of the same frame.

        LightGBM writes underscores for spaces. Its `fit` can be given names of the user's
        (`feature_name=`), which need not be those of a frame: none of these is then among them.
        """
        if not hasattr(self, "feature_names_in_"):
            return False
        columns = [str(name).replace(" ", "_") for name in columns]
        names = list(self.feature_names_in_)
        return columns == names or not set(columns) & set(names)

    def _check_columns(self, X):
        """Compare names and number of the columns of rows with those of fit."""
        renamed = vars(self).get("_may_be_renamed", False)
        if renamed and hasattr(X, "columns") and self._are_other_names(column_keys(X)):
            # LightGBM takes them by their place. Their number is compared when they are read.
            return
        try:
            validate_data(self, X, reset=False, skip_check_array=True)
        except ValueError as error:
            if (
                not self.forest_.read_rule.columns.ignores_names
                or "feature names" not in str(error)
            ):
                raise
            raise ValueError(
                f"{error}If these names were given to fit of LightGBM (feature_name=), which takes "
                "columns by their place: give the rows as an array."
            ) from None

    def _scores(self, X):
        """Sums of the leaves."""
        if "forest_" not in vars(self):
            check_is_fitted(self, "forest_")
        if (
            self._before
            or hasattr(self, "feature_names_in_")
            or not are_plain(self.forest_, X)
        ):
            refuse_tables(X)
            if getattr(X, "ndim", 0) != 2 and not hasattr(X, "columns"):
                X = check_array(X, dtype=None, ensure_all_finite=False)
            self._check_columns(X)
            X = prepared(self._before, X)
        self._check_n_jobs()
        return exact_sums(self.forest_, rows_of(self.forest_, X), self.n_jobs)

    def predict(self, X: ArrayLike) -> np.ndarray:
        """What the ensemble predicts.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples,)
            Labels of a classifier, else numbers; for a booster what its own ``predict``
            returns, also of shape (n_samples, n_classes).
        """
        scores = self._scores(X)
        if self.forest_.classes is None:
            return answer(self.forest_, scores)
        positions = label_positions(self.forest_, scores)
        return labels_at(self.forest_, self.classes_, positions)

    @available_if(_classifies)
    def predict_proba(self, X: ArrayLike) -> np.ndarray:
        """Probabilities of the classes.

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
        """Sums of the leaves before any link.

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
        scores = self._scores(X)
        found = decision(self.forest_, scores)
        return found[:, 0] if found.shape[1] == 1 else found

    def score(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> float:
        """Accuracy of a classifier, or R2 of a regressor.

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
        return state | {"estimator": None} if "forest_" in state else state

    def __sklearn_clone__(self):
        # A forest from a file is what it is, as a frozen estimator.
        if self.estimator is None and hasattr(self, "forest_"):
            return self
        return super().__sklearn_clone__()

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        # Tags are asked for before parameters are validated: what has none is refused by fit.
        if hasattr(self.estimator, "__sklearn_tags__") and not isinstance(
            self.estimator, type
        ):
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
    """A TypeError unless there is a reader for what the estimator, fitted or not, ends in."""
    model, _, _ = take_apart(estimator)
    if find_reader(model) is None:
        raise TypeError(
            "FastForest takes ensembles of decision trees of LightGBM, XGBoost, CatBoost or "
            "scikit-learn (boosting, forests, bagging, AdaBoost) and pipelines that end in one, "
            f"got {type(model).__name__}."
        )


def _check_is_fitted(model):
    """Raise a NotFittedError unless a model, or a pipeline that ends in an ensemble, is fitted."""
    ensemble, _, _ = take_apart(model)
    # A sum of models of CatBoost has nothing of a fit, and tells so by this method alone.
    if not (hasattr(ensemble, "is_fitted") and ensemble.is_fitted()):
        check_is_fitted(model)


def _forest_of(model):
    """Return the forest of a fitted ensemble, as FastForest takes it."""
    forest = find_reader(model).read(model)
    if forest is None:
        raise ValueError(
            f"FastForest takes {type(model).__name__} of decision trees, got members of "
            f"{type(model.estimators_[0]).__name__}."
        )
    if forest.answer_rule.kind == "position" and forest.classes is None:
        raise ValueError(
            "The booster of XGBoost has the objective 'multi:softmax', which answers with "
            "positions of the classes: use 'multi:softprob'."
        )
    return forest


def _compare(model, ensemble, before, forest, probes):
    """Answers of a model, taken apart, beside those of its forest: raises at a difference."""

    classifies = forest.classes is not None

    def own(X):
        sums = own_sums(ensemble, prepared(before, X))
        found = {
            "sums": sums,
            "labels" if classifies else "numbers": own_predict(model, X),
        }
        return found | {"probabilities": own_proba(model, X) if classifies else None}

    def ours(X):
        scores = exact_sums(forest, rows_of(forest, prepared(before, X)))
        labels = forest.classes[label_positions(forest, scores)] if classifies else None
        numbers = answer(forest, scores)
        found = {"sums": decision(forest, scores), "labels": labels}
        return found | {"numbers": numbers, "probabilities": numbers}

    tolerance = max(forest.answer_rule.blur, 4 * np.finfo(forest.sum_rule.dtype).eps)
    compare(type(model).__name__, probes, own, ours, tolerance, tolerance)
