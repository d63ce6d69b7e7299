"""Codes of classes that depend neither on what they are called nor on the order of the rows."""

import numpy as np

from skroute.gating._levels import row_keys


def name_free(encoded, values, weight):
    """Codes of classes that depend neither on what they are called nor on the order of the rows.

    Parameters
    ----------
    encoded : ndarray of shape (n_samples,), dtype=int
        Codes in the order of the names.
    values : ndarray of shape (n_samples, n_features)
        The rows, which part classes that are equally frequent.
    weight : ndarray of shape (n_samples,)

    Returns
    -------
    codes : ndarray of shape (n_samples,), dtype=int
        0 is the most frequent class.
    order : ndarray of shape (n_classes,), dtype=int
        The code in the order of the names, of each.
    """
    counts = np.bincount(encoded, weight)
    sums = np.zeros(len(counts), dtype=np.uint64)
    if len(np.unique(counts)) < len(counts):
        sums = checksums(encoded, row_keys(values), weight)
    order = np.lexsort((sums, -counts))
    return np.argsort(order)[encoded], order


def checksums(encoded, keys, weight):
    """A number for each class: the same for the same rows with the same weights, else as if drawn.

    Parameters
    ----------
    encoded : ndarray of shape (n_samples,), dtype=int
    keys : ndarray of shape (n_samples,), dtype=uint64
        The same for equal rows.
    weight : ndarray of shape (n_samples,)
        That of equal rows of a class is one weight, their sum.

    Returns
    -------
    ndarray of shape (n_classes,), dtype=uint64
    """
    n_classes = encoded.max() + 1
    different, row = np.unique(keys, return_inverse=True)
    pairs, of_row = np.unique(row * n_classes + encoded, return_inverse=True)
    own = np.bincount(of_row, weight)
    pairs, own = pairs[own > 0], own[own > 0]
    key = different[pairs // n_classes]
    # The halves of a key are exact as floats.
    halves = (key >> np.uint64(32)).astype(float), (key & np.uint64(0xFFFFFFFF)).astype(float)
    sums = np.zeros(n_classes, dtype=np.uint64)
    np.add.at(sums, pairs % n_classes, row_keys(np.column_stack([*halves, own])))
    return sums
