"""An engine behind the steps of a pipeline: rows are prepared, then walked."""

from typing import Any, NamedTuple


class PreparedEngine(NamedTuple):
    """Transforms rows whole, then evaluates; see :class:`~skroute.early_exit._engines.Engine`.

    Attributes
    ----------
    inner : Engine
    before : tuple of transformers
    """

    inner: Any
    before: tuple

    def __getattr__(self, name):
        # What the engine knows of itself: numbers, offset, link.
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.inner, name)

    @property
    def forest(self):
        """None: trees alone do not say how rows are prepared."""
        return None

    def _prepared(self, X):
        for transformer in self.before:
            X = transformer.transform(X)
        return X

    def remembering(self, once):
        """The engine for a walk over the same rows, which are prepared once."""
        inner = self.inner
        if hasattr(inner, "remembering"):
            inner = inner.remembering(once)
        return PreparedEngine(inner, (_Once(self, once),))

    def taken(self, order):
        """The engine that evaluates these members in this order."""
        return self._replace(inner=self.inner.taken(order))

    def scores(self, X):
        """What each member adds."""
        return self.inner.scores(self._prepared(X))

    def walk(self, X, thresholds, n_jobs=None):
        """Evaluate row by row until the thresholds stop it."""
        return self.inner.walk(self._prepared(X), thresholds, n_jobs)

    def member_calls(self):
        """For each member a function of rows, to time it, preparation included."""
        return {
            t: (lambda X, call=call: call(self._prepared(X)))
            for t, call in self.inner.member_calls().items()
        }

    def plain(self, X):
        """Rows as the library surely takes them: the pipeline's own."""
        return X


class _Once(NamedTuple):
    """All steps before the ensemble, for the same rows."""

    engine: PreparedEngine
    once: Any

    def transform(self, X):
        return self.once.whole("prepared", lambda: self.engine._prepared(X))
