"""Codes of classes that depend neither on what they are called nor on the order of the rows."""

import numpy as np


def name_free(encoded, values, weight):
    """Codes of classes that depend neither on what they are called nor on the order of the rows.

    Parameters
    ----------
    encoded : ndarray of shape (n_samples,), dtype=int
        Codes in the order of the names.
    values : ndarray of shape (n_samples, n_features)
        The rows, which part classes that are equally frequent: the class whose weight is
        smaller at the largest row where they differ comes first. Missing values are one value,
        and the largest.
    weight : ndarray of shape (n_samples,)

    Returns
    -------
    codes : ndarray of shape (n_samples,), dtype=int
        0 is the most frequent class.
    order : ndarray of shape (n_classes,), dtype=int
        The code in the order of the names, of each.
    """
    counts = np.bincount(encoded, weight)
    place = np.unique(-counts, return_inverse=True)[1].ravel()
    if place.max() + 1 < len(counts):
        place = _parted(place, encoded, values, weight)
    order = np.argsort(place, kind="stable")
    return np.argsort(order)[encoded], order


def _parted(place, encoded, values, weight):
    """Places of the classes, of which those that share one are parted by their rows."""
    rows, keys = np.flatnonzero(weight > 0), None
    # In each round the largest row of each class; the first tells nearly all classes apart.
    while len(rows := rows[(np.bincount(place)[place] > 1)[encoded[rows]]]):
        if keys is not None:
            rows = rows[_differing(keys[rows], encoded[rows], weight[rows], place)]
        largest = _largest(rows, encoded, values, len(place))
        first = np.full(len(place), -1)
        first[encoded[largest]] = largest
        there = first >= 0
        found = np.zeros((len(place), values.shape[1] + 3))
        found[:, 0], found[:, 1] = place, there
        found[there, 2:-1] = _plain(values[first[there]])
        found[:, -1] = np.bincount(encoded[largest], weight[largest], len(place))
        place = np.unique(found, axis=0, return_inverse=True)[1].ravel()
        rows = np.setdiff1d(rows, largest, assume_unique=True)
        keys = _keys(values) if keys is None else keys
    return place


def _plain(values):
    """Values with one for what is missing, and one zero; no other is infinite."""
    return np.where(np.isnan(values), np.inf, values + 0.0)


def _largest(rows, encoded, values, n_classes):
    """Those of some rows that are the largest of their class; the first column counts most."""
    n_there = len(np.unique(encoded[rows]))
    for j in range(values.shape[1]):
        if len(rows) == n_there:
            break
        column, own = _plain(values[rows, j]), encoded[rows]
        top = np.full(n_classes, -np.inf)
        np.maximum.at(top, own, column)
        rows = rows[column == top[own]]
    return rows


def _keys(values):
    """A number for each row, the same for equal rows."""
    keys = np.zeros(len(values), dtype=np.uint64)
    for column in values.T:
        keys = (keys ^ _plain(column).view(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
        keys ^= keys >> np.uint64(29)
    return keys


def _differing(keys, encoded, weight, place):
    """Which rows do not have the same weight in all classes of their place.

    Many rows may be in all of these classes alike, and one by one they would take long.
    """
    row = np.unique(keys, return_inverse=True)[1]
    pairs, of_pair = np.unique(row * len(place) + encoded, return_inverse=True)
    own = np.bincount(of_pair, weight)
    n_places = place.max() + 1
    at_place = pairs // len(place) * n_places + place[pairs % len(place)]
    at_places, index = np.unique(at_place, return_inverse=True)
    least, most = np.full(len(at_places), np.inf), np.zeros(len(at_places))
    np.minimum.at(least, index, own)
    np.maximum.at(most, index, own)
    alike = np.bincount(index) == np.bincount(place)[at_places % n_places]
    return ~(alike & (least == most))[index][of_pair]
