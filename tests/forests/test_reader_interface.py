"""The interface of readers, damaged forests, and forests that are joined."""

from dataclasses import replace

import lightgbm as lgb
import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.ensemble import (
    AdaBoostClassifier,
    BaggingClassifier,
    ExtraTreesRegressor,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
)
from sklearn.naive_bayes import GaussianNB

from skroute.forests import Forest, find_reader, leaf_sums, read_forest, read_lightgbm
from skroute.forests._lightgbm import LightGBMReader
from skroute.forests._reader import ForestReader
from skroute.forests._readers import READERS
from skroute.forests._sklearn import (
    AdaBoostReader,
    AveragedTreesReader,
    GradientBoostingReader,
    HistGradientBoostingReader,
)
from skroute.forests._trees import joined

READER_OF_MODEL = [
    (lgb.LGBMRegressor(n_estimators=2, verbose=-1, n_jobs=1), LightGBMReader),
    (BaggingClassifier(n_estimators=2), AveragedTreesReader),
    (ExtraTreesRegressor(2), AveragedTreesReader),
    (AdaBoostClassifier(n_estimators=2), AdaBoostReader),
    (GradientBoostingRegressor(n_estimators=2), GradientBoostingReader),
    (HistGradientBoostingClassifier(max_iter=2), HistGradientBoostingReader),
]


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: type(reader).__name__)
def test_each_reader_names_its_classes_and_has_a_docstring(reader):
    assert isinstance(reader, ForestReader)
    assert (
        reader.package and isinstance(reader.class_names, tuple) and reader.class_names
    )
    assert type(reader).__doc__ and type(reader).read.__doc__
    assert isinstance(reader.averages_probabilities, bool)


def test_no_class_has_two_readers():
    names = [
        (reader.package, name) for reader in READERS for name in reader.class_names
    ]
    assert len(names) == len(set(names))


def test_a_reader_must_be_able_to_read():
    with pytest.raises(TypeError, match="abstract"):
        ForestReader()


@pytest.mark.parametrize(("model", "cls"), READER_OF_MODEL)
def test_a_reader_is_found_before_and_after_fit(model, cls):
    X, y = load_iris(return_X_y=True)
    assert type(find_reader(model)) is cls
    reader = find_reader(model.fit(X, y))
    assert type(reader) is cls
    forest = reader.read(model)
    assert isinstance(forest, Forest) and forest.n_features == X.shape[1]
    assert np.array_equal(reader(model).trees.nodes, forest.trees.nodes)
    for array in (forest.offset, *forest.trees[:-1]):
        assert not array.flags.writeable


def test_a_subclass_has_the_reader_of_its_base():
    class Own(ExtraTreesRegressor):
        pass

    assert type(find_reader(Own())) is AveragedTreesReader
    assert find_reader(GaussianNB()) is None


def test_members_that_are_not_trees_have_no_forest():
    X, y = load_iris(return_X_y=True)
    model = BaggingClassifier(GaussianNB(), n_estimators=2).fit(X, y)
    assert find_reader(model).read(model) is None and read_forest(model) is None


DAMAGES = {
    "depths": (lambda depths: depths + 1, "depths must be those of the trees"),
    "roots": (lambda roots: roots + 1, "roots must rise from 0"),
    "values": (lambda values: values[1:], "values must be as many as nodes"),
    "outputs": (lambda outputs: outputs + 7, "outputs must be from -1 to 2"),
    "member_start": (lambda start: start[:1], "member_start must have a member"),
    "cat_start": (lambda start: start + 1, "cat_start must begin at 0"),
    "cat_words": (
        lambda words: words.astype(np.int64),
        "cat_words must be an array of 1",
    ),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_the_condition_that_does_not_hold_is_named(name):
    X, y = load_iris(return_X_y=True)
    forest, _ = read_forest(BaggingClassifier(n_estimators=2, random_state=0).fit(X, y))
    damage, message = DAMAGES[name]
    trees = forest.trees._replace(**{name: damage(getattr(forest.trees, name))})
    with pytest.raises(ValueError, match=f"damaged: {message}"):
        trees.check(forest.n_features, forest.n_outputs)


def test_joined_trees_are_those_of_each_forest():
    """Some trees have categories: bit sets get new numbers."""
    rng = np.random.default_rng(0)
    X = rng.integers(0, 9, (300, 3)).astype(np.float64)
    forests = []
    for seed in range(3):
        y = 20 * np.isin(X[:, 0], rng.integers(0, 9, 4)) + X[:, 1]
        data = lgb.Dataset(X, y, categorical_feature=[0, 2])
        options = {"verbose": -1, "num_threads": 1, "seed": seed, "cat_smooth": 1}
        forests.append(read_lightgbm(lgb.train(options, data, 4)))
    trees = joined([forest.trees for forest in forests])
    trees.check(n_features=3, n_outputs=1)
    assert trees.special and len(trees.cat_start) > 3
    total = replace(forests[0], trees=trees)
    first = 0
    for forest in forests:
        last = first + forest.n_members
        sums = leaf_sums(total, X, first=first, last=last)
        np.testing.assert_array_equal(sums, leaf_sums(forest, X))
        first = last
