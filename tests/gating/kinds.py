"""Gates of all kinds by a short name."""

from skroute.gating import AdaptGatingClassifier, BoostedGate, LinearGate

GATES = {"gbrt": BoostedGate, "lin": LinearGate}


def adapt_of(estimator, method="gbrt", **params):
    """An AdaptGatingClassifier whose gate takes the parameters that are its own."""
    kind = GATES[method]
    own = {name: params.pop(name) for name in kind().get_params() if name in params}
    others = {name for each in GATES.values() for name in each().get_params()}
    rest = {name: value for name, value in params.items() if name not in others}
    return AdaptGatingClassifier(estimator, gate=kind(**own), **rest)
