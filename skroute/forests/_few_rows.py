"""One row, or few: what such a call does not need is left out."""

import numpy as np

from skroute.forests._row_layout import how_label_is_found, row_layout

_KINDS = (np.dtype(np.float32), np.dtype(np.float64))


def readable(X, dtype, kinds="f"):
    """An array in a type that compiled code reads as the library reads X.

    Parameters
    ----------
    X : ndarray
    dtype : dtype
        What the library casts to.

    kinds : str, default="f"
        Kinds of types that it may have.

    Returns
    -------
    ndarray or None
    """
    if X.dtype is _KINDS[1] or X.dtype is _KINDS[0]:
        # Compiled code reads whole words.
        return X if X.flags.aligned else X.copy()
    if X.dtype.kind not in kinds:
        return None
    # What is beyond single precision becomes infinite, which the library takes or refuses.
    with np.errstate(over="ignore"):
        return X.astype(dtype)


class FewRows:
    """The short path of a reading, prepared; kept out of pickles.

    Parameters
    ----------
    reading : Reading
    takes_arrays : bool
        Whether an array needs no look at names, categories or steps before the forest.

    Attributes
    ----------
    one : tuple
        Shape of one row.
    """

    def __init__(self, reading, takes_arrays):
        from skroute.forests._row_kernels import row_label, row_sums

        forest, how = reading.forest, how_label_is_found(reading)
        layout = row_layout(forest, sums=reading.sums, how=how)
        self._row_label, self._row_sums = row_label, row_sums
        self.one, self.takes_arrays = (1, forest.n_features), takes_arrays
        self._dtype, self._sums = np.dtype(forest.dtype), np.dtype(reading.sums)
        self._layout = layout
        self._labels = None
        if layout is not None and how:
            self._labels = [reading.classes[i : i + 1] for i in range(len(reading.classes))]

    def label(self, X):
        """Label of one row, of shape (1,); None where that takes the long path.

        Parameters
        ----------
        X : ndarray of shape (1, n_features)
        """
        if self._labels is None or (X := readable(X, self._dtype)) is None:
            return None
        at = self._row_label(X, *self._layout)
        return self._labels[at].copy() if at >= 0 else None

    def sums(self, X):
        """Sums of few rows; None where that takes the long path, which may refuse them.

        Parameters
        ----------
        X : ndarray of shape (n, n_features)

        Returns
        -------
        ndarray of shape (n, n_outputs) or None
        """
        if self._layout is None or (X := readable(X, self._dtype)) is None:
            return None
        found = self._row_sums(X, *self._layout)
        if len(found) != len(X):
            return None
        return found if self._sums is _KINDS[1] else found.astype(self._sums)
