"""Rows of a log as numbers: texts, categories, dates and numbers."""

from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import hstack, issparse
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.impute import MissingIndicator, SimpleImputer
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import OneHotEncoder, StandardScaler, normalize
from sklearn.utils.validation import check_array, check_is_fitted

from skroute.utils._compat import HasMethods, Integral, Interval, StrOptions, _fit_context
from skroute.utils._frames import CATEGORY, ColumnReader, as_rows, columns_of, is_frame, texts_of
from skroute.utils._named import in_order
from skroute.utils._pickles import VersionedPickleMixin
from skroute.utils._tensors import on_host

# A column of strings with at most this many different values is one of categories.
_MOST_CATEGORIES = 50
# Characters of a text whose sequences are counted; its words are all counted.
_CHARACTERS = 500
# Words and sequences that are kept of a column of texts.
_MOST_WORDS = 10_000


class FrameEncoder(VersionedPickleMixin, TransformerMixin, BaseEstimator):
    """Encode a data frame, or texts, as numbers.

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
        For each column ``"number"``, ``"date"``, ``"category"`` or ``"text"``.

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
    >>> from skroute.quality import FrameEncoder
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
        vars(self).pop("kinds_", None)
        vars(self).pop("feature_names_in_", None)
        names, columns = _checked_columns(X)
        self.n_features_in_ = len(columns)
        if names is not None:
            self.feature_names_in_ = np.array(names, dtype=object)
        self._columns = [
            _Column(column, at if names is None else names[at], self)
            for at, column in enumerate(columns)
        ]
        parts = [own.fit_transform(column) for own, column in zip(self._columns, columns)]
        self.kinds_ = [own.kind for own in self._columns]
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
        if hasattr(self, "feature_names_in_"):
            X = in_order(X, self.feature_names_in_, "X")
        _, columns = _checked_columns(X)
        if len(columns) != self.n_features_in_:
            raise ValueError(
                f"X has {len(columns)} features, but FrameEncoder is expecting "
                f"{self.n_features_in_} features as input."
            )
        return np.hstack([own.transform(column) for own, column in zip(self._columns, columns)])

    def __sklearn_is_fitted__(self):
        return hasattr(self, "kinds_")

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        tags.input_tags.allow_nan = True
        return tags


def _checked_columns(X):
    """Names of the columns as strings, or None, and the columns; refuses what has none."""
    if isinstance(X, (str, bytes)):
        raise TypeError(f"X must be rows, got {type(X).__name__}. One row is a list of one.")
    if not is_frame(X):
        X = X if issparse(X) else as_rows(X)
        if X.ndim == 1 and any(isinstance(cell, str) for cell in X):
            X = X[:, None]
        check_array(X, dtype=None, ensure_all_finite=False, input_name="X")
    elif 0 in X.shape:
        raise ValueError(f"X must have rows and columns, got shape {tuple(X.shape)}.")
    names, columns = columns_of(X)
    return None if names is None else [str(name) for name in names], columns


class _Column:
    """One column: what its cells are, and a transformer of them."""

    def __init__(self, column, name, encoder):
        self.reader = ColumnReader.fit(column, name)
        self.kind = self.reader.kind
        if self.kind != CATEGORY:
            scaled = make_pipeline(
                StandardScaler(),
                SimpleImputer(strategy="constant", fill_value=0.0, keep_empty_features=True),
            )
            # Beside the scaler: of a column without a known number it knows no scale.
            self.transformer = make_union(scaled, MissingIndicator(error_on_new=False))
            return
        texts = self._cells(column)
        different = len(np.unique(texts))
        few = different <= min(_MOST_CATEGORIES, max(2, len(texts) // 2))
        if few and different < len(texts):
            self.transformer = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
            return
        self.kind = "text"
        n_components = min(encoder.n_components, max(1, len(texts) // 5))
        if isinstance(encoder.text, str):
            self.transformer = _Text(n_components, encoder.random_state)
        else:
            self.transformer = _Encoded(encoder.text, name, n_components, encoder.random_state)

    def _cells(self, column):
        if self.reader.kind == CATEGORY:
            texts = texts_of(column)
            texts[[text is None for text in texts]] = ""
            return texts[:, None]
        numbers = self.reader.read(column)
        if np.isinf(numbers).any():
            raise ValueError(f"Column {self.reader.name!r} must be finite, got infinity.")
        return numbers[:, None]

    def fit_transform(self, column):
        """The column as numbers, learned from it."""
        # A column without a known number has no moments; all of it becomes 0.
        with np.errstate(invalid="ignore", divide="ignore"):
            return self.transformer.fit_transform(self._cells(column))

    def transform(self, column):
        """Another column as numbers."""
        return self.transformer.transform(self._cells(column))


class _Text:
    def __init__(self, n_components, seed):
        self.n_components, self.seed = n_components, seed

    def _counts(self, column):
        texts = column[:, 0]
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
    def __init__(self, encoder, name, n_components, seed):
        self.encoder, self.name = encoder, name
        self.n_components, self.seed = n_components, seed
        self.width = None

    def _vectors(self, texts):
        """What the encoder makes of texts; of equal ones once."""
        different, place = np.unique(texts, return_inverse=True)
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
        texts = column[:, 0]
        if hasattr(self.encoder, "transform"):
            self.encoder = clone(self.encoder).fit(texts)
        vectors, self.directions = self._vectors(texts), None
        if self.n_components < self.width:
            reduction = TruncatedSVD(self.n_components, random_state=self.seed).fit(vectors)
            self.directions = reduction.components_.T
        return self._reduced(vectors)

    def transform(self, column):
        return self._reduced(self._vectors(column[:, 0]))

    def _reduced(self, vectors):
        reduced = vectors if self.directions is None else vectors @ self.directions
        return reduced.toarray() if issparse(reduced) else reduced
