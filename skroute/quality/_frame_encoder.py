"""Rows of a log as numbers: texts, categories, dates and numbers."""

from typing import Any, Self

import numpy as np
from scipy.sparse import csr_array, hstack, issparse
from sklearn import config_context
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.impute import MissingIndicator, SimpleImputer
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import OneHotEncoder, StandardScaler, normalize
from sklearn.utils.validation import check_array, check_is_fitted

from skroute.quality._directions import (
    along,
    along_directions_of_others,
    fit_directions,
)
from skroute.utils._compat import (
    HasMethods,
    Integral,
    Interval,
    StrOptions,
    _fit_context,
    check_feature_names_in,
)
from skroute.utils._frames import (
    CATEGORY,
    ColumnReader,
    as_rows,
    cells_of,
    is_frame,
    is_text,
    names_and_columns,
    texts_of,
)
from skroute.utils._named import in_order
from skroute.utils._pickles import VersionedPickleMixin
from skroute.utils._random import seed_of
from skroute.utils._tensors import on_host
from skroute.utils._typing import ArrayLike, NDArray

# A column of strings with at most this many different values is one of categories.
_MOST_CATEGORIES = 50
# Characters of a text whose sequences are counted; its words are all counted.
_CHARACTERS = 500
# Words and sequences that are kept of a column of texts.
_MOST_WORDS = 10_000
# Columns of sparse rows that are read as an array. As many as the linear member of
# QualityRegressor takes. More of them are words, of which an array would not fit the memory.
_MOST_DENSE_COLUMNS = 1000


