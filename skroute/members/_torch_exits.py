"""The torch part of nets with exits: stages and heads, training, prediction.

This module imports torch. Other modules import it only where they need it.
"""

import io
from collections.abc import Mapping
from copy import copy, deepcopy
from typing import Any

import numpy as np
import torch
from scipy.special import softmax
from sklearn.utils import gen_batches
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parameter import is_lazy

from skroute.utils._compat import _safe_indexing, num_samples
from skroute.utils._optional import import_optional


class AllExits(nn.Module):
    """The stages and heads of a net, as a module that returns all scores.

    Parameters
    ----------
    stages, heads : list of torch.nn.Module
        One head for each stage.
    """

    def __init__(self, stages, heads):
        super().__init__()
        self.stages = nn.ModuleList(stages)
        self.heads = nn.ModuleList(heads)
        embeddings = (nn.Embedding, nn.EmbeddingBag)
        # An embedding reads whole numbers.
        self.has_embedding = any(
            isinstance(module, embeddings) for module in self.stages[0].modules()
        )

    def cast(self, X):
        """Convert the tensor X (n_rows, ...) to the type that the first stage takes."""
        if self.has_embedding and not X.is_floating_point():
            return X.to(torch.int64)
        # Rows get the floating type of the net: that of the first parameter with one.
        for parameter in self.parameters():
            if parameter.is_floating_point():
                return X.to(parameter.dtype)
        # No parameter of the net is of a floating type.
        return X.to(torch.get_default_dtype())

    def first_state(self, X, rows):
        """Return a copy of some rows of X on the net's device, as input of stage 0.

        The first stage may change the copy.

        Parameters
        ----------
        X : ndarray or tensor of shape (n_all_rows, ...)

        rows : ndarray of int of shape (n_rows,)

        Returns
        -------
        tensor of shape (n_rows, ...)
        """
        selected = torch.as_tensor(_safe_indexing(X, rows))
        return self.cast(selected).to(device_of(self))

    def scores(self, exit, state):
        """Return the class scores of one head, shape (n_rows, n_classes).

        If the head returns one score, it is the score of the second of two classes. The
        score of the first class is then 0.

        Parameters
        ----------
        exit : int
            Number of the head and of its stage, from 0.

        state : tensor, or tensors in tuples, lists and mappings
            Hidden state: the output of the stage. The head gets a copy, which it may
            change.
        """
        scores = self.heads[exit](map_state(torch.clone, state))
        scores = scores.reshape(len(scores), -1)
        if scores.shape[1] == 1:
            # (1, 0) adds one column of zeros before the scores, and none after them.
            return nn.functional.pad(scores, (1, 0))
        return scores

    def forward(self, X):
        """Return the scores of all exits for the rows X, a tuple. The last comes first.

        skorch predicts by the first entry of a tuple.
        """
        scores = []
        state = self.cast(X)  # input of the next stage
        for exit, stage in enumerate(self.stages):
            state = stage(state)
            scores.append(self.scores(exit, state))
        return tuple(scores[::-1])


def device_of(module):
    """Return the device of a module's parameters, the CPU if it has none."""
    # All parameters are on one device: that of the first is returned.
    for parameter in module.parameters():
        return parameter.device
    return torch.device("cpu")


# A hidden state is the output of a stage: a tensor, or tensors and None in tuples,
# lists and mappings.


def map_state(function, *states):
    """Apply a function to the tensors of hidden states that have the same structure.

    Parameters
    ----------
    function : callable
        For each place in the structure, it is called with the tensors of all states at
        this place.

    *states : tensor, None, tuple, list or mapping
        Hidden states.

    Returns
    -------
    tensor, None, tuple, list or mapping
        The results in the structure of the states.
    """
    first = states[0]
    if isinstance(first, torch.Tensor):
        return function(*states)
    if first is None:
        return None
    if isinstance(first, Mapping):
        mapped = copy(first)
        for key in first:
            mapped[key] = map_state(function, *(state[key] for state in states))
        return mapped
    if not isinstance(first, (tuple, list)):
        raise TypeError(
            "A hidden state may hold tensors and None, in tuples, lists and mappings; "
            f"it cannot hold a {type(first).__name__}."
        )
    # Each `group` is a tuple of the entries that the states have at one position.
    entries = [map_state(function, *group) for group in zip(*states)]
    if hasattr(first, "_fields"):
        # A named tuple takes its entries one by one.
        return type(first)(*entries)
    return type(first)(entries)


