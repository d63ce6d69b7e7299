"""Random forests that estimators here have fitted for themselves, walked by compiled code."""

from weakref import WeakKeyDictionary

import numpy as np
from sklearn.ensemble import ExtraTreesRegressor, RandomForestRegressor

from skroute.forests._code_walk import leaf_sums
from skroute.forests._readers import averaged_regressor

# Beside the models rather than on them: nothing of it is pickled, cloned or shown.
_READ: WeakKeyDictionary = WeakKeyDictionary()


def average_of(model, X):
    """What ``predict`` of a regressor answers, of a forest of scikit-learn many times faster.

    scikit-learn goes through checks and a call of joblib for each of the trees, which takes
    longer than the trees do.

    Parameters
    ----------
    model : fitted regressor
        One that is no forest, or whose class derives from one, answers by itself.

    X : ndarray of shape (n_samples, n_features)
        Rows that are no array of floats, or hold what is not finite, are the model's own affair.

    Returns
    -------
    ndarray of shape (n_samples,) or (n_samples, n_outputs)
        The model's own numbers, to the last bit.
    """
    rows = None
    if type(model) in (RandomForestRegressor, ExtraTreesRegressor):
        rows = _plain_rows(model, X)
    if rows is None:
        return model.predict(X)
    members = model.estimators_
    kept = _READ.get(model)
    # A second fit makes another list, and one that goes on makes it longer.
    if kept is None or kept[0] is not members or kept[1] != len(members):
        kept = _READ[model] = members, len(members), averaged_regressor(model)
    found = leaf_sums(kept[2], rows)
    found /= len(members)
    return found[:, 0] if model.n_outputs_ == 1 else found


def _plain_rows(model, X):
    """Rows as the trees read them; None where the model has to look at them itself."""
    own = {"feature_names_in_", "predict"}
    if (
        type(X) is not np.ndarray
        or X.dtype not in (np.float32, np.float64)
        or vars(model).keys() & own
    ):
        return None
    if X.shape[1:] != (getattr(model, "n_features_in_", -1),) or len(X) == 0:
        return None
    with np.errstate(over="ignore"):
        rows = X.astype(np.float32, copy=False)
    return rows if np.isfinite(rows).all() else None
