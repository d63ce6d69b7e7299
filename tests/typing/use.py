"""A user's code, which mypy checks against skroute's annotations in `make lint`."""

from pathlib import Path

import numpy as np
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import Ridge

import skroute
from skroute.early_exit import QWYCEnsemble
from skroute.ledgers import Books, SQLiteLedger
from skroute.metrics import decision_report
from skroute.routing import BudgetRouter, BudgetStream


def use() -> None:
    version: str = skroute.__version__
    X, quality = np.zeros((10, 2)), np.ones((10, 2))
    router: BudgetRouter = BudgetRouter(Ridge(), costs=[1, 5], budget=2).fit(X, quality)
    route: np.ndarray = router.route(X)
    costs: np.ndarray = router.predict_cost(X, budget=3)
    stream: BudgetStream = router.stream(
        budget_total=20, ledger=SQLiteLedger("books.db")
    )
    ticket = stream.route(X[:1])
    name: str = ticket.name
    stream.commit(ticket, cost=1.5)
    books: Books = stream.books()
    left: float = books.total - books.spent
    page: Path = decision_report(router, X, quality, path="report.html")
    model: QWYCEnsemble = QWYCEnsemble(RandomForestClassifier()).fit(X, quality[:, 0])
    y_pred: np.ndarray = model.predict(X)
    accuracy: float = router.score(X, quality, budget=3)
    router.route(X, budget="all")  # type: ignore[arg-type]
