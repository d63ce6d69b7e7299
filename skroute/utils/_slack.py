"""Budgets above all that there is to buy."""

import warnings
from contextlib import contextmanager


@contextmanager
def quiet_about_slack():
    """Leave out the warning that a budget binds nowhere, of budgets that nobody has set.

    A range of budgets that is tried may end above what there is to buy.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "budget=.* binds nowhere", UserWarning)
        yield
