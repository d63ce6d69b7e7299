"""Explanation of the purchases for one row, and of the reason to stop."""

import textwrap
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from skroute.utils._optional import axes_of
from skroute.utils._plotting import (
    REFERENCE_COLOUR,
    colours_of,
    finish_axes,
)
from skroute.utils._tables import Column, Table, format_value

# Largest number of classes whose probabilities are shown. If there are more classes,
# the most probable ones are shown.
_SHOWN_CLASSES = 3
# Largest number of letters in a line of a label. A longer line takes half of a figure.
_LABEL_LENGTH = 24
# Height in inches of a line of a label, with the distance to the next line.
_LINE_HEIGHT = 0.18
# Height in inches of all that is around the lines: title, axis label and margins.
_FRAME_HEIGHT = 1.2


class NextPurchase(NamedTuple):
    """The best next purchase after a round, which was made unless the row stopped.

    Attributes
    ----------
    groups : list of str
        Names of the groups.

    cost : float
        Cost of these groups.

    gain : float
        Gain in quality that was expected of the purchase and of the best purchases
        after it.

    needed : float
        Gain in quality at which the purchase is made: the price of the budget times
        `cost`.
    """

    groups: list
    cost: float
    gain: float
    needed: float


class Round(NamedTuple):
    """One purchase, with the class probabilities after it.

    Attributes
    ----------
    groups : list of str
        Names of the groups that were bought. Before the first purchase these are the
        groups that cost nothing.

    cost : float
        Cost of these groups.

    proba : ndarray of shape (n_classes,)
        Class probabilities after the purchase.

    following : NextPurchase or None
        The best next purchase. None if no purchases were compared. This is so before
        the first purchase, which is the same for every row, and after a round if
        nothing more could be bought.
    """

    groups: list
    cost: float
    proba: Any
    following: NextPurchase | None


@dataclass(frozen=True, eq=False, repr=False)
class Explanation:
    """Purchases for one row, which print as a table.

    Made by :meth:`SequentialFeatureClassifier.explain`.

    Attributes
    ----------
    rounds : list of Round
        The first entry is the state before any purchase.

    classes : ndarray of shape (n_classes,)
        Class labels.

    reason : str
        Reason why nothing more was bought.

    Examples
    --------
    >>> import numpy as np
    >>> from skroute.gating import Explanation
    >>> explanation = Explanation([], np.array([0, 1]), "The budget is spent.")
    >>> explanation.cost
    0.0
    """

    rounds: list
    classes: Any
    reason: str

    @property
    def cost(self):
        """Cost of all purchases, a float."""
        return float(sum(purchase.cost for purchase in self.rounds))

    def to_frame(self):
        """Return the rounds as a data frame.

        Returns
        -------
        pandas.DataFrame
            One row for each round, with the columns ``round``, ``bought``, ``cost``, a
            column ``P(...)`` for each class, and ``next``, ``next_cost``,
            ``expected_gain`` and ``needed_gain`` of the best next purchase. If no
            purchases were compared, ``next`` is empty, and the three numbers are NaN.
        """
        return self._table().to_frame()

    def __repr__(self):
        return str(self._table())

    def _table(self):
        """Return the `Table` that `repr` prints and `to_frame` converts.

        It has a row for each round.
        """
        bought = [", ".join(purchase.groups) for purchase in self.rounds]
        columns = [
            Column("round", list(range(len(self.rounds)))),
            Column("bought", bought, texts=[names or "nothing" for names in bought]),
            Column("cost", [purchase.cost for purchase in self.rounds]),
        ]
        shown_classes = self._shown_classes()
        for position, label in enumerate(self.classes):
            probabilities = [purchase.proba[position] for purchase in self.rounds]
            texts = [f"{probability:.3f}" for probability in probabilities]
            # The data frame has all classes, the printed table only the shown ones.
            is_shown = position in shown_classes
            columns.append(
                Column(f"P({label})", probabilities, texts=texts, in_text=is_shown)
            )
        # The best next purchase after each round.
        following = []
        for purchase in self.rounds:
            if purchase.following is None:
                following.append(_NOT_COMPARED)
            else:
                following.append(purchase.following)
        next_groups = [", ".join(best_next.groups) for best_next in following]
        next_costs = [best_next.cost for best_next in following]
        expected_gains = [best_next.gain for best_next in following]
        needed_gains = [best_next.needed for best_next in following]
        columns += [
            Column("next", next_groups),
            Column("next_cost", next_costs, in_text=False),
            _gain_column("expected_gain", expected_gains),
            _gain_column("needed_gain", needed_gains),
        ]
        title = f"Explanation of one row: total cost {format_value(self.cost)}"
        return Table(title, columns, notes=[self.reason])

    def _shown_classes(self):
        """Return the positions of the classes whose probabilities are shown."""
        n_classes = len(self.classes)
        if n_classes == 2:
            # The second class is enough, because the two probabilities sum to 1.
            return [1]
        if n_classes <= _SHOWN_CLASSES:
            return list(range(n_classes))
        if not self.rounds:
            # No probabilities show which classes are the most probable.
            return list(range(_SHOWN_CLASSES))
        # The most probable classes after the last round.
        likeliest = np.argsort(-self.rounds[-1].proba, kind="stable")
        return sorted(likeliest[:_SHOWN_CLASSES].tolist())

    def plot(self, *, ax: Any = None) -> Any:
        """Draw the class probabilities after each purchase, from the top down.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to draw on. None makes a new figure.

        Returns
        -------
        matplotlib Axes
        """
        ax = axes_of(self, ax)
        proba = np.array([purchase.proba for purchase in self.rounds])
        spent = np.cumsum([purchase.cost for purchase in self.rounds])
        rounds = np.arange(len(self.rounds))
        colours = colours_of(self.classes)
        for position in self._shown_classes():
            ax.plot(
                proba[:, position],
                rounds,
                "o-",
                color=colours[position],
                label=f"probability of {self.classes[position]}",
            )
        labels = []
        for purchase, cost in zip(self.rounds, spent):
            # Only the first round, before any purchase, may have no groups.
            groups = ", ".join(purchase.groups) or "nothing"
            label = f"{groups} ({format_value(cost)})"
            labels.append(textwrap.fill(label, _LABEL_LENGTH))
        ax.set_yticks(rounds, labels, fontsize="small")
        # A grid line leads from the label of a round to its points.
        ax.grid(axis="y", color=REFERENCE_COLOUR, alpha=0.4)
        ax.invert_yaxis()
        ax.set(xlim=(-0.02, 1.02))
        # The rounds have equal distances, so each needs the height of the label with
        # the most lines.
        most_lines = max(label.count("\n") + 1 for label in labels)
        n_lines = len(labels) * most_lines
        finish_axes(
            ax,
            xlabel="Probability of a class",
            ylabel="Bought (cost spent so far)",
            title=self.reason,
            fills_axes=True,
            height=_FRAME_HEIGHT + _LINE_HEIGHT * n_lines,
        )
        return ax


# Takes the place of the next purchase after a round in which none was compared.
_NOT_COMPARED = NextPurchase([], cost=np.nan, gain=np.nan, needed=np.nan)


def _gain_column(name, gains):
    """Return a column of gains, which are printed with a sign. NaN has no text."""
    texts = ["" if np.isnan(gain) else f"{gain:+.4f}" for gain in gains]
    return Column(name, gains, texts=texts)
