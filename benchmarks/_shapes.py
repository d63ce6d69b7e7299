"""Small colour images of shapes, some of them hard to tell."""

from pathlib import Path

import numpy as np
from sklearn.utils import Bunch

SHAPES = [
    *("disc", "ring", "square", "triangle", "pentagon"),
    *("star", "cross", "crescent", "half disc", "heart"),
]
_SIDE = 32
# Images that are drawn at once: bounds the memory.
_CHUNK = 2000


def _polygon(r, angle, n):
    """Distance to a regular polygon in the unit circle, up to a factor outside of it."""
    sector = 2 * np.pi / n
    return r * np.cos(np.mod(angle, sector) - sector / 2) - np.cos(sector / 2)


def _distance(shape, u, v):
    """Signed distance to a shape in the unit circle, negative inside."""
    r, angle = np.hypot(u, v), np.arctan2(v, u)
    if shape == "disc":
        return r - 0.9
    if shape == "ring":
        return np.abs(r - 0.72) - 0.24
    if shape in ("square", "triangle", "pentagon"):
        return _polygon(r, angle, {"triangle": 3, "square": 4, "pentagon": 5}[shape])
    if shape == "star":
        # Between the tips and the notches the outline is nearly straight.
        fifth = np.abs(np.mod(angle, 0.4 * np.pi) - 0.2 * np.pi) / (0.2 * np.pi)
        return r - (0.42 + 0.58 * fifth**1.6)
    if shape == "cross":
        arms = [np.maximum(np.abs(a) - 0.3, np.abs(b) - 0.95) for a, b in ((u, v), (v, u))]
        return np.minimum(*arms)
    if shape == "crescent":
        return np.maximum(r - 0.95, 0.8 - np.hypot(u - 0.42, v))
    if shape == "half disc":
        return np.maximum(np.hypot(u, v + 0.35) - 0.95, -(v + 0.35))
    # The heart: a disc whose rows are bent upwards away from the middle.
    return np.hypot(u, v + 0.18 - 0.62 * np.sqrt(np.abs(u))) - 0.72


def _cover(kinds, centre, radius, turn):
    """Share of each pixel that a shape covers: (n, side, side)."""
    grid = np.arange(_SIDE, dtype=np.float32) + np.float32(0.5)
    x = grid[None, None, :] - centre[:, 0, None, None]
    y = grid[None, :, None] - centre[:, 1, None, None]
    cos, sin = np.cos(turn)[:, None, None], np.sin(turn)[:, None, None]
    scale = radius[:, None, None]
    u, v = (cos * x + sin * y) / scale, (cos * y - sin * x) / scale
    u, v = u.astype(np.float32), v.astype(np.float32)
    covered = np.empty(u.shape, dtype=np.float32)
    for kind, name in enumerate(SHAPES):
        rows = kinds == kind
        outside = _distance(name, u[rows], v[rows]) * scale[rows]
        covered[rows] = np.clip(0.5 - outside, 0, 1)
    return covered


def _grating(rng, n, strength):
    """Stripes or, where two of them meet, checks: (n, side, side)."""
    grid = np.arange(_SIDE) / _SIDE
    angle = rng.uniform(0, np.pi, (n, 1, 1))
    pitch = rng.uniform(2, 9, (n, 1, 1))
    phase = rng.uniform(0, 2 * np.pi, (2, n, 1, 1))
    along = np.cos(angle) * grid[None, None, :] + np.sin(angle) * grid[None, :, None]
    across = np.cos(angle) * grid[None, :, None] - np.sin(angle) * grid[None, None, :]
    waves = np.sin(2 * np.pi * pitch * along + phase[0])
    checks = waves * np.sin(2 * np.pi * pitch * across + phase[1])
    return strength[:, None, None] * np.where(rng.random((n, 1, 1)) < 0.5, waves, checks)


