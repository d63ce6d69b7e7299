"""Rows of a log as numbers: text columns, categories and numbers."""

from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import hstack, issparse
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.preprocessing import OneHotEncoder, normalize
from sklearn.utils.validation import check_is_fitted

from skroute.utils._compat import HasMethods, Integral, Interval, StrOptions, _fit_context
from skroute.utils._tensors import on_host

# A column of strings with at most this many different values is one of categories.
_MOST_CATEGORIES = 50
# Characters of a text whose sequences are counted; its words are all counted.
_CHARACTERS = 500
# Words and sequences that are kept of a column of texts.
_MOST_WORDS = 10_000


class FrameEncoder(TransformerMixin, BaseEstimator):
    """Numbers from a data frame, or from texts, as they are.

    Each column is read as what it holds. Numbers and booleans are scaled to variance one; a missing
    one becomes the mean, and where some were missing in `fit`, a column says so. Strings that all
    say a number are numbers too, and one that does not in a later call is missing: turn codes
    into strings that are no numbers to have them as categories. Other strings with few different
    values are categories, one column each; one that `fit` did not see has 0 in all of them. Other
    strings are texts: their words, pairs of words and sequences of 3 to 5 characters are hashed,
    weighted by how rare they are, and reduced to `n_components` directions.

    Parameters
    ----------
    n_components : int, default=100
        Directions that each column of texts is reduced to, at most a fifth of the rows. Raising
        it keeps more of a text, and takes longer.

    text : "hashing", callable or transformer, default="hashing"
        How columns of texts are read. A callable takes a list of different strings and gives a row
        of numbers for each: an embedding, for example ``model.encode`` of a sentence model. A
        transformer is cloned, and fitted on the texts of each column. What either gives is reduced
        to `n_components` directions, too, where it has more. Copies of the encoder, and pickles,
        hold a copy of what the callable holds: a function of a module is held by its name.

    random_state : int, default=0
        Seed of the reduction. Fits with the same seed are equal.

    Attributes
    ----------
    kinds_ : list of str
        For each column ``"number"``, ``"category"`` or ``"text"``.

    n_features_in_ : int
        Number of columns seen during `fit`.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of the columns seen during `fit`, where X was a data frame.

    See Also
    --------
    sklearn.compose.ColumnTransformer : The same by hand.

    Notes
    -----
    Nothing of the outcomes is used.

    Examples
    --------
    >>> import pandas as pd
    >>> from skroute.features import FrameEncoder
    >>> log = pd.DataFrame({
    ...     "prompt": [f"What is {i} plus {i + 1}?" for i in range(60)],
    ...     "tenant": ["red", "blue"] * 30,
    ...     "length": range(60),
    ... })
    >>> encoder = FrameEncoder(n_components=4).fit(log)
    >>> encoder.kinds_
    ['text', 'category', 'number']
    >>> encoder.transform(log).shape
    (60, 7)
    """

    _parameter_constraints = {
        "n_components": [Interval(Integral, 1, None, closed="left")],
        "text": [StrOptions({"hashing"}), callable, HasMethods(["fit", "transform"])],
        "random_state": [Interval(Integral, 0, None, closed="left")],
    }

    def __init__(self, *, n_components=100, text="hashing", random_state=0):
        self.n_components = n_components
        self.text = text
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike | None = None) -> Self:
        """Learn what the columns hold.

        Parameters
        ----------
        X : data frame, array-like of shape (n_samples, n_features), or sequence of str
            The rows. A sequence of strings is one column of texts.

        y : None
            Not used.

        Returns
        -------
        self

        Raises
        ------
        TypeError or ValueError
            For a column that holds neither numbers nor strings, or an infinite number, and where
            `text` does not give a row of finite numbers for each text.
        """
        self.fit_transform(X)
        return self

    @_fit_context(prefer_skip_nested_validation=True)
    def fit_transform(self, X, y=None):
        """Learn what the columns hold, and give the rows as numbers.

        Parameters
        ----------
        X, y
            As in `fit`.

        Returns
        -------
        ndarray of shape (n_samples, n_outputs), dtype=float64
        """
        self.__dict__.pop("kinds_", None)
        names, columns = columns_of(X)
        if not columns or len(columns[0]) == 0:
            raise ValueError(
                "Found 0 sample(s) or 0 feature(s) in X while a minimum of 1 is required by "
                "FrameEncoder."
            )
        self.n_features_in_ = len(columns)
        self.__dict__.pop("feature_names_in_", None)
        if names is not None:
            self.feature_names_in_ = np.array(names, dtype=object)
        readers, parts = [], []
        for column, name in zip(columns, names or range(len(columns))):
            reader = _reader(column, name, self)
            parts.append(reader.fit_transform(column))
            readers.append(reader)
        self._readers = readers
        self.kinds_ = [reader.kind for reader in readers]
        return np.hstack(parts)

    def transform(self, X: ArrayLike) -> NDArray[np.float64]:
        """Rows as numbers.

        Parameters
        ----------
        X : as in `fit`
            The same columns; those of a data frame are found by name, in any order.

        Returns
        -------
        ndarray of shape (n_samples, n_outputs), dtype=float64

        Raises
        ------
        ValueError
            For other columns than `fit` saw.
        """
        check_is_fitted(self)
        names, columns = columns_of(X)
        own = getattr(self, "feature_names_in_", None)
        if names is not None and own is not None:
            if sorted(names) != sorted(own):
                raise ValueError(f"X must have the columns {list(own)!r}, got {names!r}.")
            columns = [columns[names.index(name)] for name in own]
        if len(columns) != self.n_features_in_:
            raise ValueError(
                f"X has {len(columns)} features, but FrameEncoder is expecting "
                f"{self.n_features_in_} features as input."
            )
        return np.hstack(
            [reader.transform(column) for reader, column in zip(self._readers, columns)]
        )

    def __sklearn_is_fitted__(self):
        return hasattr(self, "kinds_")

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        tags.input_tags.allow_nan = True
        return tags


