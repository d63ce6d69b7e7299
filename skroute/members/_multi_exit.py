"""Deep nets with classifier heads at several depths."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import _safe_indexing, check_consistent_length, check_random_state, get_tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from skroute.members._base import MemberClassifier
from skroute.utils._compat import Integral, Interval, Real, _fit_context, num_samples
from skroute.utils._optional import import_optional

# Rows whose hidden states are held at the same time.
_BLOCK = 8192


def _torch_exits(caller):
    """The torch side, or an error that names the extra."""
    import_optional("torch", caller)
    return import_optional("skroute.members._torch_exits", caller)


class MultiExitClassifier(ClassifierMixin, BaseEstimator):
    """A deep net with a classifier head after each of its stages.

    A torch module is cut into stages that are applied one after the other, with a head
    after each. All heads are trained together with skorch; or the module is taken as it is
    trained. `predict` gives the answer of the last exit. What the earlier exits are for is
    leaving early: :class:`~skroute.early_exit.QWYCEnsemble` takes this classifier as its
    ensemble, and :class:`~skroute.routing.SequentialRouterClassifier` takes
    :meth:`exits` as its members. Both go through the stages with the undecided rows only,
    and no stage sees a row twice.

    Parameters
    ----------
    module : torch.nn.Module or callable
        The net. Training starts from its weights and does not change them: `fit` works on
        a copy. A function ``module(n_features, n_classes)`` builds a new one in each `fit`.

    stages : sequence of str or of sequence of str, default=None
        Names of submodules, in order; each takes what the one before it returned. Several
        names for one stage are applied one after the other:
        ``[("conv1", "relu", "layer1"), "layer2"]``. None takes the children of
        ``module.stages``. What a stage returns is a tensor, or tensors in a tuple, list or
        dict, with one entry per row along the first axis.

    heads : sequence of str or of sequence of str, default=None
        Names of submodules, one for each stage. Each takes what its stage returned and
        gives a score (logit) for each class, in the order of ``classes_``; one score where
        there are two classes. None takes the children of ``module.heads``.

    max_epochs : int, default=10
        Passes over the training rows. 0 takes `module` as it is trained: `fit` then learns
        the labels and nothing else, and needs no skorch.

    lr : float, default=0.001
        Learning rate.

    batch_size : int, default=128
        Rows per training step.

    exit_weights : array-like of shape (n_exits,), default=None
        Weight of each exit's cross-entropy in the loss that is trained on, which is their
        sum. None gives each exit the weight 1. Raising one makes that exit more accurate
        at the expense of the others.

    eval_batch_size : int, default=1024
        Rows that a stage takes at once in prediction. A larger value uses more memory and
        keeps a large device busier.

    device : str, default=None
        Where the net is trained and evaluated, for example ``"cuda"``. None leaves it where
        `module` is.

    net_params : dict, default=None
        Further parameters of :class:`skorch.NeuralNetClassifier`, such as ``optimizer``
        (Adam where it is not given), ``callbacks``, ``train_split`` or ``verbose``.

    random_state : int, RandomState instance or None, default=None
        Determines what is random in building and training. Torch's own generators are left
        as they were.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Class labels.

    module_ : torch.nn.Module
        The trained net.

    n_exits_ : int
        Number of exits.

    history_ : list of dict
        Epoch by epoch, what skorch recorded.

    n_features_in_ : int
        Number of features seen during `fit`; of channels, for images.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of features seen during `fit`, where all are strings.

    See Also
    --------
    skroute.early_exit.QWYCEnsemble : Thresholds on the margin of each exit.
    skroute.routing.SequentialRouterClassifier : Estimates what the next exit is worth.

    Notes
    -----
    Rows are cast to the floating type of the module's parameters, except for integers where
    the first stage has an embedding layer. Rows of more than two dimensions (images) are
    passed in their shape. A flat row becomes an image in the first stage,
    ``nn.Unflatten(1, (1, 16, 16))``.

    A net answers its training rows too well. Thresholds and policies need rows that it was
    not trained on: fit the net first, and give the rest to
    ``QWYCEnsemble(FrozenEstimator(net)).optimize(X_rest)``.

    A net on a device is pickled on the CPU. It returns to the device when it is loaded on
    a machine that has it, and stays on the CPU elsewhere.

    References
    ----------
    .. [1] S. Teerapittayanon, B. McDanel and H. T. Kung, "BranchyNet: Fast Inference via
       Early Exiting from Deep Neural Networks", ICPR 2016: heads at several depths, trained
       on the weighted sum of their losses.

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
    ...     net = nn.Module()
    ...     net.stages = nn.ModuleList(
    ...         [
    ...             nn.Sequential(nn.Linear(n_features, 32), nn.ReLU()),
    ...             nn.Sequential(nn.Linear(32, 256), nn.ReLU(), nn.Linear(256, 64), nn.ReLU()),
    ...         ]
    ...     )
    ...     net.heads = nn.ModuleList([nn.Linear(32, n_classes), nn.Linear(64, n_classes)])
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
        "device": [str, None],
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
        device: str | None = None,
        net_params: dict | None = None,
        random_state: int | np.random.RandomState | None = None,
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

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: ArrayLike, y: ArrayLike) -> "MultiExitClassifier":
        """Train all exits together, or take the module as it is trained.

        Parameters
        ----------
        X : array-like or tensor of shape (n_samples, ...)
            Training rows.

        y : array-like of shape (n_samples,)
            Labels.

        Returns
        -------
        self
            Fitted classifier.

        Raises
        ------
        ImportError
            Without torch; or without skorch where there is something to train.

        ValueError
            For stages, heads, exit weights or classes that do not fit together.
        """
        torch_exits = _torch_exits(type(self).__name__)
        if self.max_epochs:
            import_optional("skorch", type(self).__name__)
        self.__dict__.pop("classes_", None)
        checked = self._check_rows(X, reset=True)
        y = column_or_1d(y, warn=True)
        check_consistent_length(checked, y)
        check_classification_targets(y)
        classes, codes = np.unique(y, return_inverse=True)
        if len(classes) < 2:
            raise ValueError(
                f"{type(self).__name__} needs at least two classes in y, got one class: "
                f"{classes.tolist()[0]!r}."
            )
        seed = check_random_state(self.random_state).randint(np.iinfo(np.int32).max)
        with torch_exits.seeded(seed):
            module = self._build(checked.shape[1], len(classes))
            stages, heads = self._parts(module)
            weights = self._check_exit_weights(len(stages))
            exits = torch_exits.AllExits(stages, heads)
            rows = torch_exits.as_tensor(checked, stages[0], torch_exits.dtype_of(module))
            n_scores = torch_exits.widths(exits, rows[:2])
            if wrong := [k for k, n in enumerate(n_scores) if n != len(classes)]:
                raise ValueError(
                    f"Head {wrong[0]} gives {n_scores[wrong[0]]} scores for each row, but y has "
                    f"{len(classes)} classes: {classes.tolist()!r}."
                )
            self.history_ = []
            if self.max_epochs:
                params = self._net_params(str(torch_exits.device_of(module)))
                self.history_ = torch_exits.train(exits, rows, codes, weights, params)
        self.module_ = module.eval()
        self.n_exits_ = len(stages)
        self.classes_ = classes
        return self

    def _build(self, n_features, n_classes):
        """The module that training starts from, on its device."""
        from copy import deepcopy

        from torch import nn

        if isinstance(self.module, nn.Module):
            module = deepcopy(self.module)
        else:
            module = self.module(n_features, n_classes)
            if not isinstance(module, nn.Module):
                raise TypeError(
                    "module must be a torch.nn.Module or a function (n_features, n_classes) that "
                    f"returns one, got {self.module!r}, which returned {module!r}."
                )
        return module if self.device is None else module.to(self.device)

    def _parts(self, module):
        """Stages and heads of a module."""
        torch_exits = _torch_exits(type(self).__name__)
        stages = torch_exits.find_parts(module, self.stages, "stages")
        heads = torch_exits.find_parts(module, self.heads, "heads")
        if not stages or len(stages) != len(heads):
            raise ValueError(
                f"There must be one head for each stage, got {len(stages)} stages and "
                f"{len(heads)} heads."
            )
        return stages, heads

    def _check_exit_weights(self, n_exits):
        if self.exit_weights is None:
            return np.ones(n_exits)
        weights = np.asarray(self.exit_weights, dtype=np.float64)
        if (
            weights.shape != (n_exits,)
            or not np.all(weights >= 0)
            or not 0 < weights.sum() < np.inf
        ):
            raise ValueError(
                f"exit_weights must have a number that is not negative for each of {n_exits} "
                f"exits, and one above 0 at least, got {self.exit_weights!r}."
            )
        return weights

    def _net_params(self, device):
        from torch.optim import Adam

        return {
            "optimizer": Adam,
            "train_split": None,
            "verbose": 0,
            "iterator_train__shuffle": True,
            "max_epochs": self.max_epochs,
            "lr": self.lr,
            "batch_size": self.batch_size,
            "device": device,
            **(self.net_params or {}),
        }

    def _check_rows(self, X, *, reset):
        # A tensor is indexed where it is; the net itself says what it cannot take.
        tensor = hasattr(X, "index_select")
        return validate_data(
            self,
            X,
            reset=reset,
            **({"skip_check_array": True} if tensor else {"dtype": "numeric", "allow_nd": True}),
        )

    def __sklearn_is_fitted__(self):
        return hasattr(self, "classes_")

    # Prediction -------------------------------------------------------------------

    def start(self, X: ArrayLike) -> Any:
        """Begin a pass that goes as deep with each row as it is asked to.

        Parameters
        ----------
        X : array-like or tensor of shape (n_samples, ...)
            The rows.

        Returns
        -------
        ExitRun
            ``run.logits(exit, rows)`` puts rows through the stages up to `exit`, from where
            they have got to, and returns the scores of that exit, an ndarray of shape
            (n_rows, n_classes); ``run.proba(exit, rows)`` its probabilities. It holds the
            hidden states of rows that may go on.
        """
        check_is_fitted(self)
        return self._run(self._check_rows(X, reset=False))

    def _run(self, X):
        torch_exits = _torch_exits(type(self).__name__)
        stages, heads = self._parts(self.module_)
        return torch_exits.ExitRun(self.module_, stages, heads, X, self.eval_batch_size)

    def exits(self) -> list[tuple[str, "ExitClassifier"]]:
        """The exits as classifiers, in order, that share this fitted net.

        Returns
        -------
        list of (str, classifier)
            Named ``"exit_1"``, ``"exit_2"``, and so on. In a
            :class:`~skroute.routing.SequentialRouterClassifier` each goes on from where the
            one before it stopped, and its cost is what the further stages cost. Anywhere
            else each is a model of its own that starts from the rows.
        """
        check_is_fitted(self)
        return [(f"exit_{k + 1}", ExitClassifier(self, k)) for k in range(self.n_exits_)]

    def staged_predict_proba(self, X: ArrayLike) -> Iterator[NDArray[np.float64]]:
        """Class probabilities of each exit, from one pass.

        Parameters
        ----------
        X : array-like or tensor of shape (n_samples, ...)
            The rows.

        Yields
        ------
        ndarray of shape (n_samples, n_classes)
        """
        check_is_fitted(self)
        X = self._check_rows(X, reset=False)
        blocks = []
        for rows in row_blocks(num_samples(X)):
            run = self._run(_safe_indexing(X, rows))
            blocks.append([run.proba(k) for k in range(self.n_exits_)])
        for parts in zip(*blocks):
            yield np.concatenate(parts)

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Class probabilities of the last exit.

        Parameters
        ----------
        X : array-like or tensor of shape (n_samples, ...)
            The rows.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
        """
        check_is_fitted(self)
        return self._exit_proba(X, self.n_exits_ - 1)

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Labels by the last exit.

        Parameters
        ----------
        X : array-like or tensor of shape (n_samples, ...)
            The rows.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        proba = self.predict_proba(X)
        return self.classes_[proba.argmax(axis=1)]

    def _exit_proba(self, X, exit):
        X = self._check_rows(X, reset=False)
        blocks = row_blocks(num_samples(X))
        return np.concatenate([self._run(_safe_indexing(X, rows)).proba(exit) for rows in blocks])

    def stage_call(self, exit: int, previous: int = -1) -> "StageCall":
        """A function of rows that does what going on to an exit takes, to time it.

        Parameters
        ----------
        exit : int
            From 0.

        previous : int, default=-1
            The exit that rows come from; -1 for rows that come as they are.

        Returns
        -------
        callable
            Each call does the same work again. The first one also computes where it starts.
        """
        return StageCall(self, exit, previous)

    # Pickling ---------------------------------------------------------------------

    def __getstate__(self):
        state = dict(super().__getstate__())
        fitted = state.get("module_")
        if fitted is not None:
            torch_exits = _torch_exits(type(self).__name__)
            state["_device"] = str(torch_exits.device_of(fitted))
            state["module_"] = torch_exits.moved(fitted, "cpu")
            if hasattr(self.module, "parameters"):
                state["module"] = torch_exits.moved(self.module, "cpu")
        return state

    def __setstate__(self, state):
        state = dict(state)
        device = state.pop("_device", None)
        super().__setstate__(state)
        if device is not None:
            torch_exits = _torch_exits(type(self).__name__)
            self.module_ = self.module_.to(torch_exits.available_device(device))


def row_blocks(n):
    """Positions of rows whose hidden states are held at the same time, block by block."""
    for start in range(0, n, _BLOCK):
        yield np.arange(start, min(start + _BLOCK, n))


class StageCall:
    """What going on from one exit to a later one takes, on the rows of the first call.

    Parameters
    ----------
    net : MultiExitClassifier
    exit : int
    previous : int
        -1 for the start.
    """

    def __init__(self, net, exit, previous):
        self.net = net
        self.exit = exit
        self.previous = previous
        self._before = None

    def __call__(self, X):
        if self.previous < 0:
            return self.net.start(X).logits(self.exit)
        if self._before is None:
            self._before = self.net.start(X)
            self._before.logits(self.previous)
        return self._before.branch().logits(self.exit)


class ExitClassifier(MemberClassifier):
    """One exit of a fitted :class:`MultiExitClassifier`.

    Parameters
    ----------
    net : MultiExitClassifier
        Fitted; shared with the other exits, and by clones.

    exit : int
        From 0.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Class labels.
    """

    def __init__(self, net, exit):
        self.net = net
        self.exit = exit

    @property
    def classes_(self):
        """Class labels."""
        return self.net.classes_

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags = get_tags(self.net).input_tags
        return tags

    def fit(self, X, y=None):
        """Check the labels; nothing is learned.

        Parameters
        ----------
        X : array-like or tensor of shape (n_samples, ...)
        y : array-like of shape (n_samples,), default=None

        Returns
        -------
        self
        """
        self._check_y(X, y)
        return self

    def predict_proba(self, X):
        """Class probabilities of this exit, from the rows on.

        Parameters
        ----------
        X : array-like or tensor of shape (n_samples, ...)
            The rows.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
        """
        return self.net._exit_proba(X, self.exit)

    def predict(self, X):
        """Labels by this exit.

        Parameters
        ----------
        X : array-like or tensor of shape (n_samples, ...)
            The rows.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        return self.classes_[self.predict_proba(X).argmax(axis=1)]