def _draw(rng, y):
    """Images of the classes `y`, as numbers in [0, 1]: (n, side, side, 3)."""
    n = len(y)
    # How hard each image is in each way; most are easy in most.
    small, pale, busy, hidden, grainy = rng.beta(0.7, 2.1, (5, n))
    radius = 12.5 - 8 * small
    room = (_SIDE / 2 - radius)[:, None]
    centre = _SIDE / 2 + rng.uniform(-1, 1, (n, 2)) * np.maximum(room, 0)
    ground = rng.uniform(0.15, 0.85, (n, 3))
    towards = rng.standard_normal((n, 3))
    towards /= np.linalg.norm(towards, axis=1, keepdims=True)
    ink = ground + towards * (0.75 - 0.6 * pale)[:, None]
    images = np.empty((n, _SIDE, _SIDE, 3), dtype=np.float32)
    images[:] = ground[:, None, None, :]
    images += _grating(rng, n, 0.22 * busy)[..., None] * rng.uniform(0.3, 1, (n, 1, 1, 3))

    def paint(rows, covered, colour, texture=0.0):
        colours = colour[rows, None, None, :] + np.expand_dims(texture, -1)
        images[rows] += covered[..., None] * (colours - images[rows])

    def scrap(presence):
        rows = np.flatnonzero(rng.random(n) < presence)
        k = len(rows)
        at, size = rng.uniform(0, _SIDE, (k, 2)), rng.uniform(1.5, 4, k)
        kinds = rng.integers(len(SHAPES), size=k)
        colour = ground + rng.standard_normal((n, 3)) * 0.3
        paint(rows, _cover(kinds, at, size, rng.uniform(0, 2 * np.pi, k)), colour)

    every = np.arange(n)
    for _ in range(4):
        scrap(busy)
    shape = _cover(y, centre, radius, rng.uniform(0, 2 * np.pi, n))
    paint(every, shape, ink, _grating(rng, n, 0.15 * busy))
    for _ in range(3):
        scrap(hidden)
    # A bar of the ground's colour across the shape.
    turn = rng.uniform(0, np.pi, (n, 1, 1))
    grid = np.arange(_SIDE) + 0.5
    x, z = grid[None, None, :] - centre[:, :1, None], grid[None, :, None] - centre[:, 1:, None]
    shift = rng.uniform(-0.6, 0.6, (n, 1, 1)) * radius[:, None, None]
    away = np.abs(np.cos(turn) * x + np.sin(turn) * z - shift)
    paint(every, away < (0.28 * hidden * radius)[:, None, None], ground)
    noise = rng.standard_normal(images.shape, dtype=np.float32)
    images += noise * (0.02 + 0.2 * grainy.astype(np.float32))[:, None, None, None]
    return np.clip(images, 0, 1)


def make_shape_images(n_samples, seed):
    """Images (n_samples, 32, 32, 3) of uint8, and which of `SHAPES` each shows.

    Five numbers from a Beta(0.7, 2.1) say how hard an image is: how small the shape is, how little
    it differs from the ground, how busy the ground is, how much is hidden, how grainy it is.
    """
    rng = np.random.RandomState(seed)
    rng = np.random.default_rng(rng.randint(2**31 - 1))
    y = rng.integers(len(SHAPES), size=n_samples)
    X = np.empty((n_samples, _SIDE, _SIDE, 3), dtype=np.uint8)
    for start in range(0, n_samples, _CHUNK):
        rows = slice(start, start + _CHUNK)
        X[rows] = np.round(255 * _draw(rng, y[rows]))
    return X, y


def load_shape_nets():
    """What the nets of ``train_shape_nets.py`` say of ``make_shape_images(8000, 2)``.

    A Bunch with `probabilities` (8000, n_nets, 10), `target`, `quality` (8000, n_nets), `costs`
    (millions of multiplications of an image) and `model_names`, from the cheapest net on.
    """
    with np.load(Path(__file__).with_name("shape_nets.npz")) as file:
        arrays = dict(file)
    steps, target = arrays["proba"].astype(np.float64), arrays["target"].astype(np.int64)
    return Bunch(
        probabilities=steps / steps.sum(axis=2, keepdims=True),
        target=target,
        quality=(steps.argmax(axis=2) == target[:, None]).astype(np.uint8),
        costs=arrays["cost"] / 1e6,
        model_names=arrays["model_names"].tolist(),
    )
