"""Scores of estimators that take scikit-learn's own."""

from typing import Any

from skroute.utils._validation import check_truth


class CheckedScoreMixin:
    """Mixin for estimators with scikit-learn's `score`: it stands before scikit-learn's mixin."""

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Score the answers: accuracy of a classifier, R2 of a regressor.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.

        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            True answers, none of them missing.

        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows.

        Returns
        -------
        float

        Raises
        ------
        ValueError
            If a true answer is missing, or if rows have the same labels in another
            order.
        """
        check_truth(X=X, sample_weight=sample_weight, y=y)
        # A mixin: the estimator has the score of scikit-learn behind it.
        return super().score(X, y, sample_weight)  # type: ignore[misc]
