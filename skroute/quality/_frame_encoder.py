"""Encode rows of a log as numbers: texts, categories, dates and numbers."""

from abc import ABC, abstractmethod
from typing import Any, NamedTuple, Self

import numpy as np
from scipy.sparse import csr_array, hstack, issparse
from sklearn import config_context
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.preprocessing import StandardScaler, normalize
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
from skroute.utils._texts_of_fit import counts_of, learned_once
from skroute.utils._typing import ArrayLike, NDArray

# Largest number of different values of a column of categories. A column of strings with
# more values is a column of texts. Each category becomes one column of numbers.
_MOST_CATEGORIES = 50
# Sequences of characters are counted in this number of characters at the start of a
# text. Words are counted in the whole text. Bounds the time of a long text.
_CHARACTERS = 500
# Number of columns that words are hashed to. Sequences of characters are hashed to the
# same number of other columns. With this number, two frequent words seldom share one.
_HASHED_COLUMNS = 2**17
# Largest number of words and sequences that are kept for a column of texts. Bounds time
# and memory.
_MOST_WORDS = 10_000
# Texts and sparse rows are reduced to directions of a singular value decomposition.
# There is at most one direction for this number of rows. With more directions, some
# would describe single rows.
_ROWS_OF_DIRECTION = 5
# Sparse rows are made dense if they have at most this number of columns, which is also
# the limit of the linear member of QualityRegressor. A dense table of more columns,
# such as one of words, may not fit into memory.
_MOST_DENSE_COLUMNS = 1000