def columns_of(X):
    """Names of the columns, or None, and the columns as arrays."""
    if hasattr(X, "columns") and hasattr(X, "__getitem__"):
        keys = list(X.columns)
        names = [str(key) for key in keys]
        if len(set(names)) < len(names):
            raise ValueError(f"X must not have two columns of the same name, got {names!r}.")
        return names, [_without_na(np.asarray(X[key])) for key in keys]
    if isinstance(X, (str, bytes)) or np.isscalar(X):
        raise TypeError(f"X must be rows, got {type(X).__name__}. One row is a list of one.")
    if hasattr(X, "toarray"):
        raise TypeError("FrameEncoder got a sparse X, and sparse rows are numbers already.")
    found = np.asarray(on_host(X))
    if found.dtype.kind == "c":
        raise ValueError("Complex data not supported: X must hold real numbers, or strings.")
    if 0 in found.shape:
        what = "sample" if len(found) == 0 else "feature"
        raise ValueError(
            f"Found array with 0 {what}(s) (shape={found.shape}) while a minimum of 1 is required "
            "by FrameEncoder."
        )
    if found.ndim == 1:
        if len(found) and not _holds_strings(found):
            raise ValueError(
                "Expected 2D array, got 1D array instead. Reshape your data using "
                "array.reshape(-1, 1) if it has a single feature."
            )
        return None, [_without_na(found)]
    if found.ndim != 2:
        raise ValueError(f"X must have rows and columns, got {found.ndim} dimensions.")
    return None, [_without_na(column) for column in found.T]


def _without_na(column):
    """A column whose missing entries of pandas' own kind, which compare with nothing, are None."""
    if column.dtype.kind != "O":
        return column
    missing = np.array([type(value).__name__ in ("NAType", "NaTType") for value in column], bool)
    return np.where(missing, None, column) if missing.any() else column


