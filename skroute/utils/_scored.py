"""Scores of estimators that inherit scikit-learn's `score`."""

from typing import Any

from skroute.utils._validation import check_truth


class CheckedScoreMixin:
    """Mixin that checks the true answers before scikit-learn's `score`.

    It stands before scikit-learn's mixin among the bases.
    """

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
            The score. Higher is better.

        Raises
        ------
        ValueError
            If a true answer is missing, or if rows have the same labels in another
            order.
        """
        check_truth(X=X, sample_weight=sample_weight, y=y)
        # The next class among the bases has scikit-learn's `score`.
        return super().score(X, y, sample_weight)  # type: ignore[misc]