def take_rows(state, rows):
    """Return a copy of some rows of a hidden state.

    Parameters
    ----------
    state : tensor, or tensors and None in tuples, lists and mappings

    rows : ndarray of int
        Positions of the rows.

    Returns
    -------
    object in the structure of `state`
    """
    return map_state(lambda tensor: tensor[torch.as_tensor(rows)], state)


class SummedCrossEntropy(nn.CrossEntropyLoss):
    """Weighted sum of the cross-entropies of all exits.

    Parameters
    ----------
    exit_weights : list of float
        Weight of each exit, from the first to the last.
    """

    def __init__(self, exit_weights):
        super().__init__()
        self.exit_weights = exit_weights

    def forward(self, scores, target):
        """Return the weighted sum of the losses of all exits, a tensor without axes.

        Parameters
        ----------
        scores : tuple of tensor of shape (n_rows, n_classes)
            From :class:`AllExits`, those of the last exit first.

        target : tensor of int of shape (n_rows,)
            Positions of the classes.
        """
        loss = 0
        for weight, scores_of_exit in zip(self.exit_weights, reversed(scores)):
            loss = loss + weight * nn.functional.cross_entropy(scores_of_exit, target)
        return loss


def available_device(device):
    """Return the torch device of this name, or raise a ValueError with the reason."""
    try:
        tensor = torch.zeros(1, device=device)
        tensor.item()
    # RuntimeError: an unknown name, no driver, or "meta", which computes nothing.
    # AssertionError: a build without CUDA or XPU.
    # ImportError: a backend in a package of its own (hpu).
    except (RuntimeError, AssertionError, ImportError) as error:
        raise ValueError(
            f"device={str(device)!r} is not available here ({error}). "
            'Use device=None or "cpu".'
        ) from error
    return tensor.device


def build(module, n_features, n_classes, device, *, trained):
    """Return the net for `fit`: `module`, its copy, or the net that `module` builds.

    Parameters
    ----------
    module : torch.nn.Module or callable
        The net, or a function that builds one. A net is copied if `fit` would change
        it.

    n_features, n_classes : int
        Arguments of this function.

    device : torch.device or None
        Device of the result. None keeps that of the module.

    trained : bool
        True if the net is already trained, so that `fit` does not change its weights.

    Returns
    -------
    torch.nn.Module
    """
    if isinstance(module, nn.Module):
        # A lazy layer gets its size, and thus its parameters, from the first rows.
        is_any_lazy = any(is_lazy(parameter) for parameter in module.parameters())
        keeps_device = device in (None, device_of(module))
        is_unchanged = trained and not is_any_lazy and keeps_device
        built = module if is_unchanged else deepcopy(module)
    else:
        built = module(n_features, n_classes)
        if not isinstance(built, nn.Module):
            raise TypeError(
                "module must be a torch.nn.Module or a function (n_features, "
                f"n_classes) that returns one, got {module!r}, which returned "
                f"{built!r}."
            )
    if device is None:
        return built
    return built.to(device)


def find_exits(module, stages, heads):
    """Find the stages and heads of a net by name, and return them as one module.

    Parameters
    ----------
    module : torch.nn.Module

    stages, heads : sequence of str or of sequence of str, or None
        As in `MultiExitClassifier`.

    Returns
    -------
    AllExits
    """
    stages = _find_parts(module, stages, "stages")
    heads = _find_parts(module, heads, "heads")
    if not stages or len(stages) != len(heads):
        raise ValueError(
            f"There must be one head for each stage, got {len(stages)} stages and "
            f"{len(heads)} heads."
        )
    return AllExits(stages, heads)