class FrameEncoder(VersionedPickleMixin, TransformerMixin, BaseEstimator):
    """Encode a data frame, or texts, as numbers.

    The encoding of a column depends on its cells.

    - Numbers and booleans are scaled to variance one. A missing one becomes the mean. A
      column with missing cells in `fit` gets a second column that marks them.
    - Strings with few different values, and columns of a category dtype, are
      categories: one column each. A category that `fit` did not see has 0 in all of
      them.
    - Other strings are texts. Their words, pairs of words and sequences of 3 to 5
      characters are hashed, weighted by their rarity, and reduced to `n_components`
      directions.
    - Dates are numbers: seconds.

    A string stays a string, also one of digits: "007" and "7" are two article numbers,
    and "nan" is a word. Convert columns whose strings are numbers, for example with
    ``frame.astype({"size": float})``. Bytes are read as UTF-8.

    Sparse rows are read as the array of the same numbers. If they have more than 1,000
    columns, such as those of :class:`~sklearn.feature_extraction.text.TfidfVectorizer`,
    they are reduced to `n_components` directions instead.

    Parameters
    ----------
    n_components : int, default=100
        Directions that each column of texts is reduced to, at most a fifth of the rows.
        Raising it keeps more of a text, and takes longer.

    text : "hashing", callable or transformer, default="hashing"
        Encoder of columns of texts. A callable takes a list of different strings and
        returns a row of numbers for each: an embedding, for example ``model.encode`` of
        a sentence model. A transformer is cloned, and fitted on the texts of each
        column. Their numbers are reduced to `n_components` directions, too, if there
        are more. Copies of the encoder, and pickles, contain a copy of the callable. A
        function of a module is stored by its name.

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
    Outcomes are not used. Columns of a data frame are found by name, so `transform`
    takes them in any order. scikit-learn's transformers refuse another order.

    ``fit_transform(X)`` is not ``fit(X).transform(X)`` for texts, as in
    :class:`~sklearn.preprocessing.TargetEncoder`. `fit_transform` returns each row as
    if it were a new row. So a model is trained on rows that are similar to later rows.
    Train models on the result of `fit_transform`, as pipelines do.

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
        """Learn the kind of each column, such as numbers or texts, and its encoding.

        Parameters
        ----------
        X : data frame, {array-like, sparse matrix} of shape (n_samples, n_features), \
                or sequence of str
            The rows. A list, array or series of strings is one column of texts.

        y : None
            Not used.

        Returns
        -------
        self
            The fitted estimator.

        Raises
        ------
        TypeError or ValueError
            If a column contains neither numbers nor strings, or an infinite number, or
            if `text` does not return a row of finite numbers for each text.
        """
        self._fit_rows(X)
        return self

    def fit_transform(self, X, y=None):
        """Learn the encodings of the columns, and return the rows as numbers.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            As in `fit`.

        y : None
            Not used.

        Returns
        -------
        ndarray of shape (n_samples, n_outputs), dtype=float64
            Each row as `transform` would return it after a fit without this row.
            Directions of texts turn towards the texts that they are fitted on, so
            ``fit(X).transform(X)`` has larger numbers than new rows have. The result is
            a data frame if the user has chosen it by `set_output`.
        """
        return self._fit_rows(X)

    @_fit_context(prefer_skip_nested_validation=True)
    def _fit_rows(self, X):
        """Learn the encodings of the columns, and return an array of numbers.

        Parameters
        ----------
        X : as in `fit`

        Returns
        -------
        ndarray of shape (n_rows, n_outputs), dtype=float64
            Each row as `transform` would return it after a fit without this row.
        """
        # `kinds_` marks a fitted encoder, and is set last. So the encoder is not fitted
        # after a fit that fails.
        vars(self).pop("kinds_", None)
        # The rows of this fit may have no names. Names of an earlier fit are removed.
        vars(self).pop("feature_names_in_", None)
        X = _checked_rows(X)
        # One seed for all columns.
        seed = seed_of(self.random_state)
        if issparse(X):
            # Wide sparse rows: one encoder takes all columns together.
            columns = [X]
            self.n_features_in_ = X.shape[1]
            n_components = _most_directions(self.n_components, n_rows=X.shape[0])
            self._columns = [_SparseRows(n_components, seed)]
            kinds = ["number"] * X.shape[1]
        else:
            names, columns = names_and_columns(X)
            self.n_features_in_ = len(columns)
            if names is not None:
                names = [str(name) for name in names]
                self.feature_names_in_ = np.array(names, dtype=object)
            self._columns = []
            for position, column in enumerate(columns):
                # Messages name a column by its position if it has no name.
                name = position if names is None else names[position]
                encoder = _Column(
                    column,
                    name=name,
                    text=self.text,
                    n_components=self.n_components,
                    seed=seed,
                )
                self._columns.append(encoder)
            kinds = [encoder.kind for encoder in self._columns]
        tables = []
        # The transformers inside return arrays, for any output that the user has set.
        with config_context(transform_output="default"):
            for encoder, column in zip(self._columns, columns):
                tables.append(encoder.fit_transform(column))
        self._widths = [table.shape[1] for table in tables]
        self.kinds_ = kinds
        return np.hstack(tables)

    def transform(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return rows as numbers, by the encodings that `fit` has learned.

        Parameters
        ----------
        X : as in `fit`
            The same columns. The columns of a data frame are found by name, and may be
            in any order.

        Returns
        -------
        ndarray of shape (n_samples, n_outputs), dtype=float64
            A data frame if the user has chosen it by `set_output`.

        Raises
        ------
        ValueError
            If the columns are not the same as in `fit`.
        """
        check_is_fitted(self)
        rows: Any = X
        if hasattr(self, "feature_names_in_"):
            rows = in_order(rows, self.feature_names_in_, "X")
        rows = _checked_rows(rows)
        # Texts in one dimension are one column.
        n_columns = 1 if len(rows.shape) == 1 else rows.shape[1]
        if n_columns != self.n_features_in_:
            raise ValueError(
                f"X has {n_columns} features, but FrameEncoder is expecting "
                f"{self.n_features_in_} features as input."
            )
        if isinstance(self._columns[0], _SparseRows):
            # One encoder takes all sparse columns together.
            columns = [rows]
        else:
            _, columns = names_and_columns(rows)
        tables = []
        with config_context(transform_output="default"):
            for encoder, column in zip(self._columns, columns):
                tables.append(encoder.transform(column))
        return np.hstack(tables)

    def get_feature_names_out(
        self, input_features: ArrayLike | None = None
    ) -> NDArray[np.object_]:
        """Return the names of the columns that `transform` returns.

        Parameters
        ----------
        input_features : array-like of str, default=None
            Names of the columns of X. If X had names in `fit`, they must be the same.
            None takes ``feature_names_in_``, or ``x0``, ``x1``, ...

        Returns
        -------
        ndarray of str objects
            A number has the name of its column. The mark of a missing number starts
            with ``missingindicator_``. A category is ``column_value``. Directions are
            ``column_text0``, ``column_text1``, ... Directions of sparse rows are
            ``direction0``, ``direction1``, ...
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
    """Return rows as a frame, array or csr matrix, or raise an error if not valid.

    Parameters
    ----------
    X : as in `FrameEncoder.fit`

    Returns
    -------
    data frame, ndarray, series of texts, or csr matrix
        Sparse rows of at most 1,000 columns become an array.

    Raises
    ------
    TypeError or ValueError
        If they are a single text, or have no rows or columns.
    """
    if isinstance(X, (str, bytes)):
        raise TypeError(
            f"X must be rows, got {type(X).__name__}. One row is a list of one."
        )
    rows = as_rows(X)
    if is_frame(rows):
        if 0 in rows.shape:
            raise ValueError(
                f"X must have rows and columns, got shape {tuple(rows.shape)}."
            )
        return rows
    if issparse(rows):
        rows = few_columns_dense(rows)
    if issparse(rows):
        return check_array(rows, accept_sparse="csr", dtype=np.float64, input_name="X")
    if rows.ndim == 1 and len(rows) and _are_texts(rows):
        # A series is returned as it is, because its dtype may mark categories.
        return X if hasattr(X, "dtype") else rows
    check_array(rows, dtype=None, ensure_all_finite=False, input_name="X")
    return rows


def few_columns_dense(X):
    """Return sparse rows of at most 1,000 columns, and sparse frames, as dense ones.

    All other rows, of any type, are returned as they are.
    """
    if issparse(X):
        is_narrow = X.ndim == 2 and X.shape[1] <= _MOST_DENSE_COLUMNS
        return X.toarray() if is_narrow else X
    if hasattr(X, "iloc") and hasattr(X, "sparse") and is_frame(X):
        # A frame of pandas has the attribute `sparse` only if all columns are sparse.
        return X.sparse.to_dense()
    return X


def _are_texts(cells):
    """Return True if one of the cells is a text, or if all of them are missing.

    Parameters
    ----------
    cells : series or array-like of shape (n_rows,)

    Returns
    -------
    bool
    """
    cells = cells_of(cells)
    if any(is_text(cell) for cell in cells):
        return True
    return all(cell is None for cell in cells)


def _most_directions(n_components, n_rows):
    """Return the largest number of singular vectors for texts, or for sparse rows.

    The encoders call them directions. The result is `n_components`, but at most one
    direction for each five rows, and at least 1.
    """
    return min(n_components, max(1, n_rows // _ROWS_OF_DIRECTION))


class _ColumnEncoder(ABC):
    """Encoder of one column, or of all columns of sparse rows together."""

    @abstractmethod
    def fit_transform(self, column):
        """Learn the encoding of a column, and return the column as numbers.

        Parameters
        ----------
        column : series or ndarray of shape (n_rows,), or csr matrix
            A csr matrix has all columns of sparse rows.

        Returns
        -------
        ndarray of shape (n_rows, n_outputs), dtype=float64
            Each row as `transform` would return it after a fit without this row.
        """

    @abstractmethod
    def transform(self, column):
        """Return a column of other rows as numbers, by the learned encoding.

        `column` and the result are as in `fit_transform`.
        """

    @abstractmethod
    def names_out(self, name, width):
        """Return names for the `width` outputs of a column called `name`.

        Parameters
        ----------
        name : str
            Name of the column.
        width : int
            Number of outputs, which are the columns of `transform`.

        Returns
        -------
        list of str
        """


class _SparseRows(_ColumnEncoder):
    """Encoder of all columns of sparse rows: coordinates along singular vectors.

    Parameters
    ----------
    n_components : int
        Number of directions.
    seed : int

    Attributes
    ----------
    directions : ndarray of shape (n_columns, n_components)
        Set by `fit_transform`.
    """

    def __init__(self, n_components, seed):
        self.n_components = n_components
        self.seed = seed

    def fit_transform(self, column):
        """Learn directions of sparse rows, and return the coordinates of each row.

        `column` has all columns. The coordinates are as if the directions had been
        fitted without this row.
        """
        rows = csr_array(column)
        self.directions = fit_directions(rows, self.n_components, self.seed)
        return along_directions_of_others(rows, self.directions)

    def transform(self, column):
        """Return the coordinates of other rows along the learned directions."""
        return along(csr_array(column), self.directions)

    def names_out(self, name, width):
        """Return names of the outputs: ``direction0``, ... `name` is not used."""
        return [f"direction{number}" for number in range(width)]


class _Column(_ColumnEncoder):
    """Encoder of one column of a frame or an array.

    Parameters
    ----------
    column : series or ndarray of shape (n_rows,)
        The column of `fit`.
    name : str or int
        Name or position, for messages.
    text, n_components
        Parameters of :class:`FrameEncoder`.
    seed : int

    Attributes
    ----------
    reader : ColumnReader
        Reads the cells.
    kind : str
        ``"number"``, ``"date"``, ``"category"`` or ``"text"``.
    transformer : _Numbers, _Categories, _HashedTexts or _EmbeddedTexts
        Takes cells of shape (n_rows, 1).
    """

    def __init__(self, column, name, *, text, n_components, seed):
        self.reader = ColumnReader.fit(column, name)
        # `reader.kind` is `CATEGORY` for texts, too. A column of texts gets the kind
        # "text" below.
        self.kind = self.reader.kind
        if self.kind != CATEGORY:
            # Numbers and dates.
            self.transformer = _Numbers()
            return
        cells = self._cells(column)
        if _are_categories(cells):
            self.transformer = _Categories()
            return
        self.kind = "text"
        n_directions = _most_directions(n_components, n_rows=len(cells))
        if isinstance(text, str):
            self.transformer = _HashedTexts(n_directions, seed)
        else:
            self.transformer = _EmbeddedTexts(
                text, name, n_components=n_directions, seed=seed
            )

    def _cells(self, column):
        """Return the cells of a column as strings or numbers, of shape (n_rows, 1).

        A missing string is empty, a missing number is NaN.

        Parameters
        ----------
        column : series or ndarray of shape (n_rows,)

        Returns
        -------
        ndarray of shape (n_rows, 1), dtype=object or float64
        """
        if self.reader.kind == CATEGORY:
            texts = texts_of(column)
            is_missing = [text is None for text in texts]
            texts[is_missing] = ""
            return texts[:, None]
        numbers = self.reader.read(column)
        if np.isinf(numbers).any():
            raise ValueError(
                f"Column {self.reader.name!r} must be finite, got infinity."
            )
        return numbers[:, None]

    def fit_transform(self, column):
        """Learn the encoding of the column, and return it as numbers."""
        # A column of missing numbers alone has no mean and no variance. It becomes 0,
        # without a warning.
        with np.errstate(invalid="ignore", divide="ignore"):
            return self.transformer.fit_transform(self._cells(column))

    def transform(self, column):
        """Return the column of other rows as numbers."""
        return self.transformer.transform(self._cells(column))

    def names_out(self, name, width):
        """Return the names of the outputs of the column."""
        if self.kind == "text":
            return [f"{name}_text{number}" for number in range(width)]
        if self.kind == CATEGORY:
            return [f"{name}_{category}" for category in self.transformer.categories]
        if width == 1:
            return [name]
        # A cell was missing in `fit`: the second output marks missing cells.
        return [name, f"missingindicator_{name}"]


class _Numbers:
    """Encoder of numbers: they are scaled to variance one, missing ones are marked.

    This class replaces scikit-learn's `StandardScaler`, `SimpleImputer` and
    `MissingIndicator`. For a single row, they take longer for checks than to compute.

    Attributes
    ----------
    mean, scale : float
        NaN if all numbers were missing in `fit`. All outputs are then 0.
    has_missing : bool
        True if a number was missing in `fit`. The second output marks missing ones.
    """

    def fit_transform(self, column):
        """Learn mean and variance of numbers of shape (n_rows, 1), and scale them."""
        scaler = StandardScaler().fit(column)
        self.mean = scaler.mean_[0]
        self.scale = scaler.scale_[0]
        self.has_missing = bool(np.isnan(column).any())
        return self.transform(column)

    def transform(self, column):
        """Return the scaled numbers, and the marks of missing ones if `has_missing`.

        A missing number becomes 0, the mean after scaling. A mark is 1 for a missing
        number, else 0.

        Parameters
        ----------
        column : ndarray of shape (n_rows, 1)

        Returns
        -------
        ndarray of shape (n_rows, 1 or 2), dtype=float64
        """
        scaled = (column - self.mean) / self.scale
        filled = np.where(np.isnan(scaled), 0.0, scaled)
        if not self.has_missing:
            return filled
        return np.hstack([filled, np.isnan(column)])


class _Categories:
    """Encoder of categories: one column of indicators, 0 or 1, for each category.

    This class replaces scikit-learn's `OneHotEncoder`. For a single row, it takes
    longer for checks than to look up a category.

    Attributes
    ----------
    categories : list of str
        The categories of `fit`, in order.
    column_of_category : dict of str to int
        Column of each category in the output.
    """

    def fit_transform(self, column):
        """Learn the categories of strings, and return their indicators.

        `column` (n_rows, 1) has strings. A missing string is empty.
        """
        self.categories = sorted(set(column[:, 0]))
        self.column_of_category = {}
        for position, category in enumerate(self.categories):
            self.column_of_category[category] = position
        return self.transform(column)

    def transform(self, column):
        """Return 1 at the category of each row, else 0: shape (n_rows, n_categories).

        `column` is as in `fit_transform`. A category that `fit` did not see has 0 in
        all columns.
        """
        indicators = np.zeros((len(column), len(self.categories)))
        for row, category in enumerate(column[:, 0]):
            position = self.column_of_category.get(category)
            # None: a category that `fit` did not see.
            if position is not None:
                indicators[row, position] = 1.0
        return indicators


def _are_categories(cells):
    """Return True if strings have few different values, and not all are different.

    Parameters
    ----------
    cells : ndarray of shape (n_rows, 1), dtype=object
    """
    n_rows = len(cells)
    n_different = len(np.unique(cells))
    # There are at most half as many categories as rows. Two are always allowed.
    most_categories = min(_MOST_CATEGORIES, max(2, n_rows // 2))
    return n_different <= most_categories and n_different < n_rows


class _LearnedWords(NamedTuple):
    """Words, their weights, and directions of their counts, learned from texts.

    A word here is a hashed column: a word, a pair of words, or a sequence of
    characters.

    Attributes
    ----------
    used : ndarray of shape (n_used,), dtype=intp
        Positions of the hashed columns that are used, rising.
    rarity : ndarray of shape (n_used,), dtype=float32
        Weights of these columns.
    directions : ndarray of shape (n_used, n_directions), dtype=float32, or None
        None if the texts have hardly a word in common. All outputs are then 0.
    rows_as_new : ndarray of shape (n_texts, n_outputs)
        Coordinates of each text along the directions, as if words and directions had
        been learned without this text.
    """

    used: np.ndarray
    rarity: np.ndarray
    directions: np.ndarray | None
    rows_as_new: np.ndarray


class _HashedTexts:
    """Encoder of texts: counts of words and characters, reduced to a few directions.

    Parameters
    ----------
    n_components : int
        Largest number of directions.
    seed : int

    Attributes
    ----------
    used, rarity, directions
        As in `_LearnedWords`.
    """

    def __init__(self, n_components, seed):
        self.n_components = n_components
        self.seed = seed

    def fit_transform(self, column):
        """Learn the words and the directions, and return the coordinates of each text.

        The coordinates are as if words and directions had been learned without the
        text.
        """
        # The result is reused if another encoder has learned from these texts, with the
        # same parameters, in the same fit of a router.
        learned = learned_once(
            "words",
            column[:, 0],
            (self.n_components, self.seed),
            count=_counts_of_words,
            learn=self._learn,
        )
        self.used = learned.used
        self.rarity = learned.rarity
        self.directions = learned.directions
        # Other encoders may share this array. Callers get a copy, which may be changed.
        return learned.rows_as_new.copy()

    def _learn(self, counts):
        """Learn words and directions from the counts of texts.

        Parameters
        ----------
        counts : csr matrix of shape (n_texts, n_columns)
            From `_counts_of_words`.

        Returns
        -------
        _LearnedWords
        """
        n_texts, n_columns = counts.shape
        # Number of texts that have each word. A stored entry is a pair of a text and a
        # word in it. (n_columns,)
        n_texts_with = np.bincount(counts.indices, minlength=n_columns)
        most_frequent = np.argsort(-n_texts_with, kind="stable")[:_MOST_WORDS]
        is_repeated = n_texts_with[most_frequent] > 1
        used = np.sort(most_frequent[is_repeated])
        rarity = _rarity(n_texts_with[used], n_texts=n_texts)
        if len(used) < 2:
            # The texts have hardly a word in common: there is no direction.
            all_zero = np.zeros((n_texts, 1))
            return _LearnedWords(used, rarity, directions=None, rows_as_new=all_zero)
        n_components = min(self.n_components, len(used) - 1)
        counts = counts[:, used]
        rows = _weighted_rows(counts, rarity)
        directions = fit_directions(rows, n_components, self.seed)
        directions = directions.astype(np.float32)
        # Weights of the words of a text as if it had not been in `fit`. A word that
        # only one other text has would then not be used. Its weight is 0.
        others_with = n_texts_with[used] - 1
        rarity_in_others = _rarity(others_with, n_texts=n_texts - 1)
        rarity_in_others[others_with == 1] = 0
        rows_as_new = along_directions_of_others(
            rows, directions, _weighted_rows(counts, rarity_in_others)
        )
        return _LearnedWords(
            used, rarity, directions=directions, rows_as_new=rows_as_new
        )

    def transform(self, column):
        """Return the coordinates of new texts along the learned directions.

        `column` (n_texts, 1) has the texts. The result has shape (n_texts, n_outputs).
        """
        if self.directions is None:
            # The texts of `fit` had hardly a word in common.
            return np.zeros((len(column), 1))
        counts = counts_of(column[:, 0], _counts_of_words)[:, self.used]
        return along(_weighted_rows(counts, self.rarity), self.directions)


def _counts_of_words(texts):
    """Return the logarithm of one plus the counts of words in texts.

    Pairs of words and sequences of characters are counted, too.

    Parameters
    ----------
    texts : ndarray of shape (n_texts,), dtype=object

    Returns
    -------
    csr matrix of shape (n_texts, 2 * _HASHED_COLUMNS), dtype=float32
    """
    options = {
        "n_features": _HASHED_COLUMNS,
        "alternate_sign": False,
        "norm": None,
        "dtype": np.float32,
    }
    words = HashingVectorizer(ngram_range=(1, 2), **options)
    characters = HashingVectorizer(analyzer="char_wb", ngram_range=(3, 5), **options)
    beginnings = [text[:_CHARACTERS] for text in texts]
    tables = [words.transform(texts), characters.transform(beginnings)]
    counts = hstack(tables, format="csr")
    # The counts are replaced in place.
    np.log1p(counts.data, out=counts.data)
    return counts


def _weighted_rows(counts, rarity):
    """Return counts times the weights of words (`rarity`), in rows of length 1.

    Parameters
    ----------
    counts : csr matrix of shape (n_texts, n_words)
    rarity : ndarray of shape (n_words,)
        Weights of the columns, from `_rarity`.

    Returns
    -------
    csr matrix of shape (n_texts, n_words)
        The Euclidean length of a row is 1, or 0 if it has no word.
    """
    return normalize(counts.multiply(rarity).tocsr(), copy=False)


def _rarity(n_texts_with, n_texts):
    """Return weights of words, which are smaller if more texts have the word.

    The weight is the inverse document frequency of scikit-learn, with smoothing.

    Parameters
    ----------
    n_texts_with : ndarray of int of shape (n_words,)
        Number of texts that have each word.
    n_texts : int
        Number of all texts.

    Returns
    -------
    ndarray of shape (n_words,), dtype=float32
    """
    weights = np.log((1 + n_texts) / (1 + n_texts_with)) + 1
    return weights.astype(np.float32)


class _EmbeddedTexts:
    """Encoder of texts by a user's callable or transformer, reduced to few numbers.

    Parameters
    ----------
    encoder : callable or transformer
        The parameter `text` of `FrameEncoder`. A transformer is cloned and fitted.
    name : str or int
        Name or position of the column, for messages.
    n_components : int
        Largest number of directions.
    seed : int

    Attributes
    ----------
    width : int or None
        Number of numbers for each text. None before the first text.
    directions : ndarray of shape (width, n_components), or None
        None if `width` is at most `n_components`. The numbers are then returned as they
        are.
    """

    def __init__(self, encoder, name, *, n_components, seed):
        self.encoder = encoder
        self.name = name
        self.n_components = n_components
        self.seed = seed
        self.width = None  # set by the first texts

    def _vectors(self, texts):
        """Return the embedding of each text. The encoder gets each different text once.

        The first texts set `width`.

        Parameters
        ----------
        texts : ndarray of shape (n_texts,), dtype=object

        Returns
        -------
        {ndarray, sparse matrix} of shape (n_texts, width)
        """
        different, position_of_text = np.unique(texts, return_inverse=True)
        different = different.tolist()
        if hasattr(self.encoder, "transform"):
            vectors = self.encoder.transform(different)
        else:
            vectors = self.encoder(different)
        if not issparse(vectors):
            vectors = np.asarray(on_host(vectors), dtype=np.float64)
        # The first texts determine the width. Later texts must have the same width.
        width = vectors.shape[-1] if self.width is None else self.width
        if vectors.shape != (len(different), width):
            raise ValueError(
                "text must give an array of shape (n_texts, n_numbers), here "
                f"{len(different)} by {width}, got shape {vectors.shape} for column "
                f"{self.name!r}."
            )
        # The entries of a sparse matrix that are not stored are 0.
        numbers = vectors.data if issparse(vectors) else vectors
        if not np.isfinite(numbers).all():
            raise ValueError(
                f"text must give finite numbers, got others in column {self.name!r}."
            )
        self.width = width
        return vectors[position_of_text]

    def fit_transform(self, column):
        """Learn directions of embeddings, and return the coordinates of each text.

        The coordinates of a text are as if the directions had been fitted without it.
        If embeddings have few numbers, there are no directions. The embeddings are then
        returned.

        Parameters
        ----------
        column : ndarray of shape (n_texts, 1), dtype=object

        Returns
        -------
        ndarray of shape (n_texts, width or n_components)
        """
        texts = column[:, 0]
        if hasattr(self.encoder, "transform"):
            self.encoder = clone(self.encoder).fit(texts)
        vectors = self._vectors(texts)
        # None: embeddings of at most `n_components` numbers stay as they are.
        self.directions = None
        if self.n_components >= self.width:
            return _dense(vectors)
        self.directions = fit_directions(vectors, self.n_components, self.seed)
        return along_directions_of_others(vectors, self.directions)

    def transform(self, column):
        """Return coordinates of other texts, or embeddings if there are no directions.

        `column` (n_texts, 1) has the texts.
        """
        vectors = self._vectors(column[:, 0])
        if self.directions is None:
            return _dense(vectors)
        return along(vectors, self.directions)


def _dense(rows):
    """Return sparse rows as an array, and dense rows as they are."""
    return rows.toarray() if issparse(rows) else rows
