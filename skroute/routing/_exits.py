"""Exits of one net as members: each goes on from where the one before it stopped."""

from sklearn.frozen import FrozenEstimator

from skroute.base import note_failure
from skroute.members._multi_exit import ExitClassifier
from skroute.routing._answers import Answers
from skroute.routing._targets import align_proba
from skroute.utils._once import Once, once_of


def exit_of(member):
    """The exit of a net that a member is, or None."""
    if isinstance(member, FrozenEstimator):
        member = member.estimator
    return member if isinstance(member, ExitClassifier) else None


def continued(members):
    """For each member the position of the member that it goes on from, or -1.

    An exit of a net goes on from the nearest earlier exit of the same net that is among
    the members.

    Parameters
    ----------
    members : mapping from str to estimator

    Returns
    -------
    list of int

    Raises
    ------
    ValueError
        If an exit is given twice.
    """
    names = list(members)
    found = [exit_of(member) for member in members.values()]
    exits = {k: (part.net, part.exit) for k, part in enumerate(found) if part is not None}
    before = [-1] * len(names)
    for k, (net, exit) in exits.items():
        same = {other: at for other, (its_net, at) in exits.items() if its_net is net}
        if twice := [other for other, at in same.items() if at == exit and other < k]:
            raise ValueError(
                f"{names[twice[0]]!r} and {names[k]!r} are both exit {exit} of one net, counted "
                "from 0; give it once."
            )
        earlier = [other for other, at in same.items() if at < exit]
        before[k] = max(earlier, key=same.get, default=-1)
    return before


def chains(before):
    """For each member the members before it that must have answered, itself included.

    Parameters
    ----------
    before : sequence of int
        From :func:`continued`.

    Returns
    -------
    list of list of int
        Each from the first member of the chain on.
    """
    found = []
    for k in range(len(before)):
        chain = [k]
        while before[chain[0]] >= 0:
            chain.insert(0, before[chain[0]])
        found.append(chain)
    return found


def stage_calls(before, names, fitted):
    """For each exit a function of rows that goes on to it, to time it.

    Parameters
    ----------
    before : sequence of int
    names : sequence of str
    fitted : sequence of estimator

    Returns
    -------
    dict from str to callable
        Of members that are exits only.
    """
    exits = [exit_of(member) for member in fitted]
    return {
        name: part.net.stage_call(part.exit, exits[k].exit if k >= 0 else -1)
        for name, part, k in zip(names, exits, before)
        if part is not None
    }


class ExitAnswers(Answers):
    """Answers of which those of a net's exits come from one run through the net.

    Parameters
    ----------
    router : SequentialRouterClassifier
        Fitted.

    X : indexable
        The rows.
    """

    def __init__(self, router, X):
        super().__init__(router, X)
        self.first = [chain[0] for chain in chains(router._before)]
        self.runs = {}

    def _call(self, member, new):
        router = self.router
        part = exit_of(router.estimators_[member])
        if part is None:
            return super()._call(member, new)
        first = self.first[member]
        with note_failure(router.member_names_[member], len(new), "predict_proba"):
            if first not in self.runs:
                # One net for all: fitted in other processes, each member has its own copy.
                self.runs[first] = exit_of(router.estimators_[first]).net.start(self.X)
            proba = self.runs[first].proba(part.exit, new)
        return align_proba(proba, part.classes_, router.classes_)

    def release(self, rows):
        """Let the nets hold no longer what rows need to go on, which will not."""
        if isinstance(once_of(self.router), Once):
            # At the next budget they may.
            return
        for run in self.runs.values():
            run.release(rows)
