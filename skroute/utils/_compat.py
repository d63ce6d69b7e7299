"""All private names of scikit-learn that skroute uses, and its newer features.

If a new scikit-learn moves one of them, change this file. The names of `INHERITED` also
stand in the classes that inherit them. ``doc/contributing/maintaining.rst`` gives the
reason for each name.
"""

# ruff: noqa: F401

from numbers import Integral, Real
from typing import Any, NamedTuple

from sklearn.base import _fit_context
from sklearn.ensemble._base import (
    _BaseHeterogeneousEnsemble as BaseHeterogeneousEnsemble,
)
from sklearn.utils import _safe_indexing
from sklearn.utils._indexing import _get_column_indices as get_column_indices
from sklearn.utils._param_validation import HasMethods as _HasMethodsNow
from sklearn.utils._param_validation import Interval, StrOptions, validate_params
from sklearn.utils._plotting import _validate_style_kwargs as validate_style_kwargs
from sklearn.utils._pprint import _EstimatorPrettyPrinter
from sklearn.utils._repr_html.estimator import _VisualBlock as VisualBlock
from sklearn.utils.metadata_routing import _raise_for_params as raise_for_params
from sklearn.utils.metadata_routing import _routing_enabled as routing_enabled
from sklearn.utils.metadata_routing import process_routing
from sklearn.utils.metaestimators import _BaseComposition as BaseComposition
from sklearn.utils.metaestimators import _safe_split
from sklearn.utils.parallel import _get_threadpool_controller as threadpool_controller
from sklearn.utils.validation import _check_feature_names_in as check_feature_names_in
from sklearn.utils.validation import _check_method_params as check_method_params
from sklearn.utils.validation import _check_response_method as check_response_method
from sklearn.utils.validation import _check_sample_weight as check_sample_weight
from sklearn.utils.validation import _is_fitted as is_fitted
from sklearn.utils.validation import _num_samples as num_samples

try:
    from sklearn.callback import CallbackSupportMixin
except ImportError:  # scikit-learn 1.7 and 1.8 have no callbacks.

    class CallbackSupportMixin:  # type: ignore[no-redef]
        """Stand-in for scikit-learn's mixin. An estimator with it has no callbacks."""


# Private names that classes of skroute inherit from a base class of scikit-learn, or
# that scikit-learn looks for. They are called on `self`, overridden or defined, so they
# have no import.
INHERITED = frozenset(
    {
        # BaseEstimator
        "_parameter_constraints",
        "_validate_params",
        # _BaseComposition
        "_get_params",
        "_set_params",
        "_validate_names",
        # Pipeline
        "_final_estimator",
        "_fit",
        # GridSearchCV
        "_format_results",
        "_run_search",
        # The HTML diagram
        "_sk_visual_block_",
    }
)


class HistogramBoosting(NamedTuple):
    """Fitted parts of scikit-learn's histogram-based gradient boosting.

    Attributes
    ----------
    predictors : list of list of TreePredictor
        The trees: for each iteration one for each output.

    baseline : ndarray
        Scores before the first tree.

    preprocessor : ColumnTransformer or None
        Encoder of the categorical columns. None without such columns.
    """

    predictors: list[Any]
    baseline: Any
    preprocessor: Any


def histogram_boosting_of(model):
    """Return the fitted parts of a HistGradientBoosting model of scikit-learn."""
    return HistogramBoosting(
        predictors=model._predictors,
        baseline=model._baseline_prediction,
        preprocessor=model._preprocessor,
    )


def first_scores(model, X):
    """Return the scores of a gradient boosting model before its first tree.

    Parameters
    ----------
    model : GradientBoostingClassifier or GradientBoostingRegressor
    X : ndarray of shape (n_rows, n_features)

    Returns
    -------
    ndarray of shape (n_rows, n_outputs)
    """
    return model._raw_predict_init(X)


def positive_label_of(model):
    """Return the positive label of a TunedThresholdClassifierCV, None before `fit`."""
    scorer = getattr(model, "_curve_scorer", None)
    return None if scorer is None else scorer._get_pos_label()


def is_scorer(value):
    """Return True for a scorer of one metric, as ``make_scorer`` returns it."""
    return hasattr(value, "_score_func")


