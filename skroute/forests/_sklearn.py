"""Trees of scikit-learn: forests, bagging, AdaBoost and gradient boosting."""

from reprlib import repr as short_repr
from typing import Any, NamedTuple

import numpy as np

from skroute.forests._columns import EncodedCells
from skroute.forests._forest import ForestBuilder
from skroute.forests._reader import ForestReader, labels_of
from skroute.forests._rules import AnswerRule, ReadRule
from skroute.forests._trees import ALL_OUTPUTS, CATEGORICAL, MISSING_RIGHT
from skroute.utils._compat import first_scores, histogram_boosting_of

# The threads of a forest add up its trees in any order. Averages thus differ by less
# than this from one call to the next.
_BLUR_OF_THREADS = 1e-12
# Losses of histogram boosting whose answers are the exponential of the sums.
_LOSSES_WITH_LOGARITHM = ("poisson", "gamma")
# Score above which gradient boosting answers with the second class. A score of exactly
# zero is above it, as in scikit-learn.
_BELOW_ZERO = float(np.nextafter(0.0, -1.0))


class _MemberTree(NamedTuple):
    """A decision tree, with the values that its leaves add to an output.

    Attributes
    ----------
    tree : sklearn.tree._tree.Tree
        The arrays of a decision tree. ``tree.value`` has shape
        (n_nodes, n_targets, n_classes), with 1 in place of `n_classes` for numbers.

    value : ndarray of shape (n_nodes, width)
        Values that leaves add. Those of inner nodes are ignored.

    output : int
        Output that the leaves add to, or `ALL_OUTPUTS`.
    """

    tree: Any
    value: np.ndarray
    output: int


class AveragedTreesReader(ForestReader):
    """Reader of random forests, extra trees and bagging: averages of trees."""

    package = "sklearn"
    class_names = ("ForestClassifier", "BaggingClassifier", "ForestRegressor")
    averages_probabilities = True

    def read(self, estimator):
        """Read a fitted forest of one target, or bagging of decision trees.

        Returns a `Forest`, or None if a member of the ensemble is not a tree.
        """
        n_targets = getattr(estimator, "n_outputs_", 1)
        if n_targets != 1:
            raise ValueError(
                "Multi-output forests are not supported: the "
                f"{type(estimator).__name__} was fitted to y with {n_targets} columns; "
                "fit it to one target."
            )
        if not _has_trees(estimator):
            return None
        return averaged_forest(estimator)


class AdaBoostReader(ForestReader):
    """Reader of AdaBoost, whose trees vote with weights."""

    package = "sklearn"
    class_names = ("AdaBoostClassifier",)

    def read(self, estimator):
        """Read fitted boosting of decision trees.

        Returns a `Forest`, or None if a member of the ensemble is not a tree.
        """
        classes = estimator.classes_
        n_classes = len(classes)
        if n_classes < 2:
            raise ValueError(
                "AdaBoostClassifier must have at least two classes: this one was "
                "fitted to rows of one class, which is its answer to every row: "
                "nothing is to be evaluated."
            )
        if not _has_trees(estimator):
            return None
        # The classes that votes are counted for, one for each output.
        candidates = classes
        output = ALL_OUTPUTS
        if n_classes == 2:
            # Two classes have one output: the votes for the second class.
            candidates = classes[1:]
            output = 0
        members = []
        for member, weight in zip(estimator.estimators_, estimator.estimator_weights_):
            tree = member.tree_
            # The answer of each node, of shape (n_nodes,). ``tree.value`` has shape
            # (n_nodes, 1, n_classes), since there is one target.
            label = member.classes_[np.argmax(tree.value[:, 0, :], axis=1)]
            # A vote for one class counts against each of the others. The sum over all
            # classes is 0.
            vote_against = -1 / (n_classes - 1) * weight
            votes = np.where(label[:, None] == candidates, weight, vote_against)
            members.append([_MemberTree(tree, value=votes, output=output)])
        builder = _builder_of(members, getattr(estimator, "estimators_features_", None))
        # Before any tree has voted, the score of each output is 0.
        no_votes = np.zeros(len(candidates))
        return builder.build(
            no_votes,
            estimator.n_features_in_,
            classes=np.asarray(classes),
            read_rule=ReadRule(dtype="float32"),
            answer_rule=AnswerRule(
                kind="vote",
                divisor=float(estimator.estimator_weights_.sum()),
                by_score=True,
            ),
        )


