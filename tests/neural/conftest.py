"""Nets start from the same weights whichever tests ran before in the process."""

import pytest

torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def _weights_of_their_own():
    torch.manual_seed(1)
