"""Gates of all kinds by a short name."""

from skroute.gating import AdaptGatingClassifier, BoostedGate, LinearGate

GATE_PARAMETERS = {"n_estimators", "learning_rate", "max_leaf_nodes", "l2_regularization"}


def gate_of(method, **params):
    if method == "gbrt":
        return BoostedGate(**params)
    return LinearGate(divergence={"lin": "kl", "lstsq": "least_squares"}[method], **params)


def adapt_of(estimator, method="gbrt", **params):
    """An AdaptGatingClassifier whose gate takes the parameters that are its own."""
    own = GATE_PARAMETERS | {"max_iter"} if method == "gbrt" else {"max_iter", "tol"}
    of_gate = {name: value for name, value in params.items() if name in own}
    others = GATE_PARAMETERS | {"max_iter", "tol"}
    rest = {name: value for name, value in params.items() if name not in others}
    return AdaptGatingClassifier(estimator, gate=gate_of(method, **of_gate), **rest)
