"""Explanation of the purchases for one row, and of the reason to stop."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from skroute.utils._optional import axes_of
from skroute.utils._tables import Column, Table, format_value

# Largest number of classes whose probabilities are shown. If there are more classes,
# the most probable ones are shown.
_SHOWN_CLASSES = 3


class NextPurchase(NamedTuple):
    """The best next purchase after a round. It was made, unless the row stopped.

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
        The best next purchase. None if nothing was compared: before the first purchase,
        which is the same for every row, and where nothing more could be bought.
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
            ``expected_gain`` and ``needed_gain`` of the best next purchase, NaN where
            nothing was compared.
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
            following.append(purchase.following or _NOT_COMPARED)
        columns += [
            Column("next", [", ".join(purchase.groups) for purchase in following]),
            Column(
                "next_cost", [purchase.cost for purchase in following], in_text=False
            ),
            _gain_column("expected_gain", [purchase.gain for purchase in following]),
            _gain_column("needed_gain", [purchase.needed for purchase in following]),
        ]
        title = f"Explanation of one row: total cost {format_value(self.cost)}"
        return Table(title, columns, notes=[self.reason])

    def _shown_classes(self):
        """Return the positions of the classes whose probabilities are shown."""
        n_classes = len(self.classes)
        if n_classes == 2:
            # The second class is enough: both probabilities have the sum 1.
            return [1]
        if n_classes <= _SHOWN_CLASSES or not self.rounds:
            return list(range(min(n_classes, _SHOWN_CLASSES)))
        # The most probable classes after the last round.
        likeliest = np.argsort(-self.rounds[-1].proba, kind="stable")
        return sorted(likeliest[:_SHOWN_CLASSES].tolist())

    def plot(self, *, ax: Any = None) -> Any:
        """Draw the class probabilities against the cost spent so far.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to draw on. None makes a new figure.

        Returns
        -------
        matplotlib Axes
        """
        ax = axes_of(self, ax)
        spent = np.cumsum([purchase.cost for purchase in self.rounds])
        proba = np.array([purchase.proba for purchase in self.rounds])
        shown_classes = self._shown_classes()
        for position in shown_classes:
            label = f"probability of {self.classes[position]}"
            probabilities = proba[:, position]
            ax.plot(spent, probabilities, "o-", drawstyle="steps-post", label=label)
        # The first round is before any purchase, and has no label.
        for cost, purchase in zip(spent[1:], self.rounds[1:]):
            ax.axvline(cost, color="0.8", linewidth=1, zorder=0)
            # The label is at the top if the line of the first shown class is low there,
            # and else at the bottom.
            is_low = purchase.proba[shown_classes[0]] < 0.5
            ax.annotate(
                "bought: " + ", ".join(purchase.groups),
                (cost, 0.98 if is_low else 0.02),
                xycoords=("data", "axes fraction"),
                rotation=90,
                ha="right",
                va="top" if is_low else "bottom",
                fontsize="small",
            )
        ax.set(xlabel="Cost spent on this row", ylabel="Probability", ylim=(0, 1))
        ax.set_title(self.reason, fontsize="small", wrap=True)
        # The legend is above the axes, where it hides nothing.
        ax.legend(loc="lower right", bbox_to_anchor=(1, 1.06), frameon=False)
        return ax


# Takes the place of the next purchase after a round in which none was compared.
_NOT_COMPARED = NextPurchase([], cost=np.nan, gain=np.nan, needed=np.nan)


def _gain_column(name, gains):
    """Return a column of gains, which are printed with a sign. NaN has no text."""
    texts = ["" if np.isnan(gain) else f"{gain:+.4f}" for gain in gains]
    return Column(name, gains, texts=texts)
