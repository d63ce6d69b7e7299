"""Bit vectors against the walk to the leaves, against numpy, and against boosters."""

import pickle
from dataclasses import replace

import lightgbm as lgb
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from skroute.forests import ForestBuilder, leaf_sums, read_lightgbm
from skroute.forests._bitvector import FEWEST_ROWS
from skroute.forests._kernels import add_leaves
from skroute.forests._rules import ReadRule
from skroute.forests._trees import CATEGORICAL, MISSING_RIGHT, ZERO_MISSING
from skroute.utils._validation import read_only
from tests.early_exit.reference import member_scores_reference

N_FEATURES = 4
# The feature that is categorical, if one is.
CATEGORIES = 3


def random_tree(rng, n_leaves, width, cuts, flags, add_set):
    """Return parallel arrays of a tree whose leaves are split node random.

    The tree is deep or level. The order of the arrays is that of `add_tree`.
    """
    left, right, feature, threshold, flag = [-1], [-1], [0], [0.0], [0]
    leaves = [0]
    deep = rng.random() < 0.5
    for _ in range(n_leaves - 1):
        node = leaves.pop(-1 if deep else rng.integers(len(leaves)))
        feature[node] = int(rng.integers(N_FEATURES))
        threshold[node] = rng.choice(cuts)
        flag[node] = int(rng.choice(flags)) & ~CATEGORICAL
        if feature[node] == CATEGORIES and CATEGORICAL in flags:
            words = rng.integers(0, 2**32, rng.integers(1, 4))
            threshold[node], flag[node] = (
                add_set(words),
                CATEGORICAL | (flag[node] & MISSING_RIGHT),
            )
        left[node], right[node] = len(left), len(left) + 1
        leaves += [len(left), len(left) + 1]
        for column, value in zip(
            (left, right, feature, threshold, flag), (-1, -1, 0, 0.0, 0)
        ):
            column += [value, value]
    value = rng.normal(size=(len(left), width)) * 10.0 ** rng.integers(-8, 8)
    return [np.array(a) for a in (left, right, feature, threshold)] + [
        value,
        np.array(flag),
    ]


@st.composite
def forests(draw, most_leaves=64):
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    dtype = draw(st.sampled_from(["float32", "float64"]))
    n_outputs = draw(st.integers(1, 3))
    vector = draw(st.booleans())
    flags = [0] + draw(
        st.lists(st.sampled_from([MISSING_RIGHT, ZERO_MISSING, CATEGORICAL]))
    )
    cuts = rng.normal(size=draw(st.sampled_from([1, 5, 40, 200])))
    special = [
        0.0,
        -0.0,
        1e-35,
        -1e-35,
        1e-36,
        5e-324,
        1e-42,
        1e300,
        -1e300,
        np.inf,
        -np.inf,
    ]
    cuts = np.concatenate([cuts, special]) if draw(st.booleans()) else cuts
    if draw(st.booleans()):
        cuts = np.clip(cuts, -3e38, 3e38).astype(np.float32).astype(np.float64)
    # Each pair of a precision and a width of words is compiled for seconds. Words of 64
    # bits come with one precision only.
    most_leaves = 32 if most_leaves == 64 and dtype == "float64" else most_leaves
    builder = ForestBuilder()
    for _ in range(draw(st.integers(1, 6))):
        for output in [-1] if vector else rng.permutation(n_outputs):
            n_leaves = int(
                rng.integers(1, draw(st.sampled_from([2, 32, most_leaves])) + 1)
            )
            tree = random_tree(
                rng, n_leaves, n_outputs if vector else 1, cuts, flags, builder.add_set
            )
            builder.add_tree(*tree, output=int(output))
        builder.end_member()
    forest = builder.build(
        np.zeros(n_outputs), n_features=N_FEATURES, read_rule=ReadRule(dtype=dtype)
    )
    return forest, rows_near(
        rng, cuts, dtype, draw(st.sampled_from([1, 47, 48, 100, 1100]))
    )


def rows_near(rng, cuts, dtype, n):
    """Return rows with the cuts, the numbers next to them, and special values."""
    with np.errstate(over="ignore"):
        cells = cuts.astype(dtype)
        pool = [
            cells,
            np.nextafter(cells, np.inf, dtype=dtype),
            np.nextafter(cells, -np.inf, dtype=dtype),
        ]
        special = [
            np.nan,
            np.inf,
            -np.inf,
            0,
            -0.0,
            1e-35,
            1.1e-35,
            -1e-36,
            1e-42,
            5e-324,
            1e300,
        ]
        pool += [np.array(special, dtype=dtype)] * 2
    X = rng.choice(np.concatenate(pool), (n, N_FEATURES))
    codes = np.r_[
        np.arange(-2, 100), -0.5, 0.7, 31.9, 2.0**31, 3e9, -3e9, np.inf, -np.inf, np.nan
    ]
    some = rng.random(n) < 0.7
    X[some, CATEGORIES] = rng.choice(codes, some.sum())
    return X


