"""Deep nets with classifier heads at several depths."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state, gen_batches
from sklearn.utils.validation import check_is_fitted, validate_data

from skroute.base import check_rows
from skroute.members._base import checked_labels
from skroute.members._exit_net import ExitNet
from skroute.utils._compat import Integral, Interval, Real, _safe_indexing, num_samples
from skroute.utils._named import check_rows_match
from skroute.utils._optional import import_optional
from skroute.utils._pickles import VersionedPickleMixin
from skroute.utils._scored import CheckedScoreMixin
from skroute.utils._tensors import is_dataset, torch_of
from skroute.utils._typing import ArrayLike, NDArray
from skroute.utils._validation import check_numbers


def _import_torch_exits():
    """Return the module `_torch_exits`, or raise an error if torch is not installed."""
    import_optional("torch", "MultiExitClassifier")
    from skroute.members import _torch_exits

    return _torch_exits


class MultiExitClassifier(
    ExitNet, VersionedPickleMixin, CheckedScoreMixin, ClassifierMixin, BaseEstimator
):
    """A deep net with a classifier head after each of its stages.

    A torch module is divided into stages that are applied one after the other, with a
    head after each. All heads are trained together with skorch, or a trained module is
    used as it is. `predict` returns the answer of the last exit. To stop early, give
    this classifier to :class:`~skroute.early_exit.QWYCEnsemble` as its ensemble. The
    ensemble puts only the undecided rows through the next stage. No stage gets a row
    twice.

    Parameters
    ----------
    module : torch.nn.Module or callable
        The net. Training starts from its weights and does not change them, since `fit`
        works on a copy. With ``max_epochs=0``, `fit` uses the net itself and puts it
        into evaluation mode. It uses a copy if the net must move to `device` or has
        lazy layers. A function ``module(n_features, n_classes)`` builds a new net in
        each `fit`.

    stages : sequence of str or of sequence of str, default=None
        Names of submodules, in order. Each gets the output of the one before. Several
        names for one stage are applied one after the other: ``[("conv1", "relu",
        "layer1"), "layer2"]``. None takes the children of ``module.stages``. The output
        of a stage is a tensor, or tensors and None in tuples, lists and mappings, with
        one entry per row along the first axis.

    heads : sequence of str or of sequence of str, default=None
        Names of submodules, one for each stage. Each gets a copy of the output of its
        stage and returns a score (logit) for each class, in the order of ``classes_``.
        With two classes it may return one score. None takes the children of
        ``module.heads``.

    max_epochs : int, default=10
        Passes over the training rows. With 0, `module` is used as it is trained. `fit`
        then learns only the labels, and does not need skorch.

    lr : float, default=0.001
        Learning rate.

    batch_size : int, default=128
        Rows per training step.

    exit_weights : array-like of shape (n_exits,), default=None
        Weight of each exit's cross-entropy in the training loss. None is 1 for each.
        Raising one makes this exit more accurate at the expense of the others.

    eval_batch_size : int, default=1024
        Rows of a batch in prediction. A larger value uses more memory, and uses a large
        device better.

    device : str or torch.device, default=None
        Device on which the net is trained and evaluated, for example ``"cuda"``. None
        takes the device of `module`.

    net_params : dict, default=None
        Further parameters of :class:`skorch.NeuralNetClassifier`, such as ``optimizer``
        (default: Adam), ``callbacks``, ``train_split`` or ``verbose``.

    random_state : int, RandomState instance or None, default=None
        Determines the first weights and the order of the rows. Pass an int for the same
        result at every fit. The state of torch's own generators does not change.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Class labels.

    module_ : torch.nn.Module
        The trained net.

    n_exits_ : int
        Number of exits.

    history_ : list of dict
        Record of skorch for each epoch.

    n_features_in_ : int
        Number of features seen during `fit`. For arrays of images, the number of
        channels.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of features seen during `fit`, if all are strings.

    See Also
    --------
    skroute.early_exit.QWYCEnsemble : Thresholds on the margin of each exit.
    skroute.routing.SequentialRouterClassifier : Estimates what the next exit is worth.

    Notes
    -----
    Rows are cast to the floating type of the module's parameters. Integers stay
    integers if the first stage has an embedding layer. Images are passed in their
    shape. For flat rows, begin the first stage with ``nn.Unflatten(1, (1, 16, 16))``.

    A net answers its training rows too well. Thresholds and policies need rows that it
    was not trained on. Fit the net first, and give other rows to
    ``QWYCEnsemble(FrozenEstimator(net)).optimize(X_rest)``.

    A net on a device is pickled on the CPU, and is on the CPU when it is loaded.
    ``net.module_.to("cuda")`` moves it.

    References
    ----------
    .. [1] S. Teerapittayanon, B. McDanel and H. T. Kung, "BranchyNet: Fast Inference
       via Early Exiting from Deep Neural Networks", ICPR 2016: heads at several depths,
       trained on the weighted sum of their losses.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.frozen import FrozenEstimator
    >>> from torch import nn
    >>> from skroute.early_exit import QWYCEnsemble
    >>> from skroute.members import MultiExitClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> X = X / 16
    >>> def build(n_features, n_classes):
    ...     wide = [nn.Linear(32, 256), nn.ReLU(), nn.Linear(256, 64), nn.ReLU()]
    ...     small = nn.Sequential(nn.Linear(n_features, 32), nn.ReLU())
    ...     net = nn.Module()
    ...     net.stages = nn.ModuleList([small, nn.Sequential(*wide)])
    ...     heads = [nn.Linear(32, n_classes), nn.Linear(64, n_classes)]
    ...     net.heads = nn.ModuleList(heads)
    ...     return net
    >>> net = MultiExitClassifier(build, lr=0.01, random_state=0).fit(X[:900], y[:900])
    >>> net.n_exits_
    2
    >>> quick = QWYCEnsemble(FrozenEstimator(net), alpha=0.01, random_state=0)
    >>> quick = quick.optimize(X[900:1400])
    >>> bool(quick.route(X[1400:]).mean() < 1.7)  # of 2 stages
    True
    """

    _parameter_constraints: dict = {
        "module": [callable],
        "stages": ["array-like", None],
        "heads": ["array-like", None],
        "max_epochs": [Interval(Integral, 0, None, closed="left")],
        "lr": [Interval(Real, 0, None, closed="neither")],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
        "exit_weights": ["array-like", None],
        "eval_batch_size": [Interval(Integral, 1, None, closed="left")],
        # The type torch.device needs torch. `available_device` checks the value.
        "device": "no_validation",
        "net_params": [dict, None],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        module: Callable[..., Any],
        *,
        stages: Sequence[Any] | None = None,
        heads: Sequence[Any] | None = None,
        max_epochs: int = 10,
        lr: float = 0.001,
        batch_size: int = 128,
        exit_weights: ArrayLike | None = None,
        eval_batch_size: int = 1024,
        device: Any = None,
        net_params: dict | None = None,
        random_state: Any = None,
    ):
        self.module = module
        self.stages = stages
        self.heads = heads
        self.max_epochs = max_epochs
        self.lr = lr
        self.batch_size = batch_size
        self.exit_weights = exit_weights
        self.eval_batch_size = eval_batch_size
        self.device = device
        self.net_params = net_params
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike) -> "MultiExitClassifier":
        """Train all exits together, or use the trained module if `max_epochs` is 0.

        Parameters
        ----------
        X : array-like or tensor of shape (n_samples, ...)
            Training rows.

        y : array-like or tensor of shape (n_samples,)
            Labels.

        Returns
        -------
        self
            Fitted classifier. After a failure it is not fitted.

        Raises
        ------
        ImportError
            Without torch. Also without skorch, if `max_epochs` is not 0.

        TypeError
            For a data set as X, for hidden states that cannot be indexed by row, or for
            `net_params` that are parameters of this class, of its module or of its
            loss.

        ValueError
            If stages, heads, exit weights or classes do not fit together, or if
            `device` is not available.
        """
        # Without `classes_` the estimator is not fitted, as after an error below.
        self.__dict__.pop("classes_", None)
        self._validate_params()
        torch_exits = _import_torch_exits()
        device = None  # that of the module
        if self.device is not None:
            device = torch_exits.available_device(self.device)
        check_rows_match(X=X, y=y)
        rows = check_exit_rows(self, X, reset=True)
        # `codes` are the positions of the rows' labels among the classes: (n_rows,)
        classes, codes = np.unique(checked_labels(rows, y), return_inverse=True)
        if len(classes) < 2:
            raise ValueError(
                "MultiExitClassifier needs at least two classes in y, got one class: "
                f"{classes.tolist()[0]!r}."
            )
        seed = check_random_state(self.random_state).randint(np.iinfo(np.int32).max)
        torch = torch_exits.torch
        # `fork_rng` restores torch's random generators after the block, on the CPU and
        # on all CUDA devices.
        with torch.random.fork_rng(range(torch.cuda.device_count())):
            torch.manual_seed(seed)
            module = torch_exits.build(
                self.module,
                n_features=rows.shape[1],  # of images, the number of channels
                n_classes=len(classes),
                device=device,
                trained=self.max_epochs == 0,
            )
            exits = torch_exits.find_exits(module, self.stages, self.heads)
            torch_exits.check_and_size(exits, rows, classes)
            n_exits = len(exits.stages)
            weights = self._check_exit_weights(n_exits)
            self.history_ = []
            if self.max_epochs:
                self.history_ = torch_exits.train(
                    exits,
                    rows,
                    codes,
                    exit_weights=weights,
                    net_params=self.net_params,
                    max_epochs=self.max_epochs,
                    lr=self.lr,
                    batch_size=self.batch_size,
                )
        self.module_ = module.eval()
        self._exits = exits
        self.n_exits_ = n_exits
        self.classes_ = classes
        return self

    def _check_exit_weights(self, n_exits):
        """Return the weights of the exits as a list of `n_exits` floats."""
        if self.exit_weights is None:
            return [1.0] * n_exits
        weights = check_numbers(
            self.exit_weights, "exit_weights", shape=(n_exits,), low=0
        )
        if not weights.any():
            raise ValueError(
                "exit_weights must have at least one number above 0, got zeros."
            )
        return weights.tolist()

    def __sklearn_is_fitted__(self):
        """Return True after `fit`."""
        return hasattr(self, "classes_")

    # Prediction by one exit or all exits ----------------------------------------------

    def start(self, X: ArrayLike) -> Any:
        """Start a pass in which you choose the depth for each row.

        Parameters
        ----------
        X : array-like or tensor of shape (n_samples, ...)
            The rows.

        Returns
        -------
        ExitRun
            ``run.logits(exit, rows)`` puts rows through the stages up to `exit`. Stages
            that a row has passed are not repeated. It returns the scores of the exit,
            an ndarray of shape (n_rows, n_classes). ``run.proba(exit, rows)`` returns
            its probabilities. The run holds the hidden states of rows until
            ``run.release(rows)``.
        """
        check_is_fitted(self)
        return self._run(check_exit_rows(self, X, reset=False))

    def _run(self, X):
        """Return a new `ExitRun` of validated rows."""
        # In training mode, dropout would be random, and batch normalisation would
        # update its statistics.
        exits = self._exits.eval()
        n_classes = len(self.classes_)
        return _import_torch_exits().ExitRun(exits, n_classes, X, self.eval_batch_size)

    def staged_predict_proba(self, X: ArrayLike) -> Iterator[NDArray[np.float64]]:
        """Yield the class probabilities of each exit, from one pass.

        Parameters
        ----------
        X : array-like or tensor of shape (n_samples, ...)
            The rows.

        Yields
        ------
        ndarray of shape (n_samples, n_classes)
        """
        check_is_fitted(self)
        X = check_exit_rows(self, X, reset=False)
        # For each batch of rows, a list of the probabilities of each exit.
        proba_of_batches = []
        for rows in gen_batches(num_samples(X), self.eval_batch_size):
            run = self._run(_safe_indexing(X, rows))
            proba_of_exits = [run.proba(exit) for exit in range(self.n_exits_)]
            proba_of_batches.append(proba_of_exits)
        for proba_of_exit in zip(*proba_of_batches):
            yield np.concatenate(proba_of_exit)

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return the class probabilities of the last exit.

        Parameters
        ----------
        X : array-like or tensor of shape (n_samples, ...)
            The rows.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Probabilities of the classes.
        """
        return self.start(X).proba(self.n_exits_ - 1)

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return the labels of the last exit.

        Parameters
        ----------
        X : array-like or tensor of shape (n_samples, ...)
            The rows.

        Returns
        -------
        ndarray of shape (n_samples,)
            The answers, one for each row.
        """
        proba = self.predict_proba(X)
        return self.classes_[proba.argmax(axis=1)]

    def stage_call(
        self, exit: int, previous: int = -1
    ) -> Callable[[Any], NDArray[np.float64]]:
        """Return a function to time the stages after `previous` (-1: all) to `exit`.

        Parameters
        ----------
        exit : int
            Last exit, from 0.

        previous : int, default=-1
            Exit that the rows have already reached. -1 is none.

        Returns
        -------
        callable
            Function of rows. Each call does the same work. The first call also computes
            the states at `previous`.
        """
        if previous < 0:
            # The rows have reached no exit.
            return lambda X: self.start(X).logits(exit)
        # Empty before the first call. Then it has one `ExitRun`, whose rows have
        # reached the exit `previous`.
        runs: list[Any] = []

        def call(X):
            """Put rows at exit `previous` through the next stages up to `exit`."""
            if not runs:
                run = self.start(X)
                run.logits(previous)
                runs.append(run)
            return runs[0].branch().logits(exit)

        return call

    # Pickles, which are made on the CPU -----------------------------------------------

    def __getstate__(self):
        """Return the state for a pickle, with all torch modules in host memory."""
        state = super().__getstate__()
        # Only a module has `parameters`. A function that builds one has none.
        has_modules = "module_" in state or hasattr(self.module, "parameters")
        if not has_modules:
            return state
        return _import_torch_exits().on_the_host(state)


def check_exit_rows(net, X, *, reset):
    """Return validated rows of a net: an array, or a tensor on its device.

    Parameters
    ----------
    net : estimator
        The estimator that gets the rows.

    X : array-like or tensor of shape (n_rows, ...)

    reset : bool
        If True, as in `fit`, the number and names of features are set in `net`. If
        False, they are compared with those of `fit`.

    Returns
    -------
    {ndarray, tensor} of shape (n_rows, ...)
    """
    if is_dataset(X):
        raise TypeError(
            f"{type(net).__name__} takes arrays and tensors, got a data set: "
            f"{type(X).__name__}. Stack its rows, for example torch.stack([row for "
            "row, _ in dataset])."
        )
    if torch_of(X) is not None:
        return check_rows(net, X.detach(), reset=reset)
    return validate_data(net, X, reset=reset, dtype="numeric", allow_nd=True)
