"""Files that were changed are refused: compiled walks trust their arrays."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier

from skroute.early_exit import QWYCEnsemble, export_ensemble
from skroute.early_exit._portable import forest_of, load_exported
from tests.early_exit.reference import member_scores_reference


@pytest.fixture(scope="module")
def quick():
    X, y = make_classification(400, 5, n_informative=4, n_redundant=0, random_state=0)
    model = RandomForestClassifier(5, max_depth=3, random_state=0)
    return QWYCEnsemble(model, alpha=0.1, random_state=0).fit(X, y), X


@pytest.fixture(scope="module")
def content(quick, tmp_path_factory):
    path = tmp_path_factory.mktemp("exported") / "quick.npz"
    export_ensemble(quick[0], path)
    return path, dict(np.load(path))


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_whatever_is_changed_in_the_structure_is_noticed(data, quick, content):
    """One number of one array: refused, or a file of the same structure."""
    path, whole = content
    names = [
        "child",
        "feature",
        "roots",
        "depths",
        "outputs",
        "member_start",
        "cat_start",
    ]
    name = data.draw(st.sampled_from(names))
    changed = {name: values.copy() for name, values in whole.items()}
    at = data.draw(st.integers(0, len(changed[name]) - 1))
    changed[name][at] = data.draw(st.sampled_from([-1, 0, 3, 10**6, 2**31 - 1]))
    other = path.with_name("changed.npz")
    np.savez(other, **changed)
    try:
        exported = load_exported(other)
    except ValueError as error:
        assert "damaged" in str(error)
        return
    # Another column is another forest; -1 is each output, also where there is one.
    allowed = {"feature": range(5), "outputs": (-1, 0)}.get(name, ())
    same_structure = changed[name][at] in allowed
    assert same_structure or changed[name][at] == whole[name][at]
    member_scores_reference(forest_of(exported), quick[1])


@pytest.mark.parametrize("name", ["version", "format", "lo", "child", "classes"])
def test_what_is_missing_or_short_is_named(name, content):
    path, whole = content
    other = path.with_name("changed.npz")
    np.savez(other, **{key: value for key, value in whole.items() if key != name})
    with pytest.raises(ValueError, match=r"version|no entry"):
        load_exported(other)
    if name in ("lo", "child"):
        np.savez(other, **(whole | {name: whole[name][:1]}))
        with pytest.raises(ValueError, match=r"damaged|differ in length"):
            load_exported(other)


@pytest.mark.parametrize(
    ("field", "value"), [("child", 0), ("child", 10**6), ("feature", 10**6)]
)
def test_a_changed_pickle_or_skops_file_is_refused(field, value, quick):
    estimator, _ = quick
    damaged = pickle.loads(pickle.dumps(estimator))
    nodes = damaged._engine.forest.trees.nodes
    inner = nodes["child"] != np.arange(len(nodes))
    nodes.flags.writeable = True
    nodes[field][np.flatnonzero(inner)[-1]] = value
    with pytest.raises(ValueError, match="damaged"):
        pickle.loads(pickle.dumps(damaged))
    sio = pytest.importorskip("skops.io")
    data = sio.dumps(damaged)
    with pytest.raises(ValueError, match="damaged"):
        sio.loads(data, trusted=sio.get_untrusted_types(data=data))


def test_changed_thresholds_are_refused(quick):
    damaged = pickle.loads(pickle.dumps(quick[0]))
    short = [(lo, hi[:2]) for lo, hi in damaged.tradeoff_.thresholds]
    damaged.tradeoff_ = damaged.tradeoff_._replace(thresholds=short)
    with pytest.raises(ValueError, match="thresholds of 5 members are damaged"):
        pickle.loads(pickle.dumps(damaged))


def test_numbers_that_are_none_are_refused(content, tmp_path):
    """Found from outside: a threshold of NaN was read, and nothing left at it."""
    path = tmp_path / "quick.npz"
    for name in ("lo", "hi", "offset", "threshold", "beta"):
        damaged = content[1] | {name: np.full_like(content[1][name], np.nan)}
        np.savez(path, **damaged)
        message = f"{name!r} of an exported ensemble must not be NaN"
        with pytest.raises(ValueError, match=message):
            load_exported(path)
