"""Learn to buy groups one after the other: policies, one model of all subsets, static sets."""

from typing import Any, NamedTuple

import numpy as np

from skroute.gating._forward import forward_order
from skroute.gating._learned_gains import learn_gains
from skroute.gating._masked import (
    Averaged,
    Boosting,
    Wrapped,
    draw_sizes,
    prefix_masks,
    random_masks,
)
from skroute.gating._nearest_rows import NearestRows
from skroute.gating._stopping import Paths

# Rows of training copies in all, beyond which there are fewer copies of each.
MOST_COPIES = 120_000
# Rows whose paths are walked to make masks, and how far.
MOST_WALKED = 6000
FEW_WALKED = 1500
MOST_STEPS = 12
BLOCK = 2000
# Rows of a part that trials of forward selection are judged on.
MOST_TRIED = 3000
# Rows from which one large model is better than the average of small ones.
LARGE = 5000
# Rows below which gains cannot be learned, and models are smaller.
FEW = 300
# Rows below which trees are small and learn slowly. Rows of training: of 442 noisy ones (diabetes)
# static sets answer 2 to 4 points more at 1 to 10 columns, and of 300 of Spambase 0 to 3; of 2,800
# of Spambase a column alone .2 less.
SMOOTH = 1000
SLOW = {"learning_rate": 0.05, "num_leaves": 4, "min_data_in_leaf": 20}
# Leaves of trees of few columns, where rows are few: better by half a point and more at 1, 2, 3 and
# 5 columns of training rows of Spambase, worse by a quarter at 10.
FEW_COLUMNS = 6
SMALL_TREE = 7
# Trees of deep models of sets, where rows are many. Rows of training: on Letter they answer 2
# points more from six columns on, on Covertype 1 to 2 from six on and 1.5 less at three.
DEEP = {"learning_rate": 0.12, "num_leaves": 63, "min_data_in_leaf": 20, "lambda_l2": 2.0}
# Small models that are averaged, each of other copies.
N_MODELS = 2
# Purchases by nearest rows; behind them the static order is followed.
NEAREST_STEPS = 8
# Groups up to which nearest rows are left out where rows are many: gains are learned better.
FEW_GROUPS = 20


class StaticOrder(NamedTuple):
    """The policy that buys in one order."""

    groups: Any
    order: Any

    def start(self, n_rows, itself=None):
        """Nothing needs to be remembered of rows."""
        return self

    def next_groups(self, rows, values, known):
        """The first group of the order that is not known; -1 where all are."""
        return self.groups.first_unknown(known, self.order)


