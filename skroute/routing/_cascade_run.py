"""One request on its way through a cascade."""

import numpy as np

from skroute.base import check_costs
from skroute.routing._cascade_log import as_columns
from skroute.routing._cascade_rules import ABSTAIN, Scores, state_features


class CascadeRun:
    """One live request: what to ask next, and in the end whose answer to give.

    Made by :meth:`CascadeRouter.start`. The caller asks the model named ``next`` and says
    with :meth:`observe` what came back, until ``next`` is None.

    Parameters
    ----------
    router : CascadeRouter
        Fitted.

    rule : object
        The rule of the router that the request follows.

    known : ndarray of shape (1, n_known)
        What the router makes of the request before any call.

    Attributes
    ----------
    next : str or None
        Model to ask; None when the request is to be answered.

    answer : str or None
        Whose answer to give, or ``"abstain"``; None before the first answer.

    quality : float or None
        Estimated quality of that answer.

    asked : list of str
        Models whose answers have been observed.

    cost : float
        What they have cost.

    Examples
    --------
    >>> import numpy as np
    >>> from skroute.routing import CascadeRouter
    >>> sure = np.linspace(0, 1, 400)
    >>> Q = np.column_stack([sure > 0.5, np.ones(400)])
    >>> router = CascadeRouter(costs={"small": 1, "large": 10})
    >>> run = router.fit(None, Q, signals={"small": sure}).start()
    >>> run.asked, run.cost, run.answer
    ([], 0.0, None)
    """

    def __init__(self, router, rule, known):
        self._router, self._rule = router, rule
        self._known, self._scores = known, {}
        self._state = 0
        self.asked, self.cost = [], 0.0
        self._decide()

    def __repr__(self):
        said = f"next={self.next!r}, answer={self.answer!r}"
        return f"CascadeRun({said}, asked={self.asked!r}, cost={self.cost:.6g})"

    def _decide(self):
        rule, router = self._rule, self._router
        cascade = rule.fitted.cascade
        features = state_features(cascade, self._state, Scores(self._known, self._scores))
        model, way, stop = rule.fitted.decide(self._state, features, [rule.price_at])
        k = int(model[0, 0])
        self.next = router.model_names_[k] if k >= 0 else None
        self.answer, self.quality = None, None
        if self.asked:
            name = int(way[0])
            self.answer = "abstain" if name == ABSTAIN else router.model_names_[name]
            self.quality = float(router._low + router._span * stop[0])

    def observe(self, model, signals=None, cost=None):
        """Say what a model's answer has shown and cost.

        Parameters
        ----------
        model : str
            The model that has answered: ``next``, or another one that the rule may ask
            here, where ``next`` could not be reached.

        signals : array-like of shape (n_signals,), data frame of one row or float, default=None
            What its answer shows, as in `fit`.

        cost : float, default=None
            What the call has cost. None takes the model's mean cost.

        Raises
        ------
        ValueError
            For a model that the rule does not ask here, or signals that are not those of
            `fit`. Nothing has changed then.
        """
        router, cascade = self._router, self._rule.fitted.cascade
        names, after = router.model_names_, cascade.following[self._state]
        allowed = [names[k] for k in np.flatnonzero(after >= 0)]
        if model not in allowed:
            raise ValueError(
                f"model must be one of {allowed!r}, which may come next, got {model!r}."
            )
        k = names.index(model)
        scale = router._reader.of_model[k]
        if signals is not None and not hasattr(signals, "columns"):
            signals = np.reshape(signals, (1, -1))
        columns = as_columns(signals, model, 1, router._signal_names[k])
        if columns.shape[1] != len(scale.knots):
            raise ValueError(
                f"signals of {model!r} must have the {len(scale.knots)} columns that fit saw, got "
                f"{columns.shape[1]}."
            )
        paid = router.costs_[k] if cost is None else check_costs([cost], [model], name="cost")[0]
        self._scores[k] = scale.transform(columns)
        self._state = int(after[k])
        self.asked.append(model)
        self.cost += float(paid)
        self._decide()