def needs_encoding(X):
    """Whether rows hold texts or categories that a regressor of numbers does not read.

    Parameters
    ----------
    X : indexable

    Returns
    -------
    bool

    Examples
    --------
    >>> from skroute.features import needs_encoding
    >>> needs_encoding(["a text", "another"]), needs_encoding([[1.0, 2.0]])
    (True, False)
    """
    if hasattr(X, "columns") and hasattr(X, "__getitem__"):
        return any(_holds_strings(np.asarray(X[key])) for key in list(X.columns))
    if hasattr(X, "toarray") or hasattr(X, "__array_namespace__") and not hasattr(X, "dtype"):
        return False
    if isinstance(X, np.ndarray) and X.dtype.kind not in "OUST":
        return False
    if isinstance(X, (list, tuple)):
        return len(X) > 0 and isinstance(X[0], str)
    try:
        found = np.asarray(X)
    except Exception:
        return False
    if found.dtype.kind not in "OUST" or found.ndim not in (1, 2):
        return False
    columns = [found] if found.ndim == 1 else list(found.T)
    return all(_plain(column) for column in columns) and any(map(_holds_strings, columns))


def _holds_strings(column):
    if column.dtype.kind in "UST":
        return not _numbers(column)
    if column.dtype.kind != "O":
        return False
    return any(isinstance(value, str) for value in column) and not _numbers(column)


def _numbers(column):
    """Whether all entries are numbers, or strings that say one."""
    try:
        np.asarray(column, dtype=np.float64)
    except (TypeError, ValueError):
        return False
    return True


def _plain(column):
    kinds = (str, int, float, bool, np.generic, type(None))
    return column.dtype.kind != "O" or all(isinstance(value, kinds) for value in column)


