"""Forward selection of groups by small boosted trees: a static order of buying."""

from typing import NamedTuple

import numpy as np

from skroute.gating._boosting import safe_threads

# Trees of a trial, where rows are few and otherwise, groups tried in each step, and steps without a
# gain after which the rest of the order is taken from the importance in one model of all groups.
_TREES = 40
_FEW_TREES = 20
_FEW = 400
_TRIED = (10, 10, 8, 6)
_LATER = 3
_PATIENCE = 3
# Steps that are judged on all parts.
_SURE = 2
# Rows that the worse half of the groups tried is judged on at least.
_JUDGED = 400


def grown(params, data, trees):
    """A booster of so many trees: what `lightgbm.train` does besides takes as long as few rows."""
    import lightgbm

    booster = lightgbm.Booster(params, data)
    for _ in range(trees):
        if booster.update():
            break
    return booster


class _Trials:
    """Small boosters of some columns, fitted on three parts of the rows and judged on one."""

    def __init__(self, X, y, parts, n_classes, categorical, n_threads):
        self.parts, self.n_classes, self.categorical = parts, n_classes, categorical
        self.rows = [(X[part], y[part]) for part in parts]
        self._fitted_on, self._every = {}, None
        n_fit = sum(len(part) for part in parts[1:])
        self.few = few = n_fit < _FEW
        self.params = {
            "objective": "binary" if n_classes == 2 else "multiclass",
            "num_leaves": 6 if few else 15,
            "learning_rate": 0.2 if few or n_classes > 2 else 0.1,
            "min_data_in_leaf": int(np.clip(n_fit // (20 if few else 50), 3, 20)),
            "max_bin": 63,
            "feature_pre_filter": False,
            "deterministic": True,
            "force_col_wise": True,
            "num_threads": safe_threads(n_threads),
            "verbosity": -1,
        }
        trees = _FEW_TREES if few else _TREES
        self.trees = trees if n_classes == 2 else max(8, trees // n_classes)
        if n_classes > 2:
            self.params["num_class"] = n_classes

    def fitted_on(self, out):
        """Rows of all parts but one."""
        if out not in self._fitted_on:
            kept = [own for at, own in enumerate(self.rows) if at != out]
            parts = np.concatenate([X for X, _ in kept]), np.concatenate([y for _, y in kept])
            self._fitted_on[out] = parts
        return self._fitted_on[out]

    def data(self, columns, out):
        """LightGBM's rows of some columns, without one part."""
        import lightgbm

        X, y = self.fitted_on(out)
        return lightgbm.Dataset(
            np.ascontiguousarray(X[:, columns]),
            label=y,
            categorical_feature=np.flatnonzero(self.categorical[columns]).tolist(),
            params=self.params,
        )

    def scores(self, booster, X, columns):
        """Raw scores of rows."""
        return booster.predict(np.ascontiguousarray(X[:, columns]), raw_score=True, num_threads=1)

    def trial(self, columns, out):
        """Loss on one part of a booster of the others, and the booster."""
        booster = grown(self.params, self.data(columns, out), self.trees)
        X, y = self.rows[out]
        return log_loss(self.scores(booster, X, columns), y, self.n_classes), booster

    def promise(self, so_far):
        """Importance of all columns where a booster goes on from one of some columns."""
        if self._every is None:
            self._every = self.data(np.arange(len(self.categorical)), 0).construct()
        init = None
        if so_far is not None:
            booster, columns = so_far
            raw = self.scores(booster, self.fitted_on(0)[0], columns)
            init = raw.ravel(order="F") if raw.ndim == 2 else raw
        self._every.set_init_score(init)
        more = grown(self.params | {"learning_rate": 0.2}, self._every, 8)
        return more.feature_importance("gain")


def log_loss(raw, y, n_classes):
    """Mean log loss of raw scores."""
    if n_classes == 2:
        return float(np.logaddexp(0, np.where(y == 1, -raw, raw)).mean())
    top = raw.max(axis=1, keepdims=True)
    log_sum = top[:, 0] + np.log(np.exp(raw - top).sum(axis=1))
    return float((log_sum - raw[np.arange(len(y)), y]).mean())


def _loss_before(trials, columns, n_parts):
    """Loss on each part of the columns that are free; of the class shares where none is."""
    if len(columns):
        return [trials.trial(columns, out)[0] for out in range(n_parts)]
    y = np.concatenate([own for _, own in trials.rows])
    share = np.bincount(y, minlength=trials.n_classes) / len(y)
    return [-np.log(np.clip(share, 1e-6, 1)[own]).mean() for _, own in trials.rows[:n_parts]]


class Winner(NamedTuple):
    """The group that lowers the loss most, its losses by part, and the booster of its columns."""

    group: int
    losses: list
    so_far: tuple


def _race(trials, columns_of, before, prices, n_parts):
    """The best of some groups; the worse half of them does not see all parts."""
    losses = {g: [] for g in columns_of}
    boosters, left, judged = {}, list(columns_of), 0

    def lead(g):
        own = losses[g]
        return (np.mean(before[: len(own)]) - np.mean(own)) / prices[g]

    for out in range(n_parts):
        for g in left:
            loss, booster = trials.trial(columns_of[g], out)
            losses[g].append(loss)
            boosters.setdefault(g, booster)
        left.sort(key=lead, reverse=True)
        judged += len(trials.parts[out])
        if out + 1 < n_parts and judged >= _JUDGED:
            left = left[: max(2, -(-len(left) // 2))]
    return Winner(left[0], losses[left[0]], (boosters[left[0]], columns_of[left[0]]))


def forward_order(X, y, parts, n_classes, groups, *, most=30, n_threads=1):
    """Groups in the order in which they lower the loss on other rows most, per unit of cost.

    In each step a few trees are grown on top of the model so far, over all groups; those that
    these trees use most are tried, each by a model of its own.

    Parameters
    ----------
    X, y : ndarray of shape (n_samples, n_features) and (n_samples,)
    parts : list of ndarray of int
        Rows of the parts. The first purchases are judged on all parts in turn, each by a
        model of the others; the later ones, which matter less, on the first.
    n_classes : int
    groups : Groups
    most : int, default=30
        Groups chosen by trials; the rest follow by importance.
    n_threads : int, default=1

    Returns
    -------
    ndarray of shape (n_groups,), dtype=int
        Free groups first.
    """
    trials = _Trials(X, y, parts, n_classes, groups.categorical, n_threads)
    order = np.flatnonzero(~groups.priced).tolist()
    left = [g for g in range(groups.n_groups) if g not in order]
    so_far, least, waited = None, np.inf, 0
    free = np.flatnonzero(np.isin(groups.group_of, order))
    before = _loss_before(trials, free, len(parts))
    if order:
        so_far = trials.trial(free, 0)[1], free
    importance = np.zeros(groups.n_groups)
    for step in range(min(most, len(left))):
        gains = trials.promise(so_far)
        importance = np.bincount(groups.group_of, gains, groups.n_groups) / groups.prices
        n_tried = _TRIED[step] if step < len(_TRIED) else _LATER
        n_tried = min(n_tried, 6) if trials.few else n_tried
        tried = sorted(left, key=lambda g: -importance[g])[:n_tried]
        n_parts = len(parts) if step < _SURE and len(left) > 1 else 2 if trials.few else 1
        columns_of = {g: np.flatnonzero(np.isin(groups.group_of, [*order, g])) for g in tried}
        won = _race(trials, columns_of, before, groups.prices, n_parts)
        before, so_far = won.losses, won.so_far
        order.append(won.group)
        left.remove(won.group)
        if step < _SURE:
            continue
        loss = np.mean(before[: 2 if trials.few else 1])
        waited = 0 if loss < least - 1e-4 else waited + 1
        least = min(least, loss)
        if waited == _PATIENCE:
            break
    order.extend(sorted(left, key=lambda g: -importance[g]))
    return np.array(order)