def walked(forest, X, outputs, first, last):
    """Return the sums of some outputs by the walk from the root to a leaf."""
    column = np.full(forest.n_outputs, -1)
    column[outputs] = np.arange(len(outputs))
    out = np.zeros((len(X), len(outputs)))
    add_leaves(read_only(X), 0, len(X), tuple(forest.trees), first, last, column, out)
    return out


@settings(max_examples=70, deadline=None)
@given(drawn=forests(), data=st.data())
def test_sums_equal_those_of_the_walk_bit_for_bit(drawn, data):
    forest, X = drawn
    outputs = data.draw(st.permutations(range(forest.n_outputs)))
    outputs = outputs[: data.draw(st.integers(1, forest.n_outputs))]
    first = data.draw(st.integers(0, forest.n_members))
    last = data.draw(st.integers(first, forest.n_members))
    expected = walked(forest, X, outputs, first, last)
    assert forest.bits is not None
    sums = leaf_sums(forest, X, outputs, first=first, last=last)
    np.testing.assert_array_equal(sums, expected)
    assert np.array_equal(np.signbit(sums), np.signbit(expected))
    by_numpy = np.zeros_like(expected)
    for scores in member_scores_reference(forest, X)[first:last]:
        by_numpy += scores[:, outputs]
    np.testing.assert_array_equal(sums, by_numpy)


@settings(max_examples=40, deadline=None)
@given(
    depths=st.lists(st.integers(0, 8), min_size=1, max_size=5),
    n_outputs=st.integers(1, 3),
    categorical=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
    spoiled=st.booleans(),
)
def test_oblivious_trees_have_a_test_for_each_level(
    depths, n_outputs, categorical, seed, spoiled
):
    rng = np.random.default_rng(seed)
    cuts, builder = rng.normal(size=9), ForestBuilder()
    for depth in depths:
        n_inner = 2**depth - 1
        nodes = np.arange(2 * n_inner + 1)
        inner = nodes < n_inner
        level = np.floor(np.log2(nodes + 1)).astype(int)
        feature = rng.integers(N_FEATURES, size=depth + 1)[level]
        threshold = rng.choice(cuts, depth + 1)[level]
        flags = rng.choice([0, MISSING_RIGHT, ZERO_MISSING], depth + 1)[level]
        for k in range(depth * categorical):
            if feature[2**k - 1] == CATEGORIES:
                number = builder.add_set(rng.integers(0, 2**32, 2))
                threshold[level == k], flags[level == k] = number, CATEGORICAL
        left = np.where(inner, 2 * nodes + 1, -1)
        value = rng.normal(size=(len(nodes), n_outputs))
        args = [np.where(inner, a, 0) for a in (feature, threshold)]
        builder.add_tree(
            left,
            np.where(inner, left + 1, -1),
            *args,
            value,
            np.where(inner, flags, 0),
            -1,
        )
        builder.end_member()
    forest = builder.build(
        np.zeros(n_outputs), n_features=N_FEATURES, read_rule=ReadRule(dtype="float32")
    )
    inner = forest.trees.nodes["child"] != np.arange(len(forest.trees.nodes))
    if spoiled and max(depths) >= 2:
        # One node of a level that asks something else.
        t = int(np.argmax(forest.trees.depths))
        nodes = forest.trees.nodes.copy()
        nodes["threshold"][forest.trees.roots[t] + 2] = 0.123
        nodes["feature"][forest.trees.roots[t] + 2] = 0
        forest = replace(forest, trees=forest.trees._replace(nodes=nodes).read_only())
    bits, n_tests = forest.bits, sum(depths)
    if not (spoiled and max(depths) >= 2) and max(depths) >= 2:
        assert bits.clear.dtype == np.int16 and len(bits.column) == n_tests
    elif bits is not None:
        assert bits.clear.dtype.kind == "u" and len(bits.column) == inner.sum()
    X = rows_near(rng, cuts, "float32", 150)
    outputs = list(range(n_outputs))
    expected = walked(forest, X, outputs, 0, forest.n_members)
    np.testing.assert_array_equal(leaf_sums(forest, X), expected)


@settings(max_examples=20, deadline=None)
@given(drawn=forests(most_leaves=90))
def test_the_shape_chooses_the_layout_and_no_answer_depends_on_it(drawn):
    forest, X = drawn
    nodes = forest.trees.nodes
    leaf = nodes["child"] == np.arange(len(nodes))
    most = np.add.reduceat(leaf, forest.trees.roots).max()
    bits = forest.bits
    oblivious = bits is not None and bits.clear.dtype.kind == "i"
    assert (bits is None) == (most > 64 and not oblivious)
    if bits is not None and not oblivious:
        assert bits.clear.dtype == (np.uint32 if most <= 32 else np.uint64)
    outputs = range(forest.n_outputs)
    expected = walked(forest, X, list(outputs), 0, forest.n_members)
    np.testing.assert_array_equal(leaf_sums(forest, X), expected)