def _find_parts(module, names, attribute):
    """Return submodules of a net by name, or all in `attribute` if `names` is None.

    Parameters
    ----------
    module : torch.nn.Module

    names : sequence of str or of sequence of str, or None
        Submodules whose names are in one entry are applied one after the other. None
        takes the children of the attribute `attribute` of the net.

    attribute : {"stages", "heads"}
        Also the name of the parameter of `MultiExitClassifier`, for messages.

    Returns
    -------
    list of torch.nn.Module
    """
    children = [name for name, _ in module.named_children()]
    if names is None:
        modules = getattr(module, attribute, None)
        if not isinstance(modules, (nn.ModuleList, nn.Sequential)):
            raise ValueError(
                f"{attribute}=None needs a module with a ModuleList {attribute!r}, got "
                f"{type(module).__name__} without. Give the names of its submodules: "
                f"{children!r}."
            )
        return list(modules)
    submodules = dict(module.named_modules(remove_duplicate=False))
    parts = []
    for names_of_part in names:
        if isinstance(names_of_part, str):
            names_of_part = [names_of_part]
        layers = []
        for name in names_of_part:
            if name not in submodules:
                raise ValueError(
                    f"{attribute} names {name!r}, which is no submodule of "
                    f"{type(module).__name__}; it has {children!r}."
                )
            layers.append(submodules[name])
        parts.append(nn.Sequential(*layers))
    return parts


def check_and_size(exits, X, classes):
    """Check the shapes that stages and heads return, on the first rows.

    The call of lazy layers also sizes them, in place.

    Parameters
    ----------
    exits : AllExits
        The net, which is set to evaluation.

    X : ndarray or tensor of shape (n_rows, ...)
        Training rows, of which the first two are used.

    classes : ndarray of shape (n_classes,)
        The labels. A head returns one score for each.

    Raises
    ------
    ValueError
        If the net is on several devices, or a stage or head returns another shape than
        one entry for each row.
    """
    devices = {str(parameter.device) for parameter in exits.parameters()}
    if len(devices) > 1:
        raise ValueError(
            f"module is spread over the devices {sorted(devices)!r}; a "
            "MultiExitClassifier keeps its net on one. Move it, or name the one in "
            "device."
        )
    exits.eval()
    # Not inference_mode, since parameters that are created in it cannot be trained.
    with torch.no_grad():
        # Two calls with different numbers of rows. If the length of a tensor does not
        # depend on the rows, one of the calls shows it.
        for n_rows in (2, 1):
            state = exits.first_state(X, np.arange(n_rows))
            for exit, stage in enumerate(exits.stages):
                state = stage(state)
                shapes = _shapes_of(state)
                # Without any tensor, `shapes` is empty.
                if not shapes or any(shape[:1] != (n_rows,) for shape in shapes):
                    raise ValueError(
                        "Each tensor of a hidden state must have one entry for each "
                        f"row along its first axis, got the shapes {shapes!r} for "
                        f"{n_rows} rows from stage {exit}, counted from 0. Make a "
                        "tensor that all rows share a buffer of the module, or expand "
                        "it."
                    )
                scores = exits.scores(exit, state)
                expected_shape = (n_rows, len(classes))
                if scores.shape != expected_shape:
                    # `AllExits.scores` has made two columns of a single score.
                    raise ValueError(
                        f"Head {exit} gives scores of shape {tuple(scores.shape)} for "
                        f"{n_rows} rows, but the shape must be {expected_shape}: one "
                        f"score for each of the classes {classes.tolist()!r}. A single "
                        "score of a row counts as the scores of two classes."
                    )


def _shapes_of(state):
    """Return the shapes of all tensors of a hidden state, as a list of tuples."""
    shapes = []
    map_state(lambda tensor: shapes.append(tuple(tensor.shape)), state)
    return shapes


