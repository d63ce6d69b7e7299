"""Forward selection of groups by small boosted trees: a static order of buying."""

import numpy as np

from skroute.gating._boosting import safe_threads

# Trees of a trial, groups tried in each step, and steps without a gain after which the rest
# of the order is taken from the importance in one model of all groups.
_TREES = 40
_TRIED = (10, 10, 8, 6)
_LATER = 4
_PATIENCE = 4
# Steps that are judged on all parts.
_SURE = 2


class _Trials:
    """Small boosters of some columns, fitted on three parts of the rows and judged on one."""

    def __init__(self, X, y, parts, n_classes, categorical, n_threads):
        self.parts, self.n_classes, self.categorical = parts, n_classes, categorical
        self.rows = [(X[part], y[part]) for part in parts]
        n_fit = sum(len(part) for part in parts[1:])
        self.params = {
            "objective": "binary" if n_classes == 2 else "multiclass",
            "num_leaves": 15,
            "learning_rate": 0.1 if n_classes == 2 else 0.2,
            "min_data_in_leaf": int(np.clip(n_fit // 50, 3, 20)),
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

    def fitted_on(self, out):
        """Rows of all parts but one."""
        kept = [own for at, own in enumerate(self.rows) if at != out]
        return np.concatenate([X for X, _ in kept]), np.concatenate([y for _, y in kept])

    def boost(self, columns, trees, out=0, init=None, params=()):
        """A booster of these columns, fitted without one part."""
        import lightgbm

        X, y = self.fitted_on(out)
        data = lightgbm.Dataset(
            np.ascontiguousarray(X[:, columns]),
            label=y,
            init_score=init,
            categorical_feature=np.flatnonzero(self.categorical[columns]).tolist(),
            params=self.params,
        )
        return lightgbm.train(self.params | dict(params), data, num_boost_round=trees)

    def scores(self, booster, X, columns):
        """Raw scores of rows."""
        return booster.predict(np.ascontiguousarray(X[:, columns]), raw_score=True, num_threads=1)

    def trial(self, columns, n_parts):
        """Mean loss on so many parts, and the booster without the first."""
        first, losses = None, []
        for out in range(n_parts):
            booster = self.boost(columns, self.trees, out)
            first = booster if first is None else first
            X, y = self.rows[out]
            losses.append(log_loss(self.scores(booster, X, columns), y, self.n_classes))
        return float(np.mean(losses)), first

    def promise(self, so_far, every):
        """Importance of all columns where a booster goes on from one of some columns."""
        init = None
        if so_far is not None:
            booster, columns = so_far
            raw = self.scores(booster, self.fitted_on(0)[0], columns)
            init = raw.ravel(order="F") if raw.ndim == 2 else raw
        more = self.boost(every, 8, 0, init, {"learning_rate": 0.2}.items())
        return more.feature_importance("gain")


def log_loss(raw, y, n_classes):
    """Mean log loss of raw scores."""
    if n_classes == 2:
        return float(np.logaddexp(0, np.where(y == 1, -raw, raw)).mean())
    top = raw.max(axis=1, keepdims=True)
    log_sum = top[:, 0] + np.log(np.exp(raw - top).sum(axis=1))
    return float((log_sum - raw[np.arange(len(y)), y]).mean())


def _loss_before(trials, order, groups, y, n_parts):
    """Mean loss of what is in the order, on so many parts; of the class shares at the start."""
    if order:
        columns = np.flatnonzero(np.isin(groups.group_of, order))
        return trials.trial(columns, n_parts)[0]
    share = np.bincount(y, minlength=trials.n_classes) / len(y)
    losses = [-np.log(np.clip(share, 1e-6, 1)[own]).mean() for _, own in trials.rows[:n_parts]]
    return float(np.mean(losses))


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
    every = np.arange(X.shape[1])
    order = np.flatnonzero(~groups.priced).tolist()
    left = [g for g in range(groups.n_groups) if g not in order]
    so_far, best, waited = None, np.inf, 0
    if order:
        columns = np.flatnonzero(np.isin(groups.group_of, order))
        so_far = trials.trial(columns, 1)[1], columns
    importance = np.zeros(groups.n_groups)
    for step in range(min(most, len(left))):
        gains = trials.promise(so_far, every)
        importance = np.bincount(groups.group_of, gains, groups.n_groups) / groups.prices
        n_tried = _TRIED[step] if step < len(_TRIED) else _LATER
        tried = sorted(left, key=lambda g: -importance[g])[:n_tried]
        n_parts = len(parts) if step < _SURE and len(left) > 1 else 1
        before = _loss_before(trials, order, groups, y, n_parts)
        found = []
        for g in tried:
            columns = np.flatnonzero(np.isin(groups.group_of, [*order, g]))
            own, booster = trials.trial(columns, n_parts)
            found.append(((before - own) / groups.prices[g], g, own, (booster, columns)))
        _, g, loss, so_far = max(found, key=lambda item: item[0])
        order.append(g)
        left.remove(g)
        if step < _SURE:
            continue
        waited = 0 if loss < best - 1e-4 else waited + 1
        best = min(best, loss)
        if waited == _PATIENCE:
            break
    order.extend(sorted(left, key=lambda g: -importance[g]))
    return np.array(order)
