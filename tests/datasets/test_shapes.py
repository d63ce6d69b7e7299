"""Made images of shapes, and what nets say of them."""

import numpy as np
import pytest

from skroute.datasets import _shapes, load_shape_nets, make_shape_images


def test_images_are_the_same_for_the_same_random_state():
    X, y = make_shape_images(40, random_state=3)
    again, classes = make_shape_images(40, random_state=3)
    np.testing.assert_array_equal(again, X)
    np.testing.assert_array_equal(classes, y)
    assert not np.array_equal(make_shape_images(40, random_state=4)[0], X)


def test_images_are_bytes_of_ten_classes():
    X, y = make_shape_images(300, random_state=0)
    assert (X.shape, X.dtype) == ((300, 32, 32, 3), np.uint8)
    assert y.dtype == np.int64
    assert set(y) == set(range(10))
    # No image is blank, and the bytes are used from end to end.
    assert X.reshape(300, -1).std(axis=1).min() > 1
    assert X.min() < 5 and X.max() > 250


def test_nets_answer_every_image_and_costs_rise():
    nets = load_shape_nets()
    n = len(nets.model_names)
    assert nets.probabilities.shape == (8000, n, 10)
    np.testing.assert_allclose(nets.probabilities.sum(axis=2), 1)
    assert (np.diff(nets.costs) > 0).all()
    assert nets.quality.shape == (8000, n)
    answers = nets.probabilities.argmax(axis=2)
    np.testing.assert_array_equal(nets.quality, answers == nets.target[:, None])
    # Chance is .1: the rows of answers and of classes belong together.
    assert nets.quality.mean(axis=0).min() > 0.7
    assert len(nets.target_names) == 10
    assert "H100" in nets.DESCR


@pytest.mark.parametrize("what", ["cut", "other", "absent"])
def test_a_damaged_file_is_refused(tmp_path, monkeypatch, what):
    path = tmp_path / "shape_nets.npz"
    content = _shapes._NETS.read_bytes()
    if what == "cut":
        path.write_bytes(content[:-1000])
    elif what == "other":
        with np.load(_shapes._NETS) as arrays:
            changed = dict(arrays)
        changed["target"][0] += 1
        np.savez_compressed(path, **changed)
    monkeypatch.setattr(_shapes, "_NETS", path)
    with pytest.raises(OSError, match="is not what skroute came with"):
        load_shape_nets()