class FrameEncoder(VersionedPickleMixin, TransformerMixin, BaseEstimator):
    """Encode a data frame, or texts, as numbers.

    Each column is read by what it holds.

    - Numbers and booleans are scaled to variance one. A missing one becomes the mean, and a column
      that had missing cells in `fit` gets a second column that marks them.
    - Strings with few different values, and columns of a category dtype, are categories: one
      column each. A category that `fit` did not see has 0 in all of them.
    - Other strings are texts: their words, pairs of words and sequences of 3 to 5 characters are
      hashed, weighted by how rare they are, and reduced to `n_components` directions.
    - Dates are numbers: seconds.

    A string stays a string, also one of digits: "007" and "7" are two article numbers, and "nan"
    is a word. Convert columns whose strings are numbers, for example with
    ``frame.astype({"size": float})``. Bytes are read as UTF-8.

    Sparse rows are read as the array of the same numbers. With more than 1,000 columns, such as
    those of :class:`~sklearn.feature_extraction.text.TfidfVectorizer`, they are reduced to
    `n_components` directions instead.

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

    random_state : int, RandomState instance or None, default=0
        Determines the reduction. Pass an int for the same result at every fit.

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
    Outcomes are not used. Columns of a data frame are found by name, so `transform` takes them in
    any order, where scikit-learn's transformers refuse another order.

    ``fit_transform(X)`` is not ``fit(X).transform(X)`` for texts, as in
    :class:`~sklearn.preprocessing.TargetEncoder`: it gives each row as if the row was new, so that
    a model trained on it finds new rows alike. Train models on `fit_transform`, as pipelines do.

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
    >>> encoder.get_feature_names_out()[-3:]
    array(['tenant_blue', 'tenant_red', 'length'], dtype=object)
    """

    _parameter_constraints = {
        "n_components": [Interval(Integral, 1, None, closed="left")],
        "text": [StrOptions({"hashing"}), callable, HasMethods(["fit", "transform"])],
        "random_state": ["random_state"],
    }

    def __init__(self, *, n_components=100, text="hashing", random_state=0):
        self.n_components = n_components
        self.text = text
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike | None = None) -> Self:
        """Learn what the columns hold.

        Parameters
        ----------
        X : data frame, {array-like, sparse matrix} of shape (n_samples, n_features), or \
                sequence of str
            The rows. A list, array or series of strings is one column of texts.

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
        self._fit_rows(X)
        return self

    def fit_transform(self, X, y=None):
        """Learn what the columns hold, and return the rows as numbers.

        Parameters
        ----------
        X, y
            As in `fit`.

        Returns
        -------
        ndarray of shape (n_samples, n_outputs), dtype=float64
            Rows as `transform` would give them after a fit without them. Directions of texts
            turn towards the texts that they are fitted on, so ``fit(X).transform(X)`` has larger
            numbers than new rows have. Or a data frame, see `set_output`.
        """
        return self._fit_rows(X)

    @_fit_context(prefer_skip_nested_validation=True)
    def _fit_rows(self, X):
        """Learn what the columns hold, and return the rows as an array of numbers."""
        vars(self).pop("kinds_", None)
        vars(self).pop("feature_names_in_", None)
        X = _checked_rows(X)
        # One seed for all columns.
        seed = seed_of(self.random_state)
        if issparse(X):
            self.n_features_in_ = X.shape[1]
            self._columns = [_SparseColumns(X, self, seed)]
            kinds = ["number"] * X.shape[1]
            columns = [X]
        else:
            names, columns = names_and_columns(X)
            self.n_features_in_ = len(columns)
            if names is not None:
                self.feature_names_in_ = np.array(
                    [str(name) for name in names], dtype=object
                )
            self._columns = [
                _Column(column, at if names is None else str(names[at]), self, seed)
                for at, column in enumerate(columns)
            ]
            kinds = [encoder.kind for encoder in self._columns]
        # The transformers inside give arrays, whatever output the user has set for all.
        with config_context(transform_output="default"):
            parts = [
                encoder.fit_transform(column)
                for encoder, column in zip(self._columns, columns)
            ]
        self._widths = [part.shape[1] for part in parts]
        self.kinds_ = kinds
        return np.hstack(parts)

    def transform(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return rows as numbers.

        Parameters
        ----------
        X : as in `fit`
            The same columns; those of a data frame are found by name, in any order.

        Returns
        -------
        ndarray of shape (n_samples, n_outputs), dtype=float64
            Or a data frame, see `set_output`.

        Raises
        ------
        ValueError
            For other columns than `fit` saw.
        """
        check_is_fitted(self)
        rows: Any = X
        if hasattr(self, "feature_names_in_"):
            rows = in_order(rows, self.feature_names_in_, "X")
        rows = _checked_rows(rows)
        n_columns = 1 if len(rows.shape) == 1 else rows.shape[1]
        if n_columns != self.n_features_in_:
            raise ValueError(
                f"X has {n_columns} features, but FrameEncoder is expecting "
                f"{self.n_features_in_} features as input."
            )
        if isinstance(self._columns[0], _SparseColumns):
            columns = [rows]
        else:
            columns = names_and_columns(rows)[1]
        with config_context(transform_output="default"):
            parts = [
                encoder.transform(column)
                for encoder, column in zip(self._columns, columns)
            ]
        return np.hstack(parts)

    def get_feature_names_out(
        self, input_features: ArrayLike | None = None
    ) -> NDArray[np.object_]:
        """Return the names of the columns that `transform` makes.

        Parameters
        ----------
        input_features : array-like of str, default=None
            Names of the columns of X where `fit` saw none; otherwise they must be those of `fit`.
            None takes ``feature_names_in_``, or ``x0``, ``x1``, ...

        Returns
        -------
        ndarray of str objects
            A number has the name of its column, the mark of a missing one starts with
            ``missingindicator_``, a category is ``column_value``, and directions are
            ``column_text0``, ``column_text1``, ... Directions of sparse rows are ``direction0``,
            ...
        """
        check_is_fitted(self)
        names_in = check_feature_names_in(self, input_features)
        names_out = []
        for name, encoder, width in zip(names_in, self._columns, self._widths):
            names_out.extend(encoder.names_out(name, width))
        return np.array(names_out, dtype=object)

    def __sklearn_is_fitted__(self):
        return hasattr(self, "kinds_")

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = True
        return tags


