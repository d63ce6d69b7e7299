"""What can be seen of any estimator: whether it is trained, what it takes, who abstains."""

import numpy as np
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.frozen import FrozenEstimator
from sklearn.utils import get_tags

from skroute.utils._validation import warn

# Name of the choice that answers nothing.
ABSTAIN_NAME = "abstain"


def inherit_member_tags(tags, members):
    """Set input tags from the members: the estimator accepts what all members accept.

    Parameters
    ----------
    tags : sklearn.utils.Tags
        Tags of the meta-estimator, changed in place.

    members : iterable of estimators
        The models; one without tags is left to `fit` to refuse.

    Returns
    -------
    sklearn.utils.Tags
        The tags given.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from sklearn.utils import get_tags
    >>> from skroute.base import inherit_member_tags
    >>> tags = get_tags(LogisticRegression())
    >>> tags.input_tags.sparse
    True
    >>> inherit_member_tags(tags, [LogisticRegression(), GaussianNB()]).input_tags.sparse
    False
    """
    # Tags are asked for before parameters are validated: what has none is refused by fit.
    members = [member for member in members if hasattr(member, "__sklearn_tags__")]
    member_tags = [get_tags(member) for member in members]
    tags.input_tags.sparse = all(tag.input_tags.sparse for tag in member_tags)
    tags.input_tags.allow_nan = all(tag.input_tags.allow_nan for tag in member_tags)
    tags.input_tags.string = all(tag.input_tags.string for tag in member_tags)
    return tags


def is_frozen(model):
    """Return True if `fit` cannot train a model: it is frozen, or has no ``fit``."""
    return isinstance(model, FrozenEstimator) or not hasattr(model, "fit")


def comes_fitted(model):
    """Return True if `fit` does not train a model: it is frozen, recorded or remote.

    Such a model has not seen the rows of `fit`, and its labels may differ from those of y.
    """
    return isinstance(model, FrozenEstimator) or not get_tags(model).requires_fit


def unfrozen(model):
    """Return the estimator inside a FrozenEstimator, or the model itself."""
    return model.estimator if isinstance(model, FrozenEstimator) else model


def takes_keyword(estimator, keyword):
    """Return True if the calls of a decision estimator take a keyword."""
    parameters = getattr(estimator, "call_parameters", ())
    return keyword in [parameter.name for parameter in parameters]


def is_abstaining(name):
    """Return True if a choice of this name abstains, also after members ("cnn > abstain")."""
    return str(name).rpartition(" > ")[2] == ABSTAIN_NAME


def can_abstain(estimator):
    """Return True if a fitted estimator has a choice that abstains."""
    return getattr(estimator, "abstain_quality_", None) is not None


def abstained(estimator, route):
    """Return, for each row, whether its choice abstains: ndarray of bool."""
    if not can_abstain(estimator):
        return np.zeros(len(route), dtype=bool)
    abstains = np.array([is_abstaining(name) for name in estimator.choices_])
    # A route of -1 is a model that is not among the choices.
    return abstains[route] & (route >= 0)


def answered_rows(estimator, route):
    """Return the positions of the rows that are answered. Warn if there are none to score."""
    rows = np.flatnonzero(~abstained(estimator, route))
    if not len(rows):
        warn("Every row abstains: there is no answer to score.", UndefinedMetricWarning)
    return rows


def models_of(estimator):
    """Return the names of the choices of a fitted estimator that answer."""
    if not can_abstain(estimator):
        return list(estimator.choices_)
    return [name for name in estimator.choices_ if not is_abstaining(name)]
