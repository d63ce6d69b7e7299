"""Counts of words, which are computed once for each text of a fit.

A router fits its estimators on several sets of rows, and each estimator may encode the
same texts. Counts of the words of a text depend on this text alone, so no estimator
learns from them about rows that it must not see. What is learned from counts is shared
only between fits on the same texts in the same order, which give the same result.
"""

import threading
from contextlib import contextmanager

import numpy as np
from scipy import sparse

# Largest number of stored counts. With 8 bytes for each, they take half a gigabyte. A
# prompt of 500 characters has about 1,300 counts. If there are more counts, further
# texts are counted whenever they are encoded.
_MOST_STORED = 2**26


class _Texts:
    """The texts of the fits that run now, and results of functions of texts.

    Attributes
    ----------
    n_fits : int
        Number of fits that run now, one within another or in several threads. The
        results are dropped when it becomes 0.
    lock : RLock
        Held while results are read or added.
    position_of_text : dict of str to int
        Row of each text in `counts`.
    counts : csr matrix of shape (n_texts, n_columns), or None
        Counts of the words of each text. None before the first text.
    results : dict
        Results of functions of some texts, by name, parameters and texts.
    """

    def __init__(self):
        self.n_fits = 0
        self.lock = threading.RLock()
        self.drop()

    def drop(self):
        """Forget all texts and results."""
        self.position_of_text = {}
        self.counts = None
        self.results = {}

    def positions(self, texts, count):
        """Return the rows of `texts` in the table `counts`, and add new texts to it.

        Parameters
        ----------
        texts : ndarray of shape (n_texts,), dtype=object
        count : callable
            ``count(new_texts)`` returns their counts, a csr matrix. It is called for
            texts that have no row, if there are any.

        Returns
        -------
        ndarray of shape (n_texts,), dtype=intp, or None
            None if there would be more than `_MOST_STORED` counts. Nothing is added.
        """
        new_texts = []
        for text in dict.fromkeys(texts):
            if text not in self.position_of_text:
                new_texts.append(text)
        if new_texts:
            all_counts = count(np.array(new_texts, dtype=object))
            if self.counts is not None:
                all_counts = sparse.vstack([self.counts, all_counts], format="csr")
            if all_counts.nnz > _MOST_STORED:
                return None
            self.counts = all_counts
            for text in new_texts:
                self.position_of_text[text] = len(self.position_of_text)
        return np.array([self.position_of_text[text] for text in texts], dtype=np.intp)


# The texts of all fits of this process.
_TEXTS = _Texts()


@contextmanager
def texts_counted_once():
    """Count the words of each text once in a ``with`` block, also in its threads."""
    with _TEXTS.lock:
        _TEXTS.n_fits += 1
    try:
        yield
    finally:
        with _TEXTS.lock:
            _TEXTS.n_fits -= 1
            if _TEXTS.n_fits == 0:
                _TEXTS.drop()


def counts_of(texts, count):
    """Return counts of the words of texts. Those that the fit has stored are reused.

    Parameters
    ----------
    texts : ndarray of shape (n_texts,), dtype=object
    count : callable
        ``count(texts)`` returns counts of any texts, a csr matrix. It is the same
        function in all calls.

    Returns
    -------
    csr matrix of shape (n_texts, n_columns)
    """
    # Outside of a fit, a text is read once: nothing is stored.
    if _TEXTS.n_fits == 0:
        return count(texts)
    with _TEXTS.lock:
        positions = _TEXTS.positions(texts, count)
        # None: there are too many texts to store.
        if positions is None:
            return count(texts)
        return _TEXTS.counts[positions]


def learned_once(name, texts, parameters, *, count, learn):
    """Return what is learned from texts. The result of an earlier call is reused.

    Parameters
    ----------
    name : str
        Name of the function `learn`: with the same texts and parameters, the same name
        must mean the same result.
    texts : ndarray of shape (n_texts,), dtype=object
    parameters : tuple
        All that `learn` depends on, next to the texts.
    count : callable
        As in `counts_of`.
    learn : callable
        ``learn(counts)`` returns the result. Within a fit, it is not called if the
        result is stored already.

    Returns
    -------
    object
        Callers must not change it.
    """
    # Outside of a fit, nothing is stored.
    if _TEXTS.n_fits == 0:
        return learn(count(texts))
    with _TEXTS.lock:
        positions = _TEXTS.positions(texts, count)
        # None: there are too many texts to store.
        if positions is None:
            return learn(count(texts))
        key = (name, parameters, positions.tobytes())
        if key in _TEXTS.results:
            return _TEXTS.results[key]
        counts = _TEXTS.counts[positions]
    # Without the lock: threads that learn from other texts do not wait.
    result = learn(counts)
    with _TEXTS.lock:
        _TEXTS.results[key] = result
    return result
