"""scikit-learn's checks on the methods that the common list has no instance of."""

from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import parametrize_with_checks

from tests.gating.kinds import adapt_of


@parametrize_with_checks(
    [
        adapt_of(LogisticRegression(), "lin", cv=2, max_iter=2, tol=0.1),
        adapt_of(LogisticRegression(), "lstsq", cv=2, max_iter=2, tol=0.1),
    ],
)
def test_sklearn_checks(estimator, check):
    check(estimator)
