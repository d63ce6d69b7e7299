"""Rules of a library: how it reads rows, adds up leaves and turns sums into answers."""

from dataclasses import dataclass
from typing import Any

from skroute.forests._columns import ColumnRule, ValuesAsTheyAre


@dataclass(frozen=True)
class ReadRule:
    """The way in which a library reads rows.

    Parameters
    ----------
    dtype : {"float64", "float32"}, default="float64"
        Type to which the library casts its input.

    finite : bool or "allow-nan", default=True
        `ensure_all_finite` of scikit-learn's ``check_array``: True refuses NaN and
        infinity, "allow-nan" refuses infinity, and False accepts both.

    cast : {"", "float32"}, default=""
        Type to which the library first casts numbers in neither single nor double
        precision. The empty string stands for `dtype`.

    absent : float, default=0.0
        Value that the library reads for an entry that a sparse matrix does not store.

    columns : ColumnRule
        Rule by which the library makes numbers of columns of categories.

    Examples
    --------
    >>> from skroute.forests import ReadRule
    >>> ReadRule(dtype="float32").finite
    True
    """

    dtype: str = "float64"
    finite: bool | str = True
    cast: str = ""
    absent: float = 0.0
    columns: ColumnRule = ValuesAsTheyAre()


@dataclass(frozen=True)
class SumRule:
    """The way in which a library adds up the leaves of a row.

    Parameters
    ----------
    dtype : {"float64", "float32"}, default="float64"
        Precision of the sums.

    offset_last : bool, default=False
        If True, the offset is added after the trees, otherwise before them.

    scale : float, default=1.0
        Factor of the sum of the trees, before the offset is added. It differs from 1
        only with `offset_last`.

    Examples
    --------
    >>> from skroute.forests import SumRule
    >>> SumRule(offset_last=True).scale
    1.0
    """

    dtype: str = "float64"
    offset_last: bool = False
    scale: float = 1.0


@dataclass(frozen=True)
class AnswerRule:
    """The way in which a library computes probabilities, labels and numbers from sums.

    Parameters
    ----------
    kind : {"identity", "exp", "sigmoid", "softmax", "position", "expit", "sk_exp", \
            "sk_softmax", "mean", "vote"}, default="identity"
        Link from the sums to the answer.

        - "identity" answers with the sums, and "mean" with the average of the trees.
        - "exp", "sigmoid" (logistic) and "softmax" are functions of the boosting
          libraries, with the exponential of the C library.
        - "position" is the softmax of a model that predicts positions of the classes.
        - "sk_exp", "expit" (logistic) and "sk_softmax" are functions of numpy, scipy
          and scikit-learn, which round differently.
        - "vote" is the softmax of weighted votes (AdaBoost).

    slope : float, default=1.0
        Factor of the sums inside the link.

    divisor : float, default=1.0
        Number by which the sums are divided before the link: the number of trees or the
        sum of their weights for an average, else 1.

    beta : float, default=0.0
        Score above which the answer of two classes is the second class.

    by_score : bool, default=False
        If True, labels are decided by the scores, otherwise by the probabilities.

    label_dtype : str, default=""
        Type of the labels that the library's `predict` returns. The empty string stands
        for the type of the classes.

    blur : float, default=0.0
        Tolerated difference from the library's answers. Causes are threads that add up
        in any order, and another exponential function.

    cut : Cut, default=None
        Moved threshold at which the answer changes. None if it was not moved.

    Examples
    --------
    >>> from skroute.forests import AnswerRule
    >>> AnswerRule(kind="mean", divisor=100.0).beta
    0.0
    """

    kind: str = "identity"
    slope: float = 1.0
    divisor: float = 1.0
    beta: float = 0.0
    by_score: bool = False
    label_dtype: str = ""
    blur: float = 0.0
    cut: Any = None


@dataclass(frozen=True)
class PartialRule:
    """The meaning of a partial sum, as early exit reads it.

    Parameters
    ----------
    link : {"logistic", "softmax", "ova", "mean"}, default=None
        Function from scores to probabilities. None if it is not known.

    slope : float, default=1.0
        Factor of the scores inside the link.

    shift : float, default=0.0
        Number that is added before the link. The logistic link adds it to the distance
        of the score from `beta`. The link "mean" adds it to the mean of the members'
        distances from the decision.

    beta : float, default=0.0
        Score above which the answer of two classes is the second class.

    least_rounding : float, default=0.0
        Smallest value of `Forest.rounding`, the bound on the rounding error of a score.
    """

    link: str | None = None
    slope: float = 1.0
    shift: float = 0.0
    beta: float = 0.0
    least_rounding: float = 0.0