def train(exits, X, y, exit_weights, net_params, *, max_epochs, lr, batch_size):
    """Train all exits together with skorch, in place.

    Parameters
    ----------
    exits : AllExits
        The net.

    X : ndarray or tensor of n_rows rows
        Training rows.

    y : ndarray of shape (n_rows,), dtype=int64
        Positions of the classes.

    exit_weights : list of float
        Weight of the loss of each exit.

    net_params : dict or None
        Further parameters of :class:`skorch.NeuralNetClassifier`.

    max_epochs : int
        Passes over the rows.

    lr : float
        Learning rate.

    batch_size : int
        Rows per training step.

    Returns
    -------
    list of dict
        Record of each epoch, without its batches.
    """
    skorch = import_optional("skorch", "MultiExitClassifier")
    params = {
        "optimizer": torch.optim.Adam,
        "train_split": None,
        "verbose": 0,
        "iterator_train__shuffle": True,
        **(net_params or {}),
    }
    has_batch_norm = any(isinstance(module, _BatchNorm) for module in exits.modules())
    last_batch_has_one_row = len(y) > 1 and len(y) % batch_size == 1
    trains_on_all = params["train_split"] is None
    if has_batch_norm and last_batch_has_one_row and trains_on_all:
        # Batch normalisation needs a variance, which a batch of one row does not have.
        # So this batch is left out. Rows are shuffled: it is another row in each epoch.
        params.setdefault("iterator_train__drop_last", True)
    net = skorch.NeuralNetClassifier(
        exits,
        batch_size=batch_size,
        max_epochs=max_epochs,
        lr=lr,
        criterion=SummedCrossEntropy(exit_weights),
        device=str(device_of(exits)),
        **params,
    )
    # The rows are put on the host: skorch takes them one by one, which would be slow on
    # a device.
    if isinstance(X, torch.Tensor):
        rows = X.cpu()
    else:
        # torch does not allow tensors on read-only memory.
        rows = torch.as_tensor(np.require(X, requirements=["C", "W"]))
    # skorch trains `exits` itself, and not a copy.
    net.fit(rows, torch.as_tensor(y))
    # Gradients of the last step would stay in memory.
    exits.zero_grad()
    history = []
    for epoch in net.history:
        history.append({key: epoch[key] for key in epoch if key != "batches"})
    return history


def on_the_host(state):
    """Return an estimator's attributes with all torch modules in host memory.

    Parameters
    ----------
    state : dict of str to object
        Attributes of the estimator by name, for a pickle.

    Returns
    -------
    dict of str to object
    """
    modules = {}  # modules on another device, by the name of the attribute
    for name, value in state.items():
        if isinstance(value, nn.Module) and device_of(value).type != "cpu":
            modules[name] = value
    # All modules are saved at once, so that two attributes with the same module still
    # share one. A copy on the device is avoided, since the device may be full.
    buffer = io.BytesIO()
    torch.save(modules, buffer)
    buffer.seek(0)
    return state | torch.load(buffer, map_location="cpu", weights_only=False)


