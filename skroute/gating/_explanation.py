"""Explanation of what was bought for one row, and why it stopped."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from skroute.utils._optional import axes_of

# Classes whose probabilities are shown; of more classes the likeliest are shown.
_SHOWN_CLASSES = 3


class NextPurchase(NamedTuple):
    """The best next purchase at one point, whether it was made or not.

    Attributes
    ----------
    groups : list of str
        Names of the groups.

    cost : float
        Their cost for this row.

    gain : float
        Quality that the purchase, and the best course after it, was expected to bring.

    needed : float
        Quality that it had to bring: the price of the budget times the cost.
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
        Their cost.

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
        The first one is before any purchase.

    classes : ndarray of shape (n_classes,)
        Class labels.

    reason : str
        Why nothing more was bought.

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
            One row for each round, with the columns ``bought``, ``cost``, a column
            ``P(...)`` for each class, and ``next``, ``next_cost``, ``expected_gain``
            and ``needed_gain`` of the best next purchase, NaN where nothing was
            compared.
        """
        import pandas as pd

        rows = []
        for purchase in self.rounds:
            row = {"bought": ", ".join(purchase.groups), "cost": purchase.cost}
            for label, probability in zip(self.classes, purchase.proba):
                row[f"P({label})"] = probability
            following = purchase.following
            if following is None:
                following = NextPurchase([], cost=np.nan, gain=np.nan, needed=np.nan)
            row["next"] = ", ".join(following.groups)
            row["next_cost"] = following.cost
            row["expected_gain"] = following.gain
            row["needed_gain"] = following.needed
            rows.append(row)
        return pd.DataFrame(rows).rename_axis("round")

    def __repr__(self):
        shown = self._shown_classes()
        header = ["round", "bought", "cost"]
        header += [f"P({self.classes[k]})" for k in shown]
        header.append("next purchase: expected gain, needed gain")
        lines = [header]
        for number, purchase in enumerate(self.rounds):
            line = [str(number), ", ".join(purchase.groups) or "-"]
            line.append(f"{purchase.cost:.4g}")
            line += [f"{purchase.proba[k]:.3f}" for k in shown]
            line.append(_next_text(purchase.following))
            lines.append(line)
        widths = [max(len(cell) for cell in column) for column in zip(*lines)]
        texts = []
        for line in lines:
            cells = [cell.ljust(width) for cell, width in zip(line, widths)]
            texts.append("  ".join(cells).rstrip())
        texts.append(f"total cost {self.cost:.4g}. {self.reason}")
        return "\n".join(texts)

    def _shown_classes(self):
        """Return positions of the classes that are shown."""
        n_classes = len(self.classes)
        if n_classes == 2:
            return [1]
        if n_classes <= _SHOWN_CLASSES or not self.rounds:
            return list(range(min(n_classes, _SHOWN_CLASSES)))
        likeliest = np.argsort(-self.rounds[-1].proba, kind="stable")
        return sorted(likeliest[:_SHOWN_CLASSES].tolist())

    def plot(self, *, ax: Any = None) -> Any:
        """Draw the class probabilities against what was spent.

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
        for k in self._shown_classes():
            label = f"probability of {self.classes[k]}"
            ax.plot(spent, proba[:, k], "o-", drawstyle="steps-post", label=label)
        for cost, purchase in zip(spent[1:], self.rounds[1:]):
            ax.axvline(cost, color="0.8", linewidth=1, zorder=0)
            # The label is where the line of the first shown class is not.
            is_low = purchase.proba[self._shown_classes()[0]] < 0.5
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
        # Above the axes, where it hides nothing.
        ax.legend(loc="lower right", bbox_to_anchor=(1, 1.06), frameon=False)
        return ax


def _next_text(following):
    """Return the best next purchase and its expected and needed gain, as text."""
    if following is None:
        return "-"
    names = ", ".join(following.groups)
    return f"{names}: {following.gain:+.4f}, {following.needed:.4f}"
