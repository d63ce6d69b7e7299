"""Workers of parallel loops, so that threads of models do not exceed the cores."""

from joblib import cpu_count, effective_n_jobs
from joblib.parallel import get_active_backend

# Parameters of models that are numbers of threads.
_PARAMETERS_OF_THREADS = ("n_jobs", "num_threads", "nthread", "thread_count")
# Libraries whose models use all cores if no number of threads is given, also in the
# processes of joblib. Models of other libraries follow joblib's limit.
_LIBRARIES_OF_ALL_CORES = ("catboost", "lightgbm")


def workers_for(models, n_jobs):
    """Return a number of workers whose models do not use more threads than cores.

    joblib limits the threads of OpenMP and BLAS in its processes. It does not limit
    models that have a parameter for it, as ``RandomForestClassifier(n_jobs=-1)``.

    Parameters
    ----------
    models : iterable of estimators
        The models that the workers fit or call.
    n_jobs : int or None
        As in joblib.

    Returns
    -------
    int or None
        `n_jobs` itself if the threads of its workers do not exceed the cores.
    """
    n_workers = effective_n_jobs(n_jobs)
    backend, _ = get_active_backend()
    # Other backends, such as Dask's, have workers on other machines.
    is_local = type(backend).__module__.startswith("joblib.")
    if n_workers == 1 or not is_local:
        return n_jobs
    n_threads = max(threads_of(model) for model in models)
    most_workers = max(1, cpu_count() // n_threads)
    # With models of one thread, the number of workers is the user's decision.
    if n_workers <= most_workers or n_threads == 1:
        return n_jobs
    return most_workers


def threads_of(model):
    """Return the largest number of threads that a model, or a model in it, uses.

    Parameters
    ----------
    model : estimator

    Returns
    -------
    int
        At least 1. A model without a number of threads counts as 1, unless its library
        then uses all cores.
    """
    parameters = model.get_params(deep=True)
    n_threads = 1
    # A parameter may be a class of models. It has `get_params`, but it is not a model.
    for part_of_model in [model, *parameters.values()]:
        if not isinstance(part_of_model, type) and hasattr(part_of_model, "get_params"):
            n_threads = max(n_threads, _threads_of_one(part_of_model))
    return n_threads


def _threads_of_one(model):
    """Return the number of threads that a model uses, without those of models in it."""
    parameters = model.get_params(deep=False)
    for name in _PARAMETERS_OF_THREADS:
        n_threads = parameters.get(name)
        # If no number is set, estimators have None, and CatBoost has no entry. 0 leaves
        # the number to the library.
        if isinstance(n_threads, int) and n_threads != 0:
            return effective_n_jobs(n_threads)
    library = type(model).__module__.partition(".")[0]
    if library in _LIBRARIES_OF_ALL_CORES:
        return cpu_count()
    return 1
