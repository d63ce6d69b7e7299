"""The code of the user-guide page runs as it stands."""

import re
from pathlib import Path
from textwrap import dedent

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("skorch")

PAGE = Path(__file__).parents[2] / "doc" / "user_guide" / "neural_nets.rst"


@pytest.mark.filterwarnings("ignore:On validation rows:UserWarning")
def test_the_guide_runs():
    blocks = re.findall(r"\.\. code-block:: python\n\n((?:    .*\n|\n)+)", PAGE.read_text())
    assert len(blocks) == 5
    namespace = {"__name__": "guide"}
    for block in blocks:
        exec(compile(dedent(block), str(PAGE), "exec"), namespace)
    assert namespace["router"].choices_ == ["width 2", "width 16"]
    X, y = namespace["X"], namespace["y"]
    # The loader of batches is no other model, and faster by what it leaves out.
    fast = namespace["fast"]
    plain = namespace["net"](2).initialize()
    plain.module_.load_state_dict(fast.module_.state_dict())
    np.testing.assert_allclose(plain.predict_proba(X), fast.predict_proba(X), atol=1e-6)
    assert fast.score(X, y) > 0.3
    assert namespace["mixed"].predict_proba(X).dtype == np.float32
