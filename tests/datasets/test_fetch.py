"""What the fetchers return."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import binomtest

from skroute.datasets import (
    _base,
    _frugal,
    fetch_adult,
    fetch_calm,
    fetch_carrot,
    fetch_cascades,
    fetch_covertype_sample,
    fetch_frugalmct,
    fetch_frugalml,
    fetch_greenserv,
    fetch_letter,
    fetch_llmrouter,
    fetch_paretobandit,
    fetch_routellm_mmlu,
    fetch_spam,
    fetch_supg,
    fetch_usps,
    frugal_split,
    make_routing_problem,
)

TABLES = {
    fetch_adult: (48_842, 14, 16_281, 2),
    fetch_letter: (20_000, 16, 4_000, 26),
    fetch_covertype_sample: (15_000, 54, 5_000, 7),
    fetch_usps: (11_000, 256, 3_301, 10),
}


@pytest.mark.parametrize("fetch", TABLES)
def test_tables(data_home, fetch):
    n, d, n_test, n_classes = TABLES[fetch]
    data = fetch(data_home=data_home, download_if_missing=False)
    assert data.data.shape == (n, d)
    assert data.target.shape == data.is_test.shape == (n,)
    assert data.is_test.sum() == n_test
    assert len(data.feature_names) == d
    assert len(data.target_names) == n_classes == len(np.unique(data.target))
    assert data.frame is None
    assert data.filename.startswith(str(data_home))
    assert data.DESCR.count("\n") > 3

    X, y = fetch(data_home=data_home, return_X_y=True)
    assert_array_equal(X, data.data)
    assert_array_equal(y, data.target)


@pytest.mark.parametrize("fetch", TABLES)
def test_tables_as_frame(data_home, fetch):
    pandas = pytest.importorskip("pandas")
    plain = fetch(data_home=data_home)
    data = fetch(data_home=data_home, as_frame=True)
    assert isinstance(data.data, pandas.DataFrame)
    assert data.data.columns.tolist() == plain.feature_names
    assert data.target.name == "target"
    assert data.frame.columns.tolist() == [*plain.feature_names, "target"]
    assert_array_equal(data.target, plain.target)
    X, y = fetch(data_home=data_home, as_frame=True, return_X_y=True)
    pandas.testing.assert_frame_equal(X, data.data)
    pandas.testing.assert_series_equal(y, data.target)


def test_adult_categories(data_home):
    pytest.importorskip("pandas")
    data = fetch_adult(data_home=data_home)
    frame = fetch_adult(data_home=data_home, as_frame=True).data
    names = [name for name, flag in zip(data.feature_names, data.is_categorical) if flag]
    assert list(data.categories) == names
    assert [name for name in frame if frame[name].dtype == "category"] == names
    assert (data.data == -1).sum() == frame.isna().sum().sum() == 6_465
    assert frame["workclass"].iloc[0] == "State-gov"
    # As published.
    assert data.target[~data.is_test].sum() == 7_841
    assert data.target[data.is_test].sum() == 3_846


def test_usps_images(data_home):
    data = fetch_usps(data_home=data_home)
    assert data.images.shape == (11_000, 16, 16)
    assert_array_equal(data.images[3].ravel(), data.data[3])
    # A nought has ink all round its middle, whichever way it is written.
    nought = data.images[data.target == 0].mean(axis=0)
    assert nought[8, 8] < nought[8, [4, 11]].min()


ACCURACY = {
    "FERPLUS": [0.6766, 0.6843, 0.8139, 0.6507],
    "EXPW": [0.6634, 0.6219, 0.7279, 0.5638],
    "AFFECTNET": [0.6826, 0.6407, 0.7230, 0.6386],
    "YELP": [0.9570, 0.5138, 0.8693, 0.7452],
    "IMDB": [0.8645, 0.5156, 0.7911, 0.6931],
    "WAIMAI": [0.8192, 0.8895, 0.8236, 0.6433],
    "DIGIT": [0.3010, 0.8265, 0.7465, 0.5970],
    "AUDIOMNIST": [0.8848, 0.9863, 0.9828, 0.9223],
    "COMMAND": [0.8736, 0.9457, 0.8056, 0.8014],
}


@pytest.mark.parametrize("name", _frugal.FRUGALML)
def test_frugalml(data_home, name):
    data = fetch_frugalml(name, data_home=data_home)
    n = len(data.target)
    assert data.predictions.shape == data.quality.shape == (n, 4)
    assert_array_equal(data.quality, data.predictions == data.target[:, None])
    assert_allclose(data.quality.mean(axis=0), ACCURACY[name], atol=1e-4)
    assert data.predictions.max() < len(data.target_names)
    assert len(data.model_names) == len(data.costs) == 4
    assert data.costs.argmin() == 3
    assert name in data.DESCR
    if name == "AFFECTNET":
        assert data.scores is None
        assert data.sample_id is None
    else:
        assert data.scores.shape == (n, 4)
        assert data.scores.min() >= 0
        assert data.scores.max() <= 1
        assert data.sample_id.shape == (n,)


@pytest.mark.parametrize("name", _frugal.FRUGALMCT)
def test_frugalmct(data_home, name):
    data = fetch_frugalmct(name, data_home=data_home)
    n = len(data.sample_id)
    assert data.quality.shape == (n, 4)
    assert 0 <= data.quality.min() <= data.quality.max() <= 1
    assert len(np.unique(data.sample_id)) == n
    assert data.costs.argmin() == 3
    if name not in ("PASCAL", "MIR"):
        assert data.target is data.scores is data.scores_columns is None
        assert data.target_names == []
        return
    assert data.target.shape == (n, len(data.target_names))
    assert data.scores.shape == (n, len(data.scores_columns), len(data.target_names))


def test_pascal_quality_is_the_jaccard_index_of_named_labels(data_home):
    data = fetch_frugalmct("PASCAL", data_home=data_home)
    assert data.scores_columns.tolist() == [0, 1, 2]
    named = data.scores > 0
    both = (named & data.target[:, None]).sum(axis=2)
    either = (named | data.target[:, None]).sum(axis=2)
    assert_allclose(data.quality[:, data.scores_columns], both / either, atol=1e-6)


def test_routellm_mmlu(data_home):
    data = fetch_routellm_mmlu(data_home=data_home)
    assert data.data.shape == data.subject.shape == (14_042,)
    assert data.quality.mean(axis=0).round(4).tolist() == [0.6808, 0.8058]
    assert data.costs.tolist() == [0.24, 24.7]
    assert data.contaminated.sum() == 5
    assert len(set(data.subject)) == 57
    assert data.data[0].endswith("Answer:")


def test_llmrouter(data_home):
    data = fetch_llmrouter(data_home=data_home)
    assert data.data.shape == data.task.shape == data.metric.shape == (6_108,)
    assert data.is_test.sum() == 500
    assert data.in_train.sum() == 119
    assert not data.in_train[~data.is_test].any()
    train = data.quality[~data.is_test]
    assert train.mean(axis=0).round(4).max() == 0.6213
    assert train.max(axis=1).mean().round(4) == 0.8017
    assert (np.diff(data.costs) >= 0).all()
    assert set(data.cluster_id[data.is_test]) == {-1}


@pytest.mark.parametrize(
    "n_models, n_test, reward, paid",
    [
        (3, 1_824, [0.7931, 0.9231, 0.9322], [2.86e-5, 5.27e-4, 1.52e-2]),
        (4, 1_793, None, None),
    ],
)
def test_paretobandit(data_home, n_models, n_test, reward, paid):
    data = fetch_paretobandit(n_models, data_home=data_home)
    assert data.quality.shape == data.costs.shape == (len(data.data), n_models)
    assert data.is_test.sum() == n_test
    assert len(data.model_names) == n_models
    assert len(set(data.data)) == len(data.data)
    assert len(data.source) == len(data.data)
    # Means as the note of the data has them.
    if reward:
        assert_allclose(data.quality[data.is_test].mean(axis=0), reward, atol=5e-5)
        assert_allclose(data.costs[data.is_test].mean(axis=0), paid, rtol=5e-3)
    assert (np.diff(data.costs.mean(axis=0)) > 0).all()


@pytest.mark.parametrize(
    "name, n, right, best", [("MMLU", 1_531, 0.8517, 0.9693), ("TriviaQA", 1_000, 0.9490, 0.985)]
)
def test_cascades(data_home, name, n, right, best):
    data = fetch_cascades(name, data_home=data_home)
    test = data.quality[data.is_test]
    assert len(test) == n
    assert len(data.data) == len(data.quality) == len(data.confidence) == len(data.costs)
    large = data.model_names.index("llama3.1-405b")
    assert_allclose(test[:, large].mean(), right, atol=1e-4)
    assert_allclose(test.max(axis=1).mean(), best, atol=1e-4)
    assert data.confidence.max() <= 0
    assert 0.1 < np.median(data.seconds) < 10
    assert data.chain == ["llama"] * 5 + ["qwen_oai"] * 4


def test_carrot(data_home):
    data = fetch_carrot(data_home=data_home)
    assert data.quality.shape == (21_065, 18)
    assert data.quality.mean(axis=0).max().round(4) == 0.5586
    assert data.quality.max(axis=1).mean().round(4) == 0.9738
    assert data.is_test.sum() == 4_213
    assert len(set(data.task)) == 38
    assert (data.group == "gpqa").sum() == 1_192


def test_greenserv(data_home):
    data = fetch_greenserv(data_home=data_home)
    random = data.policy == "random"
    assert_allclose(data.reward[random].mean(), 0.6737, atol=1e-4)
    assert_allclose(data.reward[~random].mean(), 0.7257, atol=1e-4)
    assert_allclose(data.best_reward.mean(), 0.9143, atol=1e-4)
    assert (data.propensity[random] == 1 / 16).all()
    # A prompt stands beside its own number.
    prompt = dict(zip(data.query_id, data.data))
    assert len(prompt) == len(set(prompt.values())) == 2_500
    assert all(prompt[key] == text for key, text in zip(data.query_id, data.data))


def test_spam(data_home):
    data = fetch_spam(data_home=data_home)
    assert data.data.shape == (4_601, 57)
    assert (data.is_val.sum(), data.is_test.sum(), (data.is_val & data.is_test).sum()) == (
        920,
        920,
        0,
    )
    assert data.target.mean().round(3) == 0.394
    assert data.feature_names[51] == "char_freq_!"


def test_calm_and_supg(data_home):
    calm = fetch_calm(data_home=data_home)
    half = np.flatnonzero(np.isclose(calm.thresholds, 0.5))[0]
    assert calm.losses.shape == (2_000, 100)
    assert_allclose(calm.losses[:, half].mean(), 0.0083, atol=1e-4)
    assert (calm.losses[:, 0] == 0).all()
    assert (np.diff(calm.costs) <= 0).all()
    assert fetch_supg("TACRED", data_home=data_home).target.sum() == 534
    assert fetch_supg("OntoNotes", data_home=data_home).target.sum() == 279


@pytest.mark.parametrize(
    "fetch",
    [
        lambda home: fetch_cascades("MMLU", data_home=home),
        lambda home: fetch_carrot(data_home=home),
        lambda home: fetch_greenserv(data_home=home),
        lambda home: fetch_calm(data_home=home),
        lambda home: fetch_supg("TACRED", data_home=home),
    ],
)
def test_sets_without_a_licence_are_never_downloaded(fetch, tmp_path, monkeypatch):
    def asked(*args, **kwargs):
        raise AssertionError("the network was asked")

    monkeypatch.setattr(_base, "urlopen", asked)
    with pytest.raises(OSError, match="never downloaded: set data_home"):
        fetch(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: fetch_paretobandit(5), "The 'n_models' parameter of fetch_paretobandit must be"),
        (lambda: fetch_cascades("mmlu"), "The 'name' parameter of fetch_cascades must be"),
        (lambda: fetch_frugalml("RAFDB"), "The 'name' parameter of fetch_frugalml must be a str"),
        (lambda: fetch_frugalmct("FERPLUS"), "The 'name' parameter of fetch_frugalmct must be"),
        (lambda: fetch_adult(data_home=3), "The 'data_home' parameter of fetch_adult must be"),
        (lambda: fetch_letter(as_frame=3), "The 'as_frame' parameter of fetch_letter must be"),
        (lambda: frugal_split(1, 0), "The 'n_samples' parameter of frugal_split must be"),
        (lambda: frugal_split(9, 0, 1.0), "The 'train_share' parameter of frugal_split must be"),
        (
            lambda: frugal_split(9, 0, 0.1),
            "train_share=0.1 of n_samples=9 leaves no row to train on; it must be at least 0.111",
        ),
        (
            lambda: make_routing_problem(accuracy=(0.5, 1.0)),
            r"accuracy must be a pair of numbers between 0 and 1 exclusive.* got \(0.5, 1.0\)",
        ),
        (lambda: make_routing_problem(accuracy=(0.5,)), r"accuracy must be a pair.* got \(0.5,\)"),
    ],
)
def test_messages(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("seed", [1, 5, 10, 50, 100])
@pytest.mark.parametrize("n, share", [(7, 0.5), (6358, 0.5), (1000, 0.01)])
def test_frugal_split_is_that_of_the_authors(seed, n, share):
    np.random.seed(seed)  # noqa: NPY002
    permutation = np.random.permutation(n)  # noqa: NPY002
    state = np.random.get_state()[1].copy()  # noqa: NPY002
    train, test = frugal_split(n, seed, share)
    assert_array_equal(train, permutation[: int(n * share)])
    assert_array_equal(test, permutation[int(n * share) :])
    assert_array_equal(np.random.get_state()[1], state)  # noqa: NPY002


class TestMakeRoutingProblem:
    def test_shapes_and_agreement(self):
        problem = make_routing_problem(
            50, 3, n_features=2, n_classes=4, n_regions=5, random_state=0
        )
        assert problem.data.shape == (50, 2)
        assert problem.success.shape == problem.quality.shape == problem.predictions.shape
        assert_array_equal(problem.quality, problem.predictions == problem.target[:, None])
        assert set(problem.predictions.ravel()) <= set(range(4))
        assert problem.region.max() < 5
        assert problem.model_names == ["model_0", "model_1", "model_2"]

    def test_costs(self):
        assert_allclose(
            make_routing_problem(2, 3, cost_ratio=100.0, random_state=0).costs, [0.01, 0.1, 1.0]
        )

    def test_same_seed_same_problem(self):
        a = make_routing_problem(20, random_state=3)
        b = make_routing_problem(20, random_state=3)
        c = make_routing_problem(20, random_state=4)
        for key in ("data", "quality", "predictions", "target"):
            assert_array_equal(a[key], b[key])
        assert not np.array_equal(a.data, c.data)

    def test_region_is_the_nearest_centre(self):
        problem = make_routing_problem(200, n_features=3, n_regions=6, random_state=1)
        state = np.random.RandomState(1)
        data, centers = state.uniform(size=(200, 3)), state.uniform(size=(6, 3))
        distance = np.linalg.norm(data[:, None] - centers, axis=2)
        assert_array_equal(problem.region, distance.argmin(axis=1))

    def test_no_specialization_leaves_the_base_accuracy(self):
        problem = make_routing_problem(
            10, 3, specialization=0.0, accuracy=(0.5, 0.7), random_state=0
        )
        assert_allclose(problem.success, [[0.5, 0.6, 0.7]] * 10)

    def test_success_is_the_rate_of_right_answers(self):
        problem = make_routing_problem(40_000, 3, n_regions=4, random_state=0)
        for region in range(4):
            rows = problem.region == region
            for j in range(3):
                test = binomtest(
                    int(problem.quality[rows, j].sum()), rows.sum(), problem.success[rows, j][0]
                )
                assert test.pvalue > 1e-4

    def test_wrong_answers_are_spread_over_the_other_classes(self):
        problem = make_routing_problem(30_000, 1, n_classes=4, random_state=0)
        wrong = problem.quality[:, 0] == 0
        shift = (problem.predictions[wrong, 0] - problem.target[wrong]) % 4
        share = np.bincount(shift, minlength=4) / wrong.sum()
        assert share[0] == 0
        assert_allclose(share[1:], 1 / 3, atol=0.02)