def stump(threshold, flag=0, words=()):
    builder = ForestBuilder()
    if len(words):
        threshold = builder.add_set(words)
    tree = [[1, -1, -1], [2, -1, -1], [0, 0, 0], [threshold, 0, 0]]
    value = np.array([[0.0], [1.0], [2.0]])
    builder.add_tree(*map(np.array, tree), value, np.array([flag, 0, 0]))
    builder.end_member()
    return builder.build([0.0], n_features=1)


def test_what_codes_cannot_say_is_left_to_the_walk():
    long = np.full(2047, 2**32 - 1)
    assert stump(0, CATEGORICAL, long[:-1]).bits is not None
    assert stump(0, CATEGORICAL, np.append(long, 1)).bits is None
    assert stump(0, CATEGORICAL | ZERO_MISSING, [1]).bits is None
    X = np.append(np.arange(65600.0), np.nan)[:, None]
    for words in (long[:-1], np.append(long, long[:1])):
        forest = stump(0, CATEGORICAL | MISSING_RIGHT, words)
        expected = np.where(X < 32 * len(words), 1.0, 2.0)
        np.testing.assert_array_equal(leaf_sums(forest, X), expected)


def test_many_cuts_of_one_feature():
    """65,534 codes are enough, one more is not."""
    for n_trees, fits in ((65534 // 63, True), (65534 // 63 + 2, False)):
        builder, cut = ForestBuilder(), 0
        for _ in range(n_trees):
            left = np.full(127, -1)
            left[0:126:2] = np.arange(1, 127, 2)
            right = np.where(left >= 0, left + 1, -1)
            threshold = np.zeros(127)
            threshold[0:126:2] = cut + np.arange(63)
            cut += 63
            value = np.arange(127.0)[:, None]
            zero = np.zeros(127, dtype=int)
            builder.add_tree(left, right, zero, threshold, value, zero)
        builder.end_member()
        forest = builder.build([0.0], n_features=1)
        assert (forest.bits is not None) == fits
        # Between the cuts, and on some.
        X = np.append(np.linspace(-1, cut + 1, 50), np.arange(0.0, cut, 999))[:, None]
        np.testing.assert_array_equal(
            leaf_sums(forest, X), walked(forest, X, [0], 0, 1)
        )


def test_the_layout_follows_the_trees_and_is_not_pickled():
    forest = stump(0.0)
    X = np.linspace(-1, 1, FEWEST_ROWS)[:, None]
    before = leaf_sums(forest, X)
    assert forest.bits is forest.bits
    assert "bits" not in pickle.loads(pickle.dumps(forest)).__dict__
    nodes = forest.trees.nodes.copy()
    nodes["threshold"][0] = 2.0
    forest = replace(forest, trees=forest.trees._replace(nodes=nodes).read_only())
    assert (before == 2.0).any() and (leaf_sums(forest, X) == 1.0).all()


@settings(max_examples=15, deadline=None)
@given(
    n_outputs=st.integers(1, 4),
    n_rounds=st.integers(1, 8),
    missing=st.booleans(),
    seed=st.integers(0, 10**6),
)
def test_sums_of_leaves_are_the_scores_of_the_booster(
    n_outputs, n_rounds, missing, seed
):
    """Sums of some rounds and of all, for a booster with an objective of its own."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(120, 4)).round(1)
    if missing:
        X[rng.random(X.shape) < 0.2] = np.nan
    target = rng.normal(size=(120, n_outputs))
    params = {
        "objective": "none",
        "num_class": n_outputs,
        "verbose": -1,
        "num_threads": 1,
    }
    booster = lgb.Booster(
        params | {"min_data_in_leaf": 3}, lgb.Dataset(X, target[:, 0])
    )
    for _ in range(n_rounds):

        def objective(scores, _):
            gradient = scores.reshape(120, n_outputs) - target
            # An output that is skipped has a tree without a split.
            gradient[:, rng.random(n_outputs) < 0.3] = 0.0
            flat = gradient.ravel(order="F")
            return flat, np.ones_like(flat)

        booster.update(fobj=objective)
    forest = read_lightgbm(booster, num_iteration=-1)
    assert (forest.n_outputs, forest.n_members) == (
        n_outputs,
        booster.current_iteration(),
    )
    queries = np.vstack([X, np.full((1, 4), np.nan), np.full((1, 4), np.inf)])
    for n in range(1, forest.n_members + 1):
        expected = booster.predict(queries, num_iteration=n, raw_score=True).reshape(
            -1, n_outputs
        )
        sums = leaf_sums(forest, queries, last=n)
        np.testing.assert_allclose(sums, expected, rtol=1e-10, atol=1e-10)
        np.testing.assert_array_equal(leaf_sums(forest.taken(range(n)), queries), sums)
    used = np.flatnonzero(booster.feature_importance())
    np.testing.assert_array_equal(forest.features_of(range(n_outputs)), used)
