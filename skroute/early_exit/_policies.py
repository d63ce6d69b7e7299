"""Policies: thresholds in the form that the walks take, and where rows leave under them."""

from functools import cache

import numpy as np

from skroute.early_exit._fan import fan_leaving, fan_table, fan_thresholds
from skroute.early_exit._thresholds import leaving

# Policies between "never leave early" and the most hurried, fixed before calibration.
N_POLICIES = 20
# Fan's bins: this many per standard deviation of the full score.
FAN_BINS = 20.0


def policy_leaving(values, policy):
    if policy["bins_per_unit"] == 0.0:
        return leaving(values, policy["lo"], policy["hi"])
    return fan_leaving(
        values,
        policy["lo"],
        policy["hi"],
        policy["start"],
        policy["first"],
        1.0 / policy["bins_per_unit"],
    )


def fan_policies(values, beta, use_hi):
    width = float(np.std(values[-1].astype(np.float64))) / FAN_BINS or 1.0
    start, first, mean, deviation = fan_table(values, width)
    policies = []
    for gamma in np.geomspace(8.0, 0.25, N_POLICIES):
        lo, hi = fan_thresholds(mean, deviation, beta, gamma)
        if not use_hi:
            hi = np.where(np.isnan(hi), np.nan, np.inf)
        policies.append(
            {"lo": lo, "hi": hi, "start": start, "first": first, "bins_per_unit": 1.0 / width}
        )
    return policies


@cache
def compiled_walk_one():
    from skroute.early_exit._kernels import walk_one

    return walk_one


def single_row_arguments(engine, policy):
    """What the single-row path needs, None where there is none."""
    forest = getattr(engine, "forest", None)
    if (
        forest is None
        or engine.n_outputs > 1
        or forest.values.shape[1] > 1
        or len(forest.roots) != forest.n_members
        or policy["bins_per_unit"] > 0
        or (forest.categories and forest.encode_arrays)
    ):
        return None
    return (
        (1, forest.n_features),
        np.dtype(forest.dtype),
        (
            forest.nodes,
            np.ascontiguousarray(forest.values[:, 0]),
            forest.roots,
            engine.special,
            forest.cat_words,
            forest.cat_start,
            float(forest.offset[0]),
            policy["lo"],
            policy["hi"],
        ),
        forest.beta,
        forest.finite is False,
    )