def _checked_rows(X):
    """Return rows with columns: a frame, an array, a series of texts or wide sparse rows."""
    if isinstance(X, (str, bytes)):
        raise TypeError(
            f"X must be rows, got {type(X).__name__}. One row is a list of one."
        )
    series = X
    X = as_rows(X)
    if is_frame(X):
        if 0 in X.shape:
            raise ValueError(
                f"X must have rows and columns, got shape {tuple(X.shape)}."
            )
        return X
    if issparse(X):
        X = few_columns_dense(X)
    if issparse(X):
        return check_array(X, accept_sparse="csr", dtype=np.float64, input_name="X")
    if X.ndim == 1 and len(X) and _are_texts(X):
        # The dtype of a series may be that of categories.
        return series if hasattr(series, "dtype") else X
    check_array(X, dtype=None, ensure_all_finite=False, input_name="X")
    return X


def few_columns_dense(X):
    """Return sparse rows of at most 1,000 columns, and frames of sparse columns, as dense ones.

    Anything else is returned as it is.
    """
    if issparse(X):
        narrow = X.ndim == 2 and X.shape[1] <= _MOST_DENSE_COLUMNS
        return X.toarray() if narrow else X
    if hasattr(X, "iloc") and hasattr(X, "sparse") and is_frame(X):
        # pandas has this accessor where all columns are sparse.
        return X.sparse.to_dense()
    return X


def _are_texts(cells):
    """Return True if single cells are texts, some of which may be missing."""
    cells = cells_of(cells)
    return all(cell is None or is_text(cell) for cell in cells) or any(
        map(is_text, cells)
    )


