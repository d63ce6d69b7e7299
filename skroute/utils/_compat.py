"""Every private scikit-learn name that skroute uses, in one place.

When a new scikit-learn moves one of them, this is the only file to mend.
"""

# ruff: noqa: F401

from numbers import Integral, Real

from sklearn.base import _fit_context
from sklearn.ensemble._base import _BaseHeterogeneousEnsemble as BaseHeterogeneousEnsemble
from sklearn.utils import _safe_indexing
from sklearn.utils._indexing import _get_column_indices as get_column_indices
from sklearn.utils._param_validation import (
    HasMethods,
    Interval,
    InvalidParameterError,
    StrOptions,
    validate_params,
)
from sklearn.utils._plotting import _validate_style_kwargs as validate_style_kwargs
from sklearn.utils._repr_html.estimator import _VisualBlock as VisualBlock
from sklearn.utils.metadata_routing import _raise_for_params as raise_for_params
from sklearn.utils.metadata_routing import _routing_enabled as routing_enabled
from sklearn.utils.metadata_routing import process_routing
from sklearn.utils.metaestimators import _BaseComposition as BaseComposition
from sklearn.utils.metaestimators import _safe_split
from sklearn.utils.parallel import _get_threadpool_controller as threadpool_controller
from sklearn.utils.validation import _check_method_params as check_method_params
from sklearn.utils.validation import _check_response_method as check_response_method
from sklearn.utils.validation import _check_sample_weight as check_sample_weight
from sklearn.utils.validation import _is_fitted as is_fitted
from sklearn.utils.validation import _num_samples as num_samples
