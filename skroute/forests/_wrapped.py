"""Models around an ensemble: pipelines, moved thresholds, frozen estimators."""

from typing import Any, NamedTuple

import numpy as np
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import FixedThresholdClassifier, TunedThresholdClassifierCV
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import has_fit_parameter

from skroute.base._inspection import is_frozen, unfrozen
from skroute.utils._compat import positive_label_of, raise_for_params

# Thresholds at which scikit-learn's classifiers decide: of probabilities and of scores.
_EVEN_PROBABILITY = 0.5
_EVEN_SCORE = 0.0


class Cut(NamedTuple):
    """A decision threshold of a classifier of two classes, moved by the user.

    Attributes
    ----------
    threshold : float
        The answer is the positive class if the response is at least this.

    response : {"predict_proba", "decision_function"}
        Method whose result is compared with the threshold.

    positive : label or None
        The positive class. None is the second class.
    """

    threshold: float
    response: str
    positive: Any = None

    def positions(self, response, classes):
        """Return the position of each row's label among the two classes.

        Parameters
        ----------
        response : ndarray of shape (n_samples,) or (n_samples, 2)
            Scores of the second class, or probabilities of both.

        classes : ndarray of shape (2,)

        Returns
        -------
        ndarray of shape (n_samples,), dtype=intp
        """
        # A `positive` of None stands for the second class.
        is_second = self.positive is None or classes[1] == self.positive
        # The response of the positive class, (n_samples,).
        if self.response == "predict_proba":
            column = 1 if is_second else 0
            positive_response = response[:, column]
        elif is_second:
            positive_response = response
        else:
            positive_response = -response
        is_positive = positive_response >= self.threshold
        # Position 1 is the second class. If this is the positive class, rows at or
        # above the threshold get 1. Otherwise, the rows below get 1.
        return (is_positive == is_second).astype(np.intp)


def weights_alone(model, params, owner):
    """Return the `sample_weight` in `params`, or raise an error for other metadata.

    This is the metadata that `fit` of a model gets without metadata routing.

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
    # An entry that is None was not given.
    params = {name: value for name, value in params.items() if value is not None}
    raise_for_params(params, owner, "fit", allow=["sample_weight"])
    if not params:
        return params
    if is_frozen(model):
        raise ValueError(
            f"sample_weight is for fit of the {type(unfrozen(model)).__name__}, which "
            "is fitted already. Leave it out."
        )
    if not has_fit_parameter(model, "sample_weight"):
        raise ValueError(
            f"sample_weight was given, but fit of the {type(model).__name__} does not "
            "take it. With sklearn.set_config(enable_metadata_routing=True) each model "
            "says by set_fit_request whether it does."
        )
    return params


def prepared(transformers, X):
    """Return the rows `X` after each of the fitted `transformers` in turn.

    Parameters
    ----------
    transformers : sequence of fitted transformers
        They are applied one after the other.

    X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)

    Returns
    -------
    array-like
    """
    for transformer in transformers:
        X = transformer.transform(X)
    return X


class TakenApart(NamedTuple):
    """A model in its parts: the ensemble that it ends in, and the parts around it.

    Attributes
    ----------
    ensemble : object
        Neither frozen, nor a pipeline, nor a moved threshold.

    transformers : tuple
        They prepare the rows for the ensemble, one after the other. Empty if there is
        none.

    cut : Cut or None
        The moved threshold. None if the threshold was not moved.
    """

    ensemble: Any
    transformers: tuple
    cut: Cut | None


def take_apart(model):
    """Return the ensemble that a model ends in, and the parts around it.

    Parameters
    ----------
    model : object
        Fitted or not.

    Returns
    -------
    TakenApart
    """
    transformers = ()
    cut = None
    while True:
        if isinstance(model, FrozenEstimator):
            model = model.estimator
        elif isinstance(model, Pipeline):
            # A step is a pair of a name and an estimator.
            steps = [step for _, step in model.steps[:-1]]
            # Steps that leave the rows as they are need no transformer.
            if any(step not in (None, "passthrough") for step in steps):
                # Without its last step, a pipeline is a transformer.
                transformers += (model[:-1],)
            _, model = model.steps[-1]
        elif isinstance(model, (FixedThresholdClassifier, TunedThresholdClassifierCV)):
            # If threshold classifiers are nested, the outermost threshold decides. The
            # inner ones pass on the response of the model that they contain.
            if cut is None:
                cut = _cut_of(model)
            model = _inner_classifier(model)
        else:
            return TakenApart(ensemble=model, transformers=transformers, cut=cut)


def _inner_classifier(model):
    """Return the model in a threshold classifier: the fitted one if there is one."""
    return getattr(model, "estimator_", model.estimator)


def _cut_of(model):
    """Return the threshold of a threshold classifier of scikit-learn, as a `Cut`.

    Parameters
    ----------
    model : FixedThresholdClassifier or TunedThresholdClassifierCV
        Fitted or not. The threshold of a tuned one that is not fitted is 0.5.

    Returns
    -------
    Cut
    """
    response = model.response_method
    if response == "auto":
        if hasattr(_inner_classifier(model), "predict_proba"):
            response = "predict_proba"
        else:
            response = "decision_function"
    if isinstance(model, FixedThresholdClassifier):
        threshold = model.threshold
        positive = model.pos_label
        if threshold == "auto" and response == "predict_proba":
            threshold = _EVEN_PROBABILITY
        elif threshold == "auto":
            threshold = _EVEN_SCORE
    else:
        threshold = getattr(model, "best_threshold_", _EVEN_PROBABILITY)
        positive = positive_label_of(model)
    return Cut(threshold=float(threshold), response=response, positive=positive)
