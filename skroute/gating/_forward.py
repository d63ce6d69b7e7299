"""Forward selection of groups by small boosted trees: a static order of buying."""

import numpy as np

from skroute.gating._boosting import safe_threads

# Trees of a trial, groups tried in each step, and steps without a gain after which the rest
# of the order is taken from the importance in one model of all groups.
_TREES = 40
_TRIED = (10, 10, 8, 6)
_LATER = 4
_PATIENCE = 4


class _Trials:
    """Small boosters of some columns, fitted on rows and judged on others."""

    def __init__(self, X, y, X_out, y_out, n_classes, categorical, n_threads):
        self.X, self.y, self.X_out, self.y_out = X, y, X_out, y_out
        self.n_classes, self.categorical = n_classes, categorical
        self.params = {
            "objective": "binary" if n_classes == 2 else "multiclass",
            "num_leaves": 15,
            "learning_rate": 0.1 if n_classes == 2 else 0.2,
            "min_data_in_leaf": int(np.clip(len(X) // 50, 3, 20)),
            "max_bin": 63,
            "feature_pre_filter": False,
            "deterministic": True,
            "force_col_wise": True,
            "num_threads": safe_threads(n_threads),
            "verbosity": -1,
        }
        self.trees = _TREES if n_classes == 2 else max(8, _TREES // n_classes)
        if n_classes > 2:
            self.params["num_class"] = n_classes

    def boost(self, columns, trees, init=None, params=()):
        """A booster of these columns."""
        import lightgbm

        chosen = np.flatnonzero(self.categorical[columns]).tolist()
        data = lightgbm.Dataset(
            np.ascontiguousarray(self.X[:, columns]),
            label=self.y,
            init_score=init,
            categorical_feature=chosen,
            params=self.params,
        )
        return lightgbm.train(self.params | dict(params), data, num_boost_round=trees)

    def scores(self, booster, X, columns):
        """Raw scores of rows."""
        return booster.predict(np.ascontiguousarray(X[:, columns]), raw_score=True, num_threads=1)

    def trial(self, columns):
        """Mean loss on the other rows, and the booster."""
        booster = self.boost(columns, self.trees)
        raw = self.scores(booster, self.X_out, columns)
        return log_loss(raw, self.y_out, self.n_classes), booster

    def promise(self, columns, every):
        """Importance of all columns where a booster goes on from one of `columns`."""
        init = None
        if columns is not None:
            booster, columns = columns
            raw = self.scores(booster, self.X, columns)
            init = raw.ravel(order="F") if raw.ndim == 2 else raw
        more = self.boost(every, 8, init, {"learning_rate": 0.2}.items())
        return more.feature_importance("gain")


def log_loss(raw, y, n_classes):
    """Mean log loss of raw scores."""
    if n_classes == 2:
        return float(np.logaddexp(0, np.where(y == 1, -raw, raw)).mean())
    top = raw.max(axis=1, keepdims=True)
    log_sum = top[:, 0] + np.log(np.exp(raw - top).sum(axis=1))
    return float((log_sum - raw[np.arange(len(y)), y]).mean())


def forward_order(X, y, X_out, y_out, n_classes, groups, *, most=30, n_threads=1):
    """Groups in the order in which they lower the loss on other rows most, per unit of cost.

    In each step a few trees are grown on top of the model so far, over all groups; those that
    these trees use most are tried, each by a model of its own.

    Parameters
    ----------
    X, y : ndarray of shape (n_samples, n_features) and (n_samples,)
        Rows to fit on.
    X_out, y_out : ndarray
        Rows to judge on.
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
    trials = _Trials(X, y, X_out, y_out, n_classes, groups.categorical, n_threads)
    every = np.arange(X.shape[1])
    order = np.flatnonzero(~groups.priced).tolist()
    left = [g for g in range(groups.n_groups) if g not in order]
    share = np.bincount(y, minlength=n_classes) / len(y)
    loss = float(-np.log(np.clip(share, 1e-6, 1)[y_out]).mean())
    best, so_far, waited = loss, None, 0
    if order:
        columns = np.flatnonzero(np.isin(groups.group_of, order))
        loss, booster = trials.trial(columns)
        best, so_far = min(best, loss), (booster, columns)
    importance = np.zeros(groups.n_groups)
    for step in range(min(most, len(left))):
        gains = trials.promise(so_far, every)
        importance = np.bincount(groups.group_of, gains, groups.n_groups) / groups.prices
        n_tried = _TRIED[step] if step < len(_TRIED) else _LATER
        tried = sorted(left, key=lambda g: -importance[g])[:n_tried]
        found = []
        for g in tried:
            columns = np.flatnonzero(np.isin(groups.group_of, [*order, g]))
            own, booster = trials.trial(columns)
            found.append(((loss - own) / groups.prices[g], g, own, (booster, columns)))
        rate, g, loss, so_far = max(found, key=lambda item: item[0])
        order.append(g)
        left.remove(g)
        waited = 0 if loss < best - 1e-4 else waited + 1
        best = min(best, loss)
        if waited == _PATIENCE:
            break
    order.extend(sorted(left, key=lambda g: -importance[g]))
    return np.array(order)