class Task(NamedTuple):
    """What is learned from, and with what.

    Attributes
    ----------
    X : ndarray of shape (n_samples, n_features)
        Codes.
    y : ndarray of shape (n_samples,), dtype=int
    n_classes : int
    groups : Groups
    estimator : classifier or None
        None is LightGBM.
    as_input : callable
        Makes of codes what `estimator` takes.
    seed, n_threads : int
    most_rounds : int
        Groups that a row may buy.
    n_rows : int
        Rows, held-out ones included, which say how much can be learned.
    """

    X: Any
    y: Any
    n_classes: int
    groups: Any
    estimator: Any
    as_input: Any
    seed: int
    n_threads: int
    most_rounds: int
    n_rows: int

    def of(self, rows):
        """Some of the rows."""
        return self._replace(X=self.X[rows], y=self.y[rows])

    def boosting(self):
        """LightGBM for these rows."""
        return Boosting(self.n_classes, self.groups.categorical, self.n_threads, self.seed)

    @property
    def few(self):
        """Whether there are so few rows that less is learned from them."""
        return self.n_rows < FEW

    @property
    def large(self):
        """Whether there are rows enough for one large model instead of an average of small ones."""
        return len(self.y) >= LARGE

    @property
    def most_trees(self):
        """Rounds of the large model of all subsets, at most, and of a deep one of a set."""
        return (500, 200) if self.n_classes == 2 else (150, 100)

    def fit_masked(self, draw):
        """A model of rows with hidden groups: the average of several, each of other copies.

        Parameters
        ----------
        draw : callable
            Makes rows with hidden groups, their classes and their positions.
        """
        if self.estimator is not None:
            return Wrapped.fit(self.estimator, *draw()[:2], self.n_classes, self.as_input)
        if self.large:
            return self._one_large(draw)
        trees = 100 if self.few else 200
        trees = trees if self.n_classes == 2 else max(60, trees // self.n_classes)
        fast = {"learning_rate": 0.07 if self.n_classes == 2 else 0.1, "num_leaves": 31}
        # One of each kind: small trees alone are behind where many columns are known.
        every = [fast, SLOW] if self.n_rows < SMOOTH else [fast] * N_MODELS
        models = []
        for number, options in enumerate(every):
            X, y, _ = draw()
            models.append(
                self._replace(seed=self.seed + number)
                .boosting()
                .fit(
                    X,
                    y,
                    np.arange(X.shape[1]),
                    trees,
                    often=not self.few,
                    max_bin=63,
                    lambda_l2=5.0,
                    **options,
                )
            )
        return Averaged(models)

    def _one_large(self, draw):
        """One model of as many trees as are best on the copies of a tenth of the rows."""
        X, y, rows = draw()
        out = np.random.default_rng(self.seed).random(len(self.y))[rows] < 0.1
        return self.boosting().fit(
            X[~out],
            y[~out],
            np.arange(X.shape[1]),
            self.most_trees[0],
            out=(X[out], y[out]),
            learning_rate=0.07 if self.n_classes == 2 else 0.12,
            num_leaves=63,
            min_data_in_leaf=30,
            lambda_l2=2.0,
        )

    def fit_set(self, columns, deep=False):
        """A model of some columns alone; `deep` ones learn more, of many rows."""
        if self.estimator is not None:
            only = ConstantBut(columns, self.as_input)
            return Wrapped.fit(self.estimator, self.X, self.y, self.n_classes, only)
        if deep:
            return self.boosting().fit(
                self.X, self.y, columns, self.most_trees[1], often=False, max_bin=63, **DEEP
            )
        trees = 100 if self.n_classes == 2 else max(40, 200 // self.n_classes)
        # Of few columns and rows, trees with many leaves learn the noise.
        small = not self.large and len(columns) <= FEW_COLUMNS
        options = {"num_leaves": SMALL_TREE if small else 31}
        max_bin = 255 if len(columns) == 1 else 63
        if self.n_rows < SMOOTH:
            options, trees = SLOW, min(trees, 60) if self.few else trees
        return self.boosting().fit(
            self.X, self.y, columns, trees, often=False, max_bin=max_bin, **options
        )


class ConstantBut(NamedTuple):
    """Makes input of rows in which all columns but some are 0.

    Not NaN: some libraries take no column without a number.
    """

    columns: Any
    as_input: Any

    def __call__(self, X):
        kept = np.zeros(X.shape)
        kept[:, self.columns] = X[:, self.columns]
        return self.as_input(kept)


def set_sizes(n_free, n_groups, few):
    """Sizes of static sets that get a model of their own: all small ones, then rarer."""
    round_ones = [1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 40, 60, 80, 100]
    if few:
        round_ones = [1, 2, 3, 5, 8, 12, 20, 40]
    sizes = [k for k in round_ones if k < n_groups - n_free]
    return [n_free + k for k in [*sizes, n_groups - n_free] if k > 0]


def deep_sets(task, order):
    """Size and deep model of each static set of many rows; held-out rows judge both models."""
    if task.large and task.estimator is None:
        n_free = int((~task.groups.priced).sum())
        for size in set_sizes(n_free, len(order), task.few):
            if size - n_free <= task.most_rounds and size > n_free + 2:
                yield size, task.fit_set(task.groups.columns_of(order[:size]), deep=True)


def better_of(right):
    """What the better of two models makes of rows, each half of which the other half chooses for.

    Parameters
    ----------
    right : ndarray of shape (2, n_rows), dtype=bool
        The first is taken unless the second is better.

    Returns
    -------
    ndarray of shape (n_rows,), dtype=bool
    """
    found = right[0].copy()
    for half in (slice(0, None, 2), slice(1, None, 2)):
        other = slice(1 - half.start, None, 2)
        if right[1, other].sum() > right[0, other].sum():
            found[half] = right[1, half]
    return found


def find_order(task, rng):
    """Static order of a task's rows, by trials on four parts of them."""
    parts = np.array_split(rng.permutation(len(task.y))[: 4 * MOST_TRIED], 4)
    return forward_order(
        task.X,
        task.y,
        parts,
        task.n_classes,
        task.groups,
        most=min(30, task.most_rounds),
        n_threads=task.n_threads,
    )


class Walk(NamedTuple):
    """What rows bought along a policy.

    Attributes
    ----------
    bought : ndarray of shape (n_rows, n_steps), dtype=int
        The group bought at each step; -1 where all were known.
    """

    bought: Any

    def masks(self, steps, free):
        """Known groups after so many steps of each row."""
        known = np.tile(free, (len(self.bought), 1))
        for step in range(self.bought.shape[1]):
            rows = np.flatnonzero((steps > step) & (self.bought[:, step] >= 0))
            known[rows, self.bought[rows, step]] = True
        return known


def walk(policy, X, free, n_steps, itself=None):
    """Follow a policy to the end on rows that are all there."""
    bought = np.full((len(X), n_steps), -1)
    for begin in range(0, len(X), BLOCK):
        rows = np.arange(begin, min(begin + BLOCK, len(X)))
        own = None if itself is None else itself[rows]
        memory = policy.start(len(rows), own)
        known, at = np.tile(free, (len(rows), 1)), np.arange(len(rows))
        for step in range(n_steps):
            # What is not known is hidden from the policy, as it will be.
            shown = policy.groups.hidden(X[rows], known)
            groups = memory.next_groups(at, shown, known)
            bought[rows, step] = groups
            there = groups >= 0
            known[at[there], groups[there]] = True
    return Walk(bought)


class Learned(NamedTuple):
    """What was learned from some rows.

    Attributes
    ----------
    order : ndarray of int
    policies : dict
        Policy by name.
    masked : dict
        Model of all subsets that a policy meets, by its name.
    sets : dict
        Model of the first groups of the order, by their number.
    """

    order: Any
    policies: Any
    masked: Any
    sets: Any


def adaptive_policies(task, order, rng, gains=None):
    """The policies that buy by what a row has shown, with the rows that know each of them.

    Parameters
    ----------
    task : Task
    order : ndarray of int
    rng : Generator
    gains : LearnedGains, default=None
        Those of a part of the rows, where known: they cost more to learn than nearest rows, and
        more rows make them little better.

    Returns
    -------
    dict of policies
    """
    n_free = int((~task.groups.priced).sum())
    n_priced = len(order) - n_free
    found = {}
    if n_priced > FEW_GROUPS or not task.large:
        horizon = n_free + min(NEAREST_STEPS, task.most_rounds)
        found["nearest rows"] = NearestRows.of(
            task.X,
            task.y,
            task.n_classes,
            task.groups,
            order,
            horizon,
            rng.permutation(len(task.y)),
        )
    if n_priced > 1 and not task.few:
        found["learned gains"] = learn_gains(task, order, rng) if gains is None else gains
    return found


def walk_training_rows(task, policies, rng):
    """Paths of training rows along each policy, each row without itself.

    Returns
    -------
    dict of (rows, Walk)
    """
    free = ~task.groups.priced
    found = {}
    for name, policy in policies.items():
        most = MOST_WALKED if task.large else FEW_WALKED
        rows, itself = rng.permutation(len(task.y))[:most], None
        if name == "nearest rows":
            rows = policy.rows[:most]
            itself = np.arange(len(rows))
        n_steps = min(MOST_STEPS, task.most_rounds)
        found[name] = rows, walk(policy, task.X[rows], free, n_steps, itself)
    return found


def learn(task, order, rng, policies=None, walks=None):
    """Policies, the model of all subsets and the models of static sets.

    Parameters
    ----------
    task : Task
    order : ndarray of int
    rng : Generator
    policies : dict, default=None
        Those that adapt, learned already.
    walks : dict of (rows, Walk), default=None
        Their paths, where known.

    Returns
    -------
    Learned, and the walks
    """
    groups, n = task.groups, len(task.y)
    free = ~groups.priced
    n_free, most = int(free.sum()), task.most_rounds
    policies = adaptive_policies(task, order, rng) if policies is None else policies
    walks = walk_training_rows(task, policies, rng) if walks is None else walks
    share = min(MOST_COPIES / (n * (2.5 + 2.5 * bool(policies))), 1.0)

    def draw():
        rows, masks = prefixes(2)
        rows, masks = [rows], [masks]
        for walked, path in walks.values():
            copies = rng.permutation(np.repeat(np.arange(len(walked)), 3))
            copies = copies[: int(2.5 * share * n / len(policies))]
            rows.append(walked[copies])
            steps = draw_sizes(rng, len(copies), path.bought.shape[1])
            masks.append(Walk(path.bought[copies]).masks(steps, free))
        some = rng.permutation(n)[: int(0.5 * share * n)]
        rows.append(some)
        masks.append(random_masks(rng, len(some), order, n_free, most))
        return shown(np.concatenate(rows), np.concatenate(masks))

    def prefixes(copies):
        rows = rng.permutation(np.repeat(np.arange(n), copies))[: int(copies * share * n)]
        return rows, prefix_masks(order, n_free + draw_sizes(rng, len(rows), most), len(order))

    def shown(rows, masks):
        return groups.hidden(task.X[rows], masks), task.y[rows], rows

    sets = {
        size: task.fit_set(groups.columns_of(order[:size]))
        for size in set_sizes(n_free, len(order), task.few)
        if size - n_free <= most or size == len(order)
    }
    policies = {"static order": StaticOrder(groups, order)} | policies
    masked = dict.fromkeys(policies, task.fit_masked(draw))
    if task.large and task.estimator is None and walks:
        # Of many rows a model can learn more than one copy of it has room for: on Letter, rows
        # of training, the order's own model answers .8 points more at six of sixteen features.
        masked["static order"] = task.fit_masked(lambda: shown(*prefixes(5)))
    return Learned(order, policies, masked, sets), walks


def follow(learned, policy, X, y, groups, n_steps):
    """Paths of rows that nothing was learned from along a policy, and the walk."""
    free = ~groups.priced
    found = walk(learned.policies[policy], X, free, n_steps)
    known = np.tile(free, (len(X), 1))
    confidence, right, loss = [], [], []
    rows = np.arange(len(X))
    for step in range(n_steps + 1):
        proba = learned.masked[policy].proba(groups.hidden(X, known))
        confidence.append(proba.max(axis=1))
        right.append(proba.argmax(axis=1) == y)
        loss.append(-np.log(np.clip(proba[rows, y], 1e-4, 1)))
        if step < n_steps:
            there = found.bought[:, step] >= 0
            known[rows[there], found.bought[there, step]] = True
    costs = np.where(found.bought >= 0, groups.costs[found.bought], 0.0)
    paths = Paths(np.column_stack(confidence), np.column_stack(right), np.column_stack(loss), costs)
    return paths, found


def joined(rows, path, path_out, fitted, out):
    """Paths of training rows and of held-out rows as those of all rows."""
    n_steps = path.bought.shape[1]
    bought = np.concatenate([path.bought, path_out.bought[:, :n_steps]])
    return np.append(fitted[rows], out), Walk(bought)