def _reader(column, name, encoder):
    if not _holds_strings(column):
        if not _numbers(column) or column.dtype.kind in "Mmc":
            raise TypeError(
                f"Column {name!r} must hold numbers, strings or booleans, got entries of dtype "
                f"{column.dtype}. Turn it into one of them first."
            )
        return _Number(name, column)
    texts = _texts(column)
    different = len(set(texts))
    if different <= min(_MOST_CATEGORIES, max(2, len(texts) // 2)) and different < len(texts):
        return _Category()
    n_components = min(encoder.n_components, max(1, len(texts) // 5))
    if isinstance(encoder.text, str):
        return _Text(n_components, encoder.random_state)
    return _Encoded(encoder.text, name, n_components, encoder.random_state)


def _texts(column):
    """Strings; what is missing is an empty one."""
    return ["" if _missing(value) else str(value) for value in column]


def _missing(value):
    return value is None or value != value


def _float_or_nan(value):
    try:
        return float(value)
    except (TypeError, ValueError):
        return np.nan


class _Number:
    kind = "number"

    def __init__(self, name, column):
        self.name = name
        self.strings = column.dtype.kind in "UST"
        if column.dtype.kind == "O":
            self.strings = any(isinstance(value, str) for value in column)

    def _read(self, column):
        try:
            values = np.asarray(column, dtype=np.float64)
        except (TypeError, ValueError):
            values = None
        if values is None and self.strings:
            values = np.array([_float_or_nan(value) for value in column])
        if values is None:
            # Outside, so that what numpy said, which quotes the entry, is not told along.
            raise ValueError(f"Column {self.name!r} held numbers in fit, and now something else.")
        if np.isinf(values).any():
            raise ValueError(f"Column {self.name!r} must be finite, got infinity.")
        return values

    def fit_transform(self, column):
        values = self._read(column)
        known = values[~np.isnan(values)]
        # Of a column of which nothing is known, any entry of a later call is missing, too.
        self.strings |= len(known) == 0
        # In a unit in which squares are no infinity.
        unit = float(np.abs(known).max(initial=0.0)) or 1.0
        self.mean = float((known / unit).mean()) * unit if len(known) else 0.0
        spread = float((known / unit).std()) * unit if len(known) else 0.0
        self.spread = spread if spread > 1e-12 * max(abs(self.mean), 1e-300) else 1.0
        self.had_missing = len(known) < len(values)
        return self.transform(column)

    def transform(self, column):
        values = self._read(column)
        missing = np.isnan(values)
        scaled = np.where(missing, 0.0, (values - self.mean) / self.spread)
        return np.column_stack([scaled, missing] if self.had_missing else [scaled])


class _Category:
    kind = "category"

    def fit_transform(self, column):
        self.encoder = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
        return self.encoder.fit_transform(np.array(_texts(column), dtype=object)[:, None])

    def transform(self, column):
        return self.encoder.transform(np.array(_texts(column), dtype=object)[:, None])


class _Text:
    kind = "text"

    def __init__(self, n_components, seed):
        self.n_components, self.seed = n_components, seed

    def _counts(self, column):
        texts = _texts(column)
        how = {"n_features": 2**17, "alternate_sign": False, "norm": None, "dtype": np.float32}
        words = HashingVectorizer(ngram_range=(1, 2), **how)
        characters = HashingVectorizer(analyzer="char_wb", ngram_range=(3, 5), **how)
        both = [words.transform(texts), characters.transform([t[:_CHARACTERS] for t in texts])]
        counts = hstack(both, format="csr")
        np.log1p(counts.data, out=counts.data)
        return counts

    def _weighted(self, counts):
        return normalize(counts[:, self.used].multiply(self.rarity).tocsr(), copy=False)

    def fit_transform(self, column):
        counts = self._counts(column)
        texts_with = np.bincount(counts.indices, minlength=counts.shape[1])
        # Of what occurs more than once, what occurs most.
        often = np.argsort(-texts_with, kind="stable")[:_MOST_WORDS]
        self.used = np.sort(often[texts_with[often] > 1])
        rarity = np.log((1 + len(column)) / (1 + texts_with[self.used])) + 1
        self.rarity = rarity.astype(np.float32)
        self.directions = None
        if len(self.used) < 2:
            return np.zeros((len(column), 1))
        n_components = min(self.n_components, len(self.used) - 1)
        reduction = TruncatedSVD(n_components, random_state=self.seed)
        # Texts that are all alike have no variance, a share of which nobody asks for.
        with np.errstate(invalid="ignore", divide="ignore"):
            reduced = reduction.fit_transform(self._weighted(counts))
        self.directions = reduction.components_.T.astype(np.float32)
        return reduced.astype(np.float64)

    def transform(self, column):
        if self.directions is None:
            return np.zeros((len(column), 1))
        return (self._weighted(self._counts(column)) @ self.directions).astype(np.float64)


class _Encoded:
    kind = "text"

    def __init__(self, encoder, name, n_components, seed):
        self.encoder, self.name = encoder, name
        self.n_components, self.seed = n_components, seed
        self.width = None

    def _vectors(self, texts):
        """What the encoder makes of texts; of equal ones once."""
        different, place = np.unique(np.array(texts, dtype=object), return_inverse=True)
        different = different.tolist()
        own = self.encoder
        found = own.transform(different) if hasattr(own, "transform") else own(different)
        if not issparse(found):
            found = np.asarray(on_host(found), dtype=np.float64)
        width = found.shape[-1] if self.width is None else self.width
        if found.shape != (len(different), width):
            raise ValueError(
                f"text must give an array of shape (n_texts, n_numbers), here {len(different)} by "
                f"{width}, got shape {found.shape} for column {self.name!r}."
            )
        if not np.isfinite(found.data if issparse(found) else found).all():
            raise ValueError(f"text must give finite numbers, got others in column {self.name!r}.")
        self.width = width
        return found[place]

    def fit_transform(self, column):
        texts = _texts(column)
        if hasattr(self.encoder, "transform"):
            self.encoder = clone(self.encoder).fit(texts)
        vectors, self.directions = self._vectors(texts), None
        if self.n_components < self.width:
            reduction = TruncatedSVD(self.n_components, random_state=self.seed).fit(vectors)
            self.directions = reduction.components_.T
        return self._reduced(vectors)

    def transform(self, column):
        return self._reduced(self._vectors(_texts(column)))

    def _reduced(self, vectors):
        reduced = vectors if self.directions is None else vectors @ self.directions
        return reduced.toarray() if issparse(reduced) else reduced
