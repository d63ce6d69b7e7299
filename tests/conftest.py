"""Fixtures shared by all tests."""

import os
from pathlib import Path

import pytest

_BESIDE_THE_REPO = Path(__file__).resolve().parents[2] / "shared" / "data"
if "SKROUTE_DATA" not in os.environ and _BESIDE_THE_REPO.is_dir():
    os.environ["SKROUTE_DATA"] = str(_BESIDE_THE_REPO)


@pytest.fixture
def data_home():
    """The folder with the real data; a test that asks for it skips where it is absent."""
    home = os.environ.get("SKROUTE_DATA")
    if not home or not Path(home).is_dir():
        pytest.skip("real data is absent: set SKROUTE_DATA to the folder that holds it")
    return Path(home)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Variants of one of scikit-learn's checks run with the slow tests."""
    for item in items:
        if (
            "(readonly_memmap=True" in item.name
            or "check_estimator_sparse_matrix" in item.name
        ):
            item.add_marker("slow")
