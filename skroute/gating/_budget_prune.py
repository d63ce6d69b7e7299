"""BudgetPrune: prune a random forest for accuracy minus feature cost."""

import numpy as np
from sklearn.ensemble import RandomForestClassifier
from sklearn.utils import check_random_state

from skroute.gating._base import Decision, FeatureBuyer
from skroute.gating._pruning import first_uses, prune, split_gains, worth_growing
from skroute.utils._compat import Integral, Interval, Real

__all__ = ["BudgetPruneClassifier"]


class BudgetPruneClassifier(FeatureBuyer):
    """Random forest, pruned so that its rows need few features.

    Minimises, over all prunings of all trees at once, the mean error of the trees plus
    `gamma` times the mean feature cost of a row [1]_. The 0-1 program is solved exactly by
    its linear relaxation. A row pays for the features on its own paths only, so costs differ
    from row to row; with lazy features each is asked for when a path reaches it.

    Parameters
    ----------
    n_estimators : int, default=40
        Trees.

    max_depth : int, default=None
        Depth of the trees before pruning. None: grown until leaves are pure.

    gamma : float, default=0.001
        Price of features: one unit of mean cost is worth a decrease of the mean error of the
        trees by `gamma`. Raising it prunes more.

    feature_costs : array-like or mapping, default=None
        Cost of each feature, or of each group. None: each costs 1.

    feature_groups : mapping, default=None
        Name of each group of features that are bought together, to the list of its columns.

    max_samples : int, default=500
        Rows, drawn at random, over which the mean cost is taken in the program. Errors
        are always taken over all rows that a tree has not seen. The program grows in
        proportion.

    budget : float, default=None
        Mean cost per sample. A budget below the training rows' mean cost is an error.

    random_state : int, RandomState instance or None, default=None
        Grows the forest and draws the rows.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Class labels.

    choices_ : list of str
        ``["forest"]``.

    features_used_ : dict of ndarray
        Positions of the columns that the pruned ``"forest"`` reads.

    cost_table_ : dict of float
        Mean cost of a training row.

    min_budget_ : float
        The mean cost of a training row.

    objective_ : float
        Optimal value of the program, less the error of the roots.

    group_names_, group_of_, group_costs_ : list, ndarray, ndarray
        The groups, the group of each column and the cost of each group.

    n_features_in_ : int
        Number of columns.

    feature_names_in_ : ndarray of str
        Names of the columns, if X has names.

    See Also
    --------
    AdaptGatingClassifier : Keeps the forest and sends it hard rows only.

    References
    ----------
    .. [1] F. Nan, J. Wang, V. Saligrama, "Pruning Random Forests for Prediction on a Budget",
       NeurIPS 2016, equation (IP).

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from skroute.gating import BudgetPruneClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> pruned = BudgetPruneClassifier(gamma=0.01, n_estimators=10, random_state=0)
    >>> pruned = pruned.fit(X[::2], y[::2])
    >>> bool(pruned.predict_cost(X[1::2]).mean() < 10)
    True
    """

    _parameter_constraints: dict = {
        **FeatureBuyer._parameter_constraints,
        "n_estimators": [Interval(Integral, 1, None, closed="left")],
        "max_depth": [Interval(Integral, 1, None, closed="left"), None],
        "gamma": [Interval(Real, 0, None, closed="left")],
        "max_samples": [Interval(Integral, 1, None, closed="left")],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        *,
        n_estimators=40,
        max_depth=None,
        gamma=1e-3,
        feature_costs=None,
        feature_groups=None,
        max_samples=500,
        budget=None,
        random_state=None,
    ):
        self.n_estimators = n_estimators
        self.max_depth = max_depth
        self.gamma = gamma
        self.feature_costs = feature_costs
        self.feature_groups = feature_groups
        self.max_samples = max_samples
        self.budget = budget
        self.random_state = random_state

    def fit(self, X, y):
        """Grow a forest, and prune it by what its features cost.

        Parameters
        ----------
        X : {array-like, dataframe} of shape (n_samples, n_features)
            Rows of numbers.

        y : array-like of shape (n_samples,)
            Class labels.

        Returns
        -------
        self
            After a failure it is not fitted.
        """
        return super().fit(X, y)

    def _fit(self, X, y, *, task):
        values, encoded, _ = self._checked(X, y, None)
        rng = check_random_state(self.random_state)
        forest = RandomForestClassifier(
            self.n_estimators,
            max_depth=self.max_depth,
            random_state=rng.randint(np.iinfo(np.int32).max),
        )
        with task.step("fit forest"):
            forest.fit(values, encoded)
        n_rows = min(self.max_samples, len(values))
        sample = np.sort(rng.choice(len(values), n_rows, replace=False))
        with task.step("prune"):
            self._prune(forest, values, encoded, sample)
        self.features_used_ = {"forest": np.unique(self.feature_[self.left_ >= 0]).astype(np.intp)}
        ledger = self._ledger_of(values)
        self._walk(ledger, np.arange(len(values)))
        self.cost_table_ = {"forest": float((ledger.planned @ self.group_costs_).mean())}
        self._check_feasible(self._effective_budget(None))
        self.choices_ = ["forest"]

    def _prune(self, forest, X, y, sample):
        """Trees as arrays, all in one numbering of nodes, without the splits cut off."""
        names = "left", "right", "feature", "threshold", "value", "gains", "worth"
        parts = {name: [] for name in names}
        rows, nodes, roots = [], [], []
        begin = 0
        for tree, bag in zip(forest.estimators_, forest.estimators_samples_):
            left, right = tree.tree_.children_left, tree.tree_.children_right
            unseen = np.ones(len(X), dtype=bool)
            unseen[bag] = False
            # Too few rows may all be in the bag.
            judged = unseen if unseen.any() else np.ones(len(X), dtype=bool)
            passes = tree.decision_path(X[judged])
            wrong = tree.tree_.value[:, 0].argmax(axis=1)[:, None] != y[judged]
            error = passes.T.multiply(wrong).sum(axis=1)
            error = np.asarray(error, dtype=float).ravel() / (judged.sum() * self.n_estimators)
            gains = split_gains(error, left, right)
            worth = worth_growing(gains, left, right)
            group = np.where(worth, self.group_of_[np.maximum(tree.tree_.feature, 0)], -1)
            row, node = first_uses(tree.decision_path(X[sample]), group)
            rows.append(row)
            nodes.append(node + begin)
            roots.append(begin)
            for name, part in zip(
                names,
                (
                    np.where(left >= 0, left + begin, -1),
                    np.where(right >= 0, right + begin, -1),
                    tree.tree_.feature,
                    tree.tree_.threshold,
                    tree.tree_.value[:, 0],
                    gains,
                    worth,
                ),
            ):
                parts[name].append(part)
            begin += len(left)
        tree = {name: np.concatenate(part) for name, part in parts.items()}
        rows, nodes = np.concatenate(rows), np.concatenate(nodes)
        kept = self._solve(tree, rows, nodes, len(sample))
        self.left_ = np.where(kept, tree["left"], -1)
        self.right_ = np.where(kept, tree["right"], -1)
        self.feature_ = tree["feature"].astype(np.intp)
        self.threshold_ = tree["threshold"]
        self.value_ = tree["value"] / tree["value"].sum(axis=1, keepdims=True)
        self.roots_ = np.array(roots)

    def _solve(self, tree, rows, nodes, n_rows):
        worth = np.flatnonzero(tree["worth"])
        position = np.full(len(tree["worth"]), -1)
        position[worth] = np.arange(len(worth))
        parent = np.full(len(position), -1)
        for side in ("left", "right"):
            parent[tree[side][worth]] = worth
        up = parent[worth]
        chosen, self.objective_ = prune(
            tree["gains"][worth],
            np.where(up >= 0, position[up], -1),
            rows,
            self.group_of_[tree["feature"][nodes]],
            position[nodes],
            self.group_costs_,
            n_rows,
            self.gamma,
        )
        kept = np.zeros(len(position), dtype=bool)
        kept[worth] = chosen
        return kept

    def _walk(self, ledger, rows):
        """Leaf of each row in each tree, buying features as the paths reach them."""
        node = np.tile(self.roots_, (len(rows), 1))
        row, tree = np.nonzero(self.left_[node] >= 0)
        while len(row):
            at = node[row, tree]
            wanted = self.feature_[at]
            value = np.empty(len(row), dtype=np.float32)
            order = np.argsort(wanted, kind="stable")
            borders = np.flatnonzero(np.diff(wanted[order])) + 1
            for paths in np.split(order, borders):
                column = wanted[paths[0]]
                # Paths are sorted by row; a row asks once, whatever the number of its trees.
                first = np.diff(row[paths], prepend=-1) > 0
                asking = rows[row[paths[first]]]
                ledger.plan(asking, [column])
                # Trees are grown on single precision.
                value[paths] = ledger.take(asking, [column])[:, column][np.cumsum(first) - 1]
            node[row, tree] = np.where(
                value <= self.threshold_[at], self.left_[at], self.right_[at]
            )
            inside = self.left_[node[row, tree]] >= 0
            row, tree = row[inside], tree[inside]
        return node

    def _decide(self, ledger, rows, budget):
        self._check_feasible(budget)
        leaf = self._walk(ledger, rows)
        return Decision.nobody_sent(len(rows), self.value_[leaf].mean(axis=1))

    def _own_proba(self, ledger, rows, decision):
        return decision.scores
