"""What stands around an ensemble: pipelines, moved thresholds, frozen estimators."""

from typing import Any, NamedTuple

import numpy as np
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import FixedThresholdClassifier, TunedThresholdClassifierCV
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import has_fit_parameter

from skroute.base._inspection import is_frozen, unfrozen
from skroute.utils._compat import positive_label_of, raise_for_params


class Cut(NamedTuple):
    """Where the answer changes, if it was moved.

    Attributes
    ----------
    threshold : float
        The answer is the positive class where the response is at least this.

    response : {"predict_proba", "decision_function"}
    positive : label or None
        None is the second class.
    """

    threshold: float
    response: str
    positive: Any = None

    def positions(self, response, classes):
        """Position of each row's label among two classes, of the response of shape (n_samples,) or
        (n_samples, 2)."""
        second = self.positive is None or classes[1] == self.positive
        if self.response == "predict_proba":
            response = response[:, 1 if second else 0]
        elif not second:
            response = -response
        return ((response >= self.threshold) == second).astype(np.intp)


def weights_alone(model, params, owner):
    """Return what `fit` of a model gets without metadata routing: weights of rows, if any.

    Parameters
    ----------
    model : estimator object
        Fitted by `owner`, or frozen.

    params : dict
        The metadata that `fit` of `owner` was given.

    owner : estimator object
        For messages.

    Returns
    -------
    dict
        Empty, or with the entry "sample_weight".

    Raises
    ------
    ValueError
        If there is other metadata, or if `fit` of the model does not take weights.
    """
    params = {name: value for name, value in params.items() if value is not None}
    raise_for_params(params, owner, "fit", allow=["sample_weight"])
    if not params:
        return params
    if is_frozen(model):
        raise ValueError(
            f"sample_weight is for fit of the {type(unfrozen(model)).__name__}, which is fitted "
            "already. Leave it out."
        )
    if not has_fit_parameter(model, "sample_weight"):
        raise ValueError(
            f"sample_weight was given, but fit of the {type(model).__name__} does not take it. "
            "With sklearn.set_config(enable_metadata_routing=True) each model says by "
            "set_fit_request whether it does."
        )
    return params


def prepared(before, X):
    """Rows behind the transformers that stand before an ensemble."""
    for transformer in before:
        X = transformer.transform(X)
    return X


def take_apart(model):
    """The ensemble that a model, fitted or not, ends in, the transformers before it, which are
    applied one after the other, and the Cut, or None."""
    before, cut = (), None
    while True:
        if isinstance(model, FrozenEstimator):
            model = model.estimator
        elif isinstance(model, Pipeline):
            steps = [step for _, step in model.steps[:-1]]
            if any(step not in (None, "passthrough") for step in steps):
                before += (model[:-1],)
            model = model.steps[-1][1]
        elif isinstance(model, (FixedThresholdClassifier, TunedThresholdClassifierCV)):
            # The outermost one decides: the others pass probabilities on.
            cut = _cut(model) if cut is None else cut
            model = getattr(model, "estimator_", model.estimator)
        else:
            return model, before, cut


def _cut(model):
    inner = getattr(model, "estimator_", model.estimator)
    response = model.response_method
    if response == "auto":
        proba = hasattr(inner, "predict_proba")
        response = "predict_proba" if proba else "decision_function"
    if isinstance(model, FixedThresholdClassifier):
        threshold, positive = model.threshold, model.pos_label
        if threshold == "auto":
            threshold = 0.5 if response == "predict_proba" else 0.0
    else:
        threshold = getattr(model, "best_threshold_", 0.5)
        positive = positive_label_of(model)
    return Cut(float(threshold), response, positive)