class _SparseColumns:
    """All columns of sparse rows, reduced to a few directions."""

    def __init__(self, rows, encoder, seed):
        self.n_components = min(encoder.n_components, max(1, rows.shape[0] // 5))
        self.seed = seed

    def fit_transform(self, rows):
        """Learn the directions, and return each row along those of the other rows."""
        rows = csr_array(rows)
        self.directions = fit_directions(rows, self.n_components, self.seed)
        return along_directions_of_others(rows, self.directions)

    def transform(self, rows):
        """Return other rows along the directions."""
        return along(csr_array(rows), self.directions)

    def names_out(self, name, width):
        """Return the names of the directions."""
        return [f"direction{at}" for at in range(width)]


class _Column:
    """One column: what its cells are, and a transformer of them."""

    def __init__(self, column, name, encoder, seed):
        self.reader = ColumnReader.fit(column, name)
        self.kind = self.reader.kind
        if self.kind != CATEGORY:
            scaled = make_pipeline(
                StandardScaler(),
                SimpleImputer(
                    strategy="constant", fill_value=0.0, keep_empty_features=True
                ),
            )
            # Beside the scaler: of a column without a known number it knows no scale.
            self.transformer = make_union(scaled, MissingIndicator(error_on_new=False))
            return
        texts = self._cells(column)
        different = len(np.unique(texts))
        few = different <= min(_MOST_CATEGORIES, max(2, len(texts) // 2))
        if few and different < len(texts):
            self.transformer = OneHotEncoder(
                handle_unknown="ignore", sparse_output=False
            )
            return
        self.kind = "text"
        n_components = min(encoder.n_components, max(1, len(texts) // 5))
        if isinstance(encoder.text, str):
            self.transformer = _Text(n_components, seed)
        else:
            self.transformer = _Encoded(encoder.text, name, n_components, seed)

    def _cells(self, column):
        if self.reader.kind == CATEGORY:
            texts = texts_of(column)
            texts[[text is None for text in texts]] = ""
            return texts[:, None]
        numbers = self.reader.read(column)
        if np.isinf(numbers).any():
            raise ValueError(
                f"Column {self.reader.name!r} must be finite, got infinity."
            )
        return numbers[:, None]

    def fit_transform(self, column):
        """The column as numbers, learned from it."""
        # A column without a known number has no moments; all of it becomes 0.
        with np.errstate(invalid="ignore", divide="ignore"):
            return self.transformer.fit_transform(self._cells(column))

    def transform(self, column):
        """Another column as numbers."""
        return self.transformer.transform(self._cells(column))

    def names_out(self, name, width):
        """Return the names of what the column becomes."""
        if self.kind == "text":
            return [f"{name}_text{at}" for at in range(width)]
        if self.kind == CATEGORY:
            return [
                f"{name}_{category}" for category in self.transformer.categories_[0]
            ]
        return [name, f"missingindicator_{name}"][:width]


class _Text:
    def __init__(self, n_components, seed):
        self.n_components, self.seed = n_components, seed

    def _counts(self, column):
        texts = column[:, 0]
        how = {
            "n_features": 2**17,
            "alternate_sign": False,
            "norm": None,
            "dtype": np.float32,
        }
        words = HashingVectorizer(ngram_range=(1, 2), **how)
        characters = HashingVectorizer(analyzer="char_wb", ngram_range=(3, 5), **how)
        both = [
            words.transform(texts),
            characters.transform([t[:_CHARACTERS] for t in texts]),
        ]
        counts = hstack(both, format="csr")
        np.log1p(counts.data, out=counts.data)
        return counts

    def _weighted(self, counts, rarity):
        return normalize(counts.multiply(rarity).tocsr(), copy=False)

    def fit_transform(self, column):
        counts = self._counts(column)
        texts_with = np.bincount(counts.indices, minlength=counts.shape[1])
        # Of what occurs more than once, what occurs most.
        often = np.argsort(-texts_with, kind="stable")[:_MOST_WORDS]
        self.used = np.sort(often[texts_with[often] > 1])
        self.rarity = _rarity(texts_with[self.used], n_texts=len(column))
        self.directions = None
        if len(self.used) < 2:
            return np.zeros((len(column), 1))
        n_components = min(self.n_components, len(self.used) - 1)
        counts = counts[:, self.used]
        rows = self._weighted(counts, self.rarity)
        self.directions = fit_directions(rows, n_components, self.seed).astype(
            np.float32
        )
        # As if a text had not been there: what it has in common with one other occurs once.
        others_with = texts_with[self.used] - 1
        rarity_in_others = _rarity(others_with, n_texts=len(column) - 1)
        rarity_in_others[others_with == 1] = 0
        rows_as_new = self._weighted(counts, rarity_in_others)
        return along_directions_of_others(rows, self.directions, rows_as_new)

    def transform(self, column):
        if self.directions is None:
            return np.zeros((len(column), 1))
        counts = self._counts(column)[:, self.used]
        return along(self._weighted(counts, self.rarity), self.directions)


def _rarity(texts_with, n_texts):
    """Return the weight of words by the number of texts that have them."""
    return (np.log((1 + n_texts) / (1 + texts_with)) + 1).astype(np.float32)


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
        found = (
            own.transform(different) if hasattr(own, "transform") else own(different)
        )
        if not issparse(found):
            found = np.asarray(on_host(found), dtype=np.float64)
        width = found.shape[-1] if self.width is None else self.width
        if found.shape != (len(different), width):
            raise ValueError(
                f"text must give an array of shape (n_texts, n_numbers), here {len(different)} by "
                f"{width}, got shape {found.shape} for column {self.name!r}."
            )
        if not np.isfinite(found.data if issparse(found) else found).all():
            raise ValueError(
                f"text must give finite numbers, got others in column {self.name!r}."
            )
        self.width = width
        return found[place]

    def fit_transform(self, column):
        texts = column[:, 0]
        if hasattr(self.encoder, "transform"):
            self.encoder = clone(self.encoder).fit(texts)
        vectors = self._vectors(texts)
        self.directions = None
        if self.n_components >= self.width:
            return vectors.toarray() if issparse(vectors) else vectors
        self.directions = fit_directions(vectors, self.n_components, self.seed)
        return along_directions_of_others(vectors, self.directions)

    def transform(self, column):
        vectors = self._vectors(column[:, 0])
        if self.directions is None:
            return vectors.toarray() if issparse(vectors) else vectors
        return along(vectors, self.directions)
