"""What a library itself answers, where its call differs from scikit-learn's."""

import sys

import numpy as np

_SUMS = "RawFormulaVal"


def comes_from(model, package):
    """Whether the class of a model, or one that it derives from, is of a package."""
    return any(cls.__module__.split(".")[0] == package for cls in type(model).__mro__)


def is_xgboost_booster(model):
    """Whether a model is a raw booster of XGBoost, which takes rows in a class of its own."""
    return comes_from(model, "xgboost") and not hasattr(model, "get_booster")


def own_predict(model, X, raw=False):
    """What ``predict`` of a model answers.

    Parameters
    ----------
    model : object
        Fitted.

    X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
    raw : bool, default=False
        Whether sums of leaves are asked for, of LightGBM, XGBoost and CatBoost.

    Returns
    -------
    ndarray of shape (n_samples,) or (n_samples, n_outputs)
        A single column, which CatBoost has of labels, is flat.
    """
    if is_xgboost_booster(model):
        rows = sys.modules["xgboost"].DMatrix(X, enable_categorical=True)
        return model.predict(rows, output_margin=raw, validate_features=False)
    if raw and comes_from(model, "xgboost"):
        return model.predict(X, output_margin=True)
    if not raw:
        found = np.asarray(model.predict(X))
    elif comes_from(model, "catboost"):
        # Rankers answer with sums, and have no parameter for it.
        ranks = any(cls.__name__ == "CatBoostRanker" for cls in type(model).__mro__)
        found = np.asarray(model.predict(X, **({} if ranks else {"prediction_type": _SUMS})))
    else:
        found = np.asarray(model.predict(X, raw_score=True))
    return found[:, 0] if found.ndim == 2 and found.shape[1] == 1 else found