class ExitRun:
    """One pass of rows through the stages of a net, where each row may stop anywhere.

    The state of a row is held until the row goes on or is released. The next stage
    starts from it, so that no stage gets a row twice.

    Parameters
    ----------
    exits : AllExits
        The net, in evaluation mode.

    n_classes : int
        Number of classes.

    X : indexable
        Validated rows.

    batch_size : int
        Rows that a stage takes at once.

    Attributes
    ----------
    depth : ndarray of shape (n_rows,), dtype=int64
        Number of stages that each row has passed. It is 0 again for released rows.
    """

    def __init__(self, exits, n_classes, X, batch_size):
        self.exits = exits
        self.n_classes = n_classes
        self.X = X
        self.batch_size = batch_size
        self.depth = np.zeros(num_samples(X), dtype=np.int64)
        # For each depth, a list of batches: pairs (positions of rows, hidden state of
        # these rows). Rows that have left the depth may still be in its batches.
        self._held: dict[int, list[tuple[np.ndarray, Any]]] = {}

    def branch(self):
        """Return an independent copy of the run, with rows at their present depths.

        The two runs share hidden states. A stage gets copies of them.
        """
        run = copy(self)
        run.depth = self.depth.copy()
        run._held = self._held.copy()
        return run

    def logits(self, exit, rows=None):
        """Put rows through the stages up to an exit, and return its scores.

        The heads of earlier exits are not evaluated.

        Parameters
        ----------
        exit : int
            From 0.

        rows : array-like of int, default=None
            Positions of different rows that have not reached this exit. None is all
            rows.

        Returns
        -------
        ndarray of shape (n_rows, n_classes), dtype=float64
        """
        if rows is None:
            rows = np.arange(len(self.depth))
        rows = np.asarray(rows, dtype=np.int64)
        depths = self.depth[rows]
        # A row at exit `k` has passed `k + 1` stages. So it may have passed at most
        # `exit` stages before this call.
        if depths.max(initial=0) > exit:
            raise ValueError(
                f"Exit {exit} has been passed already by some of these rows."
            )
        scores = np.empty((len(rows), self.n_classes))
        with torch.inference_mode():
            for depth in np.unique(depths):
                is_here = depths == depth
                scores[is_here] = self._advance(rows[is_here], depth, exit)
        return scores

    def proba(self, exit, rows=None):
        """Put rows through the stages up to an exit, and return class probabilities.

        The parameters are those of `logits`.
        """
        return softmax(self.logits(exit, rows), axis=1)

    def release(self, rows):
        """Release the states of rows that will not go on. `rows` are positions."""
        self.depth[rows] = 0
        for depth in self._held:
            self._tidy(depth)

    def _advance(self, rows, depth, exit):
        """Put rows of one depth through the stages up to an exit; return its scores.

        If a batch fails, the rows of earlier batches have advanced.

        Parameters
        ----------
        rows : ndarray of int of shape (n_rows,)

        depth : int
            Number of stages that the rows have passed. 0: they start from `X`.

        exit : int
            From 0.

        Returns
        -------
        ndarray of shape (n_rows, n_classes), dtype=float64
        """
        scores = []
        if depth:
            held_rows, held_state = self._tidy(depth)
            # Position of a row in the held state. Rows of other depths have no valid
            # entry. If a row was released and came again, it is held twice: the last
            # position counts.
            place_of_row = np.empty(len(self.depth), dtype=np.int64)
            place_of_row[held_rows] = np.arange(len(held_rows))
        for batch in gen_batches(len(rows), self.batch_size):
            batch_rows = rows[batch]
            # A copy of the input of the next stage, since a stage may change its input.
            if depth:
                state = take_rows(held_state, place_of_row[batch_rows])
            else:
                state = self.exits.first_state(self.X, batch_rows)
            for stage in self.exits.stages[depth : exit + 1]:
                state = stage(state)
            # Scores go to the CPU first, since some devices do not have float64.
            scores.append(self.exits.scores(exit, state).cpu().double().numpy())
            # Rows at this exit have passed `exit + 1` stages.
            self.depth[batch_rows] = exit + 1
            # After the last stage, no state is needed.
            if exit + 1 < len(self.exits.stages):
                earlier = self._held.get(exit + 1, [])
                self._held[exit + 1] = [*earlier, (batch_rows, state)]
        if depth:
            self._tidy(depth)
        return np.concatenate(scores)

    def _tidy(self, depth):
        """Join the rows and hidden states that are held at a depth, and return them.

        The states of rows that have left the depth are dropped if more than half of the
        rows have left. A copy each time that rows leave would cost more than it saves.

        Parameters
        ----------
        depth : int
            A depth at which rows were held.

        Returns
        -------
        rows : ndarray of int of shape (n_held,)

        state : hidden state of these rows
        """
        batches, states = zip(*self._held[depth])
        rows = np.concatenate(batches)
        state = states[0]
        if len(states) > 1:
            state = map_state(lambda *tensors: torch.cat(tensors), *states)
        # Positions in `rows` of the rows that are still at this depth.
        staying = np.flatnonzero(self.depth[rows] == depth)
        if 2 * len(staying) < len(rows):
            rows = rows[staying]
            state = take_rows(state, staying)
        self._held[depth] = [(rows, state)]
        return rows, state
