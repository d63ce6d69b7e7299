"""scikit-learn's checks on the methods that the common list has no instance of."""

from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import parametrize_with_checks

from skroute.gating import AdaptGatingClassifier


@parametrize_with_checks(
    [
        AdaptGatingClassifier(LogisticRegression(), method="lin", cv=2, max_iter=2, tol=0.1),
        AdaptGatingClassifier(LogisticRegression(), method="lstsq", cv=2, max_iter=2, tol=0.1),
    ],
    xfail_strict=True,
)
def test_sklearn_checks(estimator, check):
    check(estimator)