def will_have(estimator, method):
    """Return True if an estimator has a method, or gets it from `fit`.

    A Pipeline or a search has the methods of its inner estimator. In some other
    estimators, such as a StackingClassifier without a final estimator, `fit` chooses
    the inner estimator. Until `fit`, scikit-learn hides their methods, `predict` among
    them.

    Parameters
    ----------
    estimator : object
    method : str

    Returns
    -------
    bool
    """
    if hasattr(estimator, method):
        return True
    if not hasattr(type(estimator), method):
        return False
    # The class has the method, but this object hides it until `fit`, or because its
    # inner estimator lacks the method.
    steps = getattr(estimator, "steps", None)
    if steps:
        # The last step of a pipeline, a pair of a name and an estimator.
        _, inner = steps[-1]
    else:
        # The estimator inside of a search.
        inner = getattr(estimator, "estimator", None)
    # `inner` is None if the object has neither steps nor an estimator.
    if inner is not None:
        return will_have(inner, method)
    # If the object has `predict`, its inner estimator is chosen already, and lacks the
    # method.
    return not hasattr(estimator, "predict")


class HasMethods(_HasMethodsNow):
    """A constraint on a parameter: it has some methods, or gets them from `fit`."""

    def is_satisfied_by(self, val):
        """Return True if `val` has all methods of the constraint, or gets them later.

        It may get them from `fit`.
        """
        return all(will_have(val, method) for method in self.methods)


class FitTask:
    """A step of a fit, as a context manager that reports to the callbacks.

    The callbacks of the estimator are called when the step begins. They are called
    again when it ends, if it does not fail.

    Parameters
    ----------
    estimator : estimator
        The estimator that is fitted.

    context : sklearn.callback.CallbackContext or None
        None if there are no callbacks.

    X, y : object, default=None
        Rows and targets, which callbacks get.
    """

    def __init__(self, estimator, context, X=None, y=None):
        self.estimator = estimator
        self.context = context
        self.X = X
        self.y = y

    def __enter__(self):
        """Report the start of the step to callbacks."""
        if self.context is not None:
            self.context.call_on_fit_task_begin(
                estimator=self.estimator, X=self.X, y=self.y
            )
        return self

    def __exit__(self, kind, error, traceback):
        """Report the end of the step to callbacks, unless it failed.

        `kind` is the class of the error, and None if there is no error.
        """
        if kind is None and self.context is not None:
            self.context.call_on_fit_task_end(
                estimator=self.estimator, X=self.X, y=self.y
            )

    def step(self, name, n_steps=0):
        """Return a new step of the fit within this step.

        Steps of a parallel loop are created before the loop, since a worker must not
        change the estimator.

        Parameters
        ----------
        name : str
            Description of the step.

        n_steps : int or None, default=0
            Number of steps within the new step. None is unknown.

        Returns
        -------
        FitTask
        """
        context = self.context
        if context is not None:
            context = context.subcontext(task_name=name, max_subtasks=n_steps)
        return FitTask(self.estimator, context, self.X, self.y)


def fit_task(estimator, name, X, y):
    """Return the outermost step of a fit, which reports to callbacks.

    Parameters
    ----------
    estimator : estimator
    name : str
        Description of the step.
    X, y : object
        Rows and targets, which callbacks get.

    Returns
    -------
    FitTask
    """
    # None: scikit-learn 1.7 and 1.8 have no callbacks.
    context = None
    if hasattr(estimator, "_init_callback_context"):
        context = estimator._init_callback_context(task_name=name, max_subtasks=None)
    return FitTask(estimator, context, X, y)


def print_nested(estimator_repr, stand_in):
    """Make scikit-learn print a stand-in for nested estimators with a given `__repr__`.

    Its printer has a table from a ``__repr__`` to a function that prints. Estimators
    whose ``__repr__`` is not in the table are printed as plain objects. This function
    adds a ``__repr__`` to the table.

    Parameters
    ----------
    estimator_repr : function
        ``__repr__`` of a class of estimators.
    stand_in : callable
        ``stand_in(estimator, indent)`` returns the estimator to print instead.
    """

    def print_stand_in(printer, estimator, stream, indent, *further):
        """Print the stand-in of an estimator. The arguments are the printer's own."""
        shown = stand_in(estimator, indent)
        printer._pprint_estimator(shown, stream, indent, *further)

    _EstimatorPrettyPrinter._dispatch[estimator_repr] = print_stand_in
