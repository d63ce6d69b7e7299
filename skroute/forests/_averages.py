"""Random forests that estimators here have fitted for themselves, walked by compiled code."""

from weakref import WeakKeyDictionary

import numpy as np
from sklearn.ensemble import ExtraTreesRegressor, RandomForestRegressor

from skroute.forests._code_walk import leaf_sums
from skroute.forests._readers import averaged_regressor
from skroute.forests._rows import are_plain, rows_of

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
    read = type(model) in (RandomForestRegressor, ExtraTreesRegressor)
    members = vars(model).get("estimators_") if read else None
    # One that checks names, or was given a `predict`, has to look at the rows itself.
    if members is None or vars(model).keys() & {"feature_names_in_", "predict"}:
        return model.predict(X)
    kept = _READ.get(model)
    # A second fit makes another list, and one that goes on makes it longer.
    if kept is None or kept[0] is not members or kept[1] != len(members):
        kept = _READ[model] = members, len(members), averaged_regressor(model)
    forest = kept[2]
    if not are_plain(forest, X) or not np.isfinite(X).all():
        return model.predict(X)
    found = leaf_sums(forest, rows_of(forest, X))
    found /= len(members)
    return found[:, 0] if model.n_outputs_ == 1 else found
