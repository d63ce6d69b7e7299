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
    kind = X.dtype
    if kind is _KINDS[1] or kind is _KINDS[0]:
        # Compiled code reads whole words.
        return X if X.flags.aligned else X.copy()
    if kind.kind not in kinds:
        return None
    # What is beyond single precision becomes infinite, which the library takes or refuses.
    with np.errstate(over="ignore"):
        return X.astype(dtype)


def _no_answer(X):
    return None


class FewRows:
    """The short path of a reading, prepared; kept out of pickles.

    Parameters
    ----------
    reading : Reading
    takes_arrays : bool
        Whether an array needs no look at names, categories or steps before the forest.

    Attributes
    ----------
    quick_label, quick_proba : callable
        `label` and `proba` of an array of floats; None for anything else.
    """

    def __init__(self, reading, takes_arrays):
        from skroute.forests._row_kernels import row_label, row_proba, row_sums

        forest, how = reading.forest, how_label_is_found(reading)
        layout = row_layout(forest, sums=reading.sums, how=how)
        self._row_label, self._row_proba, self._row_sums = row_label, row_proba, row_sums
        self.takes_arrays, self._n_outputs = takes_arrays, forest.n_outputs
        self._sums = np.dtype(reading.sums)
        self._dtype = np.dtype(forest.cast or forest.dtype)
        self._layout = layout
        self._labels = None
        self.quick_label = self.quick_proba = _no_answer
        if layout is not None and how:
            self._labels = [reading.classes[i : i + 1] for i in range(len(reading.classes))]
            if takes_arrays:
                self.quick_label, self.quick_proba = self._prepared()

    def _prepared(self):
        """`label` and `proba` of a float row, with nothing left to look up."""
        labels, (pack, values), array, empty = self._labels, self._layout, np.ndarray, np.empty
        row_label, row_proba, sums = self._row_label, self._row_proba, self._sums
        (small, double), narrow = _KINDS, self._sums is not _KINDS[1]

        # The kernels look at the shape themselves. Both ask for themselves: a call takes long.
        def label(X):
            if (
                type(X) is not array
                or ((kind := X.dtype) is not double and kind is not small)
                or X.ndim != 2
                or not X.flags.aligned
            ):
                return None
            at = row_label(X, pack, values)
            return labels[at].copy() if at >= 0 else None

        def proba(X):
            if (
                type(X) is not array
                or ((kind := X.dtype) is not double and kind is not small)
                or X.ndim != 2
                or not X.flags.aligned
            ):
                return None
            found = empty((1, 2))
            if not row_proba(X, pack, values, found):
                return None
            return found.astype(sums) if narrow else found

        return label, proba

    def label(self, X):
        """Label of one row, of shape (1,); None where that takes the long path.

        Parameters
        ----------
        X : ndarray
            Of another shape, too, which takes the long path.
        """
        if self._labels is None or X.ndim != 2 or (X := readable(X, self._dtype)) is None:
            return None
        at = self._row_label(X, *self._layout)
        return self._labels[at].copy() if at >= 0 else None

    def proba(self, X):
        """Probabilities of one row, of shape (1, 2); None where that takes the long path.

        Parameters
        ----------
        X : ndarray
            As of :meth:`label`.
        """
        if self._labels is None or X.ndim != 2 or (X := readable(X, self._dtype)) is None:
            return None
        found = np.empty((1, 2))
        if not self._row_proba(X, *self._layout, found):
            return None
        return found if self._sums is _KINDS[1] else found.astype(self._sums)

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
        found = np.empty((len(X), self._n_outputs))
        if not self._row_sums(X, *self._layout, found):
            return None
        return found if self._sums is _KINDS[1] else found.astype(self._sums)
