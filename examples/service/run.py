"""``python run.py FOLDER`` serves; ``python run.py --demo`` makes a folder and a stub provider."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
# Prices of a token that is read, and of one that is written.
PRICES = {"small": (0.05, 0.2), "large": (2.5, 10.0)}


def write_demo(folder, url):
    """A router that is fitted on a made-up log, and settings with the stub provider at `url`."""
    import joblib
    import numpy as np
    from router_service import features
    from sklearn.linear_model import Ridge

    from skroute.routing import BudgetRouter

    texts = ["why " * (i % 8) + "name a river" for i in range(200)]
    X = np.array([features([{"role": "user", "content": text}]) for text in texts])
    Q = np.column_stack([1 - X[:, 3] / 10, np.full(len(X), 0.9)])
    costs = {
        name: 10 * read + 110 * written for name, (read, written) in PRICES.items()
    }
    joblib.dump(
        BudgetRouter(Ridge(), costs=costs, budget=500).fit(X, Q),
        folder / "router.joblib",
    )
    providers = {
        name: {
            "url": url,
            "model": f"stub-{name}",
            "input_price": read,
            "output_price": written,
        }
        for name, (read, written) in PRICES.items()
    }
    settings = {"total": 1e6, "providers": providers}
    (folder / "service.json").write_text(json.dumps(settings), encoding="utf-8")


def serve(folder, port=8000, n_workers=2):
    """Serve until a signal ends it."""
    # prometheus_client keeps the counts of each worker in a file, and reads this when imported.
    counts = Path(folder) / "metrics"
    shutil.rmtree(counts, ignore_errors=True)
    counts.mkdir()
    os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(counts)
    os.environ["SKROUTE_SERVICE"] = str(folder)
    import uvicorn

    # uvicorn replaces a worker that dies.
    uvicorn.run(
        "router_service:app_of_folder",
        factory=True,
        port=port,
        workers=n_workers,
        log_level="warning",
        app_dir=str(HERE),
        timeout_worker_healthcheck=60,
    )


def demo():
    stub = subprocess.Popen([sys.executable, HERE / "stub_provider.py", "8001"])
    try:
        with tempfile.TemporaryDirectory() as folder:
            write_demo(Path(folder), "http://127.0.0.1:8001/v1")
            body = '{"messages": [{"role": "user", "content": "Name a river."}]}'
            print(f"curl http://127.0.0.1:8000/v1/chat/completions -d '{body}'")
            serve(folder)
    finally:
        stub.terminate()


if __name__ == "__main__":
    if sys.argv[1:] == ["--demo"]:
        demo()
    else:
        serve(sys.argv[1], *map(int, sys.argv[2:]))