class GradientBoostingReader(ForestReader):
    """Reader of gradient boosting, without bins."""

    package = "sklearn"
    class_names = ("BaseGradientBoosting",)

    def read(self, estimator):
        """Read fitted boosting whose score before any tree is the same for all rows.

        Returns a `Forest`. Raises a ValueError for an `init` that is an estimator.
        """
        init = estimator.init
        if init is not None and not isinstance(init, str):
            raise ValueError(
                f"{type(estimator).__name__} has init={short_repr(init)}: the score "
                "before the first tree depends on the row. Use init=None or "
                "init='zero'."
            )
        rate = estimator.learning_rate
        members = []
        for stage in estimator.estimators_:
            trees = []
            for output, regressor in enumerate(stage):
                tree = regressor.tree_
                # ``tree.value`` has shape (n_nodes, 1, 1), `value` has (n_nodes, 1).
                value = rate * tree.value[:, 0, :]
                trees.append(_MemberTree(tree, value=value, output=output))
            members.append(trees)
        builder = _builder_of(members)
        classes = labels_of(estimator)
        kind = _boosted_kind(
            classes,
            n_outputs=estimator.estimators_.shape[1],
            kind_of_numbers="identity",
        )
        # The first score is the same for all rows, so that any row will do.
        row = np.zeros((1, estimator.n_features_in_), np.float32)
        return builder.build(
            np.ravel(first_scores(estimator, row)),
            estimator.n_features_in_,
            classes=classes,
            read_rule=ReadRule(dtype="float32"),
            answer_rule=AnswerRule(
                kind=kind,
                # A score of the exponential loss is half of the logarithmic odds.
                slope=2.0 if estimator.loss == "exponential" else 1.0,
                beta=_BELOW_ZERO,
                by_score=classes is not None,
            ),
        )


class HistGradientBoostingReader(ForestReader):
    """Reader of gradient boosting with bins, which may have categories."""

    package = "sklearn"
    class_names = ("BaseHistGradientBoosting",)

    def read(self, estimator):
        """Read fitted boosting with the categories of its encoder.

        Returns a `Forest`.
        """
        boosting = histogram_boosting_of(estimator)
        columns = _input_columns(estimator, boosting.preprocessor)
        builder = ForestBuilder()
        for stage in boosting.predictors:
            for output, predictor in enumerate(stage):
                _add_predictor(
                    builder, predictor, position=columns.position, output=output
                )
            builder.end_member()
        classes = labels_of(estimator)
        kind_of_numbers = "identity"
        if estimator.loss in _LOSSES_WITH_LOGARITHM:
            kind_of_numbers = "sk_exp"
        kind = _boosted_kind(
            classes,
            n_outputs=estimator.n_trees_per_iteration_,
            kind_of_numbers=kind_of_numbers,
        )
        return builder.build(
            np.ravel(boosting.baseline),
            estimator.n_features_in_,
            classes=classes,
            read_rule=ReadRule(finite=False, columns=EncodedCells(columns.categories)),
            answer_rule=AnswerRule(kind=kind, by_score=classes is not None),
        )


def averaged_forest(model):
    """Return the forest of an ensemble of scikit-learn that averages its trees.

    Parameters
    ----------
    model : fitted estimator
        Its members are decision trees. A regressor may have several outputs.

    Returns
    -------
    Forest
    """
    classes = labels_of(model)
    members = []
    for member in model.estimators_:
        tree = member.tree_
        if classes is None:
            # ``tree.value`` has shape (n_nodes, n_targets, 1): one number a target.
            value = tree.value[:, :, 0]
        else:
            # The classes of a member are positions among those of the ensemble. A
            # member that was fitted on fewer classes has fewer columns.
            value = np.zeros((len(tree.value), len(classes)))
            # The values have shape (n_nodes, 1, n_classes of the member).
            value[:, member.classes_.astype(np.intp)] = tree.value[:, 0, :]
        members.append([_MemberTree(tree, value=value, output=ALL_OUTPUTS)])
    # The leaves of all trees have the same number of values.
    n_outputs = members[-1][0].value.shape[1]
    builder = _builder_of(members, getattr(model, "estimators_features_", None))
    # The scores before any tree are 0.
    return builder.build(
        np.zeros(n_outputs),
        model.n_features_in_,
        classes=classes,
        read_rule=ReadRule(dtype="float32", finite="allow-nan"),
        answer_rule=AnswerRule(
            kind="mean", divisor=float(len(members)), blur=_BLUR_OF_THREADS
        ),
    )


