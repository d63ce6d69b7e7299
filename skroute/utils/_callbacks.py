"""The steps of a fit as scikit-learn's callbacks see them; nothing below scikit-learn 1.9."""

try:
    from sklearn.callback import CallbackSupportMixin
except ImportError:  # scikit-learn 1.7 and 1.8 have no callbacks.

    class CallbackSupportMixin:  # type: ignore[no-redef]
        """Takes no callbacks."""


class FitTask:
    """A step of a fit, a context manager: callbacks hear of its begin and, if it ends well, end.

    Parameters
    ----------
    estimator : estimator
        The estimator whose callbacks are told.

    context : sklearn.callback.CallbackContext or None
        The context of this step; None where there are no callbacks.

    X, y : object, default=None
        What the callbacks are shown.
    """

    def __init__(self, estimator, context, X=None, y=None):
        self.estimator, self.context, self.X, self.y = estimator, context, X, y

    def __enter__(self):
        if self.context is not None:
            self.context.call_on_fit_task_begin(estimator=self.estimator, X=self.X, y=self.y)
        return self

    def __exit__(self, kind, error, traceback):
        if kind is None and self.context is not None:
            self.context.call_on_fit_task_end(estimator=self.estimator, X=self.X, y=self.y)

    def step(self, name, n_steps=0):
        """A step within this one; `n_steps` is the number of steps within it, None if unknown.

        Steps of a parallel loop are made before the loop: a worker must not change the
        estimator.
        """
        context = self.context
        if context is not None:
            context = context.subcontext(task_name=name, max_subtasks=n_steps)
        return FitTask(self.estimator, context, self.X, self.y)


def fit_task(estimator, name, X, y):
    """The outermost step of a fit."""
    context = None
    if hasattr(estimator, "_init_callback_context"):
        context = estimator._init_callback_context(task_name=name, max_subtasks=None)
    return FitTask(estimator, context, X, y)
