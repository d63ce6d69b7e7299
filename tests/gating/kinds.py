"""Gates of all kinds by a short name."""

from skroute.gating import AdaptGatingClassifier, BoostedGate, LinearGate

GATES = {"gbrt": BoostedGate, "lin": LinearGate}


def adapt_of(estimator, method="gbrt", **params):
    """Return an AdaptGatingClassifier whose gate takes the parameters that it has.

    Parameters that only the other gate has are left out.
    """
    gate_names = GATES[method]().get_params()
    names_of_any_gate = set()
    for gate_class in GATES.values():
        names_of_any_gate |= set(gate_class().get_params())
    gate_params = {}
    classifier_params = {}
    for name, value in params.items():
        if name in gate_names:
            gate_params[name] = value
        elif name not in names_of_any_gate:
            classifier_params[name] = value
    gate = GATES[method](**gate_params)
    return AdaptGatingClassifier(estimator, gate=gate, **classifier_params)