def _has_trees(estimator):
    """Return True if each member of an ensemble is a decision tree of scikit-learn."""
    return all(hasattr(member, "tree_") for member in estimator.estimators_)


def _builder_of(members, features=None):
    """Return a builder with the trees of all members.

    Parameters
    ----------
    members : list of list of _MemberTree
        The trees of each member.

    features : list of ndarray, default=None
        The columns that each member was fitted on. None stands for all columns.

    Returns
    -------
    ForestBuilder
    """
    builder = ForestBuilder()
    for member_number, trees in enumerate(members):
        for member_tree in trees:
            tree = member_tree.tree
            # Leaves have a negative feature. It becomes 0, since it would be a position
            # from the end of `features`.
            feature = np.maximum(tree.feature, 0)
            if features is not None:
                # Columns of the member become columns of the ensemble.
                columns_of_member = np.asarray(features[member_number])
                feature = columns_of_member[feature]
            # Without a flag, missing values go left.
            builder.add_tree(
                left=tree.children_left,
                right=tree.children_right,
                feature=feature,
                threshold=tree.threshold,
                value=member_tree.value,
                flags=np.where(tree.missing_go_to_left, 0, MISSING_RIGHT),
                output=member_tree.output,
            )
        builder.end_member()
    return builder


def _boosted_kind(classes, n_outputs, kind_of_numbers):
    """Return `AnswerRule.kind` of a boosted classifier or regressor: its link.

    Parameters
    ----------
    classes : ndarray or None
        None for a regressor.

    n_outputs : int
        Number of scores of a row.

    kind_of_numbers : str
        The kind of a regressor.

    Returns
    -------
    str
        See :class:`~skroute.forests._rules.AnswerRule`.
    """
    if classes is None:
        return kind_of_numbers
    if n_outputs == 1:
        return "expit"
    return "sk_softmax"


def _add_predictor(builder, predictor, position, output):
    """Add a tree of histogram boosting to the member that is being built.

    Parameters
    ----------
    builder : ForestBuilder
    predictor : sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor
    position : ndarray of int
        Position in the input of each internal column.

    output : int
        Output that the leaves add to.
    """
    nodes = predictor.nodes
    sets = predictor.raw_left_cat_bitsets
    threshold = nodes["num_threshold"].copy()
    is_categorical = nodes["is_categorical"] != 0
    for i in np.flatnonzero(is_categorical):
        # The threshold of a categorical node is the number of its bit set.
        threshold[i] = builder.add_set(sets[nodes["bitset_idx"][i]])
    flags = np.where(nodes["missing_go_to_left"], 0, MISSING_RIGHT)
    flags |= np.where(is_categorical, CATEGORICAL, 0)
    # -1: a leaf has no left child.
    builder.add_tree(
        left=np.where(nodes["is_leaf"], -1, nodes["left"].astype(np.int64)),
        right=nodes["right"].astype(np.int64),
        feature=position[nodes["feature_idx"]],
        threshold=threshold,
        value=nodes["value"][:, None],
        flags=flags,
        output=output,
    )


class _InputColumns(NamedTuple):
    """The columns of the input, as histogram boosting orders and encodes them.

    Attributes
    ----------
    position : ndarray of int
        Position in the input of each internal column.

    categories : dict from int to ndarray
        Categories of the encoded columns, by position in the input.
    """

    position: np.ndarray
    categories: dict


def _input_columns(model, preprocessor):
    """Return the columns of the input of fitted histogram boosting.

    `preprocessor` is the transformer that encodes categories, or None without them.
    The result is an `_InputColumns`.
    """
    if preprocessor is None:
        return _InputColumns(np.arange(model.n_features_in_), {})
    is_categorical = np.asarray(model.is_categorical_)
    encoded = np.flatnonzero(is_categorical)
    # The encoder moves categorical columns to the front.
    position = np.concatenate([encoded, np.flatnonzero(~is_categorical)])
    encoder = preprocessor.named_transformers_["encoder"]
    return _InputColumns(position, dict(zip(encoded.tolist(), encoder.categories_)))
