"""The steps of a fit as scikit-learn's callbacks see them."""


class FitTask:
    """A step of a fit, reported to the callbacks of an estimator when it begins and ends.

    Use it as a context manager. A step that raises is not reported as ended.

    Parameters
    ----------
    estimator : estimator
        The estimator whose callbacks are told.

    context : sklearn.callback.CallbackContext
        The context of this step.

    X, y : object, default=None
        What the callbacks are shown.
    """

    def __init__(self, estimator, context, X=None, y=None):
        self.estimator = estimator
        self.context = context
        self.X = X
        self.y = y

    def __enter__(self):
        self.context.call_on_fit_task_begin(estimator=self.estimator, X=self.X, y=self.y)
        return self

    def __exit__(self, kind, error, traceback):
        if kind is None:
            self.context.call_on_fit_task_end(estimator=self.estimator, X=self.X, y=self.y)

    def step(self, name, n_steps=0):
        """A step within this one.

        Steps of a parallel loop are made before the loop: a worker must not change the
        estimator.

        Parameters
        ----------
        name : str
        n_steps : int or None, default=0
            Number of steps within it; None where that is not known.

        Returns
        -------
        FitTask
        """
        context = self.context.subcontext(task_name=name, max_subtasks=n_steps)
        return FitTask(self.estimator, context, self.X, self.y)
