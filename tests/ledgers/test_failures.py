"""Requests of a stream whose call fails or times out: the next choice, and the bill."""

import numpy as np
import pytest

from skroute.ledgers import BudgetExhaustedError
from tests.decision_checks import fitted as fitted_once
from tests.decision_checks import rows
from tests.estimators import ROUTERS
from tests.ledgers.test_streams import KINDS, ROUTER, ROW, VALUES, make_ledger
from tests.routing.test_stream import COSTS, fitted

# Estimates for which the choices are tried in the order 2, 1, 0 if money is no matter.
BEST_IS_DEAREST = [0.0, 4.0, 9.0]


@pytest.fixture(params=KINDS)
def ledger(request, tmp_path):
    return make_ledger(request.param, tmp_path)


def test_a_request_does_not_get_a_choice_that_it_excludes(ledger):
    stream = ROUTER.stream(1000.0, ledger=ledger)
    order = []
    for _ in COSTS:
        ticket = stream.reserve(BEST_IS_DEAREST, key="a", exclude=order)
        stream.refund(ticket)
        order.append(ticket.name)
    assert order == ["choice2", "choice1", "choice0"]
    assert order == stream.rank(BEST_IS_DEAREST)
    # Other requests are as before, and nothing stays reserved.
    assert stream.reserve(BEST_IS_DEAREST).name == "choice2"
    assert stream.status().reserved == COSTS[2]
    for call in (
        lambda: stream.reserve(BEST_IS_DEAREST, exclude=order),
        lambda: stream.route(ROW, exclude=order),
    ):
        with pytest.raises(ValueError, match="leaves no choice"):
            call()
    with pytest.raises(ValueError, match="There is no choice 'choice9'"):
        stream.route(ROW, exclude=["choice9"])
    with pytest.raises(ValueError, match="names must be a list of names"):
        stream.route(ROW, exclude="choice2")
    assert stream.books().n_held == 0 and stream.status().reserved == COSTS[2]


def test_a_request_without_a_choice_decides_as_if_its_quality_was_hopeless():
    """The trick of users before there was `exclude`: a quality of -9 for the failed one."""
    with_exclude = ROUTER.stream(700.0, 400)
    with_trick = ROUTER.stream(700.0, 400)
    for value in VALUES[:300]:
        hopeless = value.copy()
        hopeless[2] = -9.0
        ticket = with_exclude.reserve(value, exclude=["choice2"])
        reference = with_trick.reserve(hopeless)
        assert ticket[2:] == reference[2:]
        with_exclude.commit(ticket)
        with_trick.commit(reference)


def test_a_request_without_the_cheapest_choice_needs_the_next_amount(ledger):
    stream = ROUTER.stream(1.5, ledger=ledger)
    with pytest.raises(BudgetExhaustedError, match="it takes 2"):
        stream.route(ROW, exclude=["choice0"])
    assert stream.route(ROW).name == "choice0"


def test_route_and_reserve_exclude_alike():
    by_row = ROUTER.stream(1000.0, 400)
    by_quality = ROUTER.stream(1000.0, 400)
    X = np.random.default_rng(3).uniform(size=(40, 2))
    for x in X:
        quality = ROUTER.predict_quality([x])[0]
        for exclude in ([], ["choice0"], ["choice1", "choice2"]):
            ticket = by_row.route([x], exclude=exclude)
            assert ticket[2:] == by_quality.reserve(quality, exclude=exclude)[2:]
            assert ticket.name not in exclude


def test_what_deciding_asks_cannot_be_excluded_for_one_request():
    router = fitted_once(
        next(router for router in ROUTERS if router.embedding == "tree")
    )
    stream = router.stream(1000.0)
    with pytest.raises(ValueError, match="'tree' cannot be excluded: deciding asks it"):
        stream.route(rows()[0][:1], exclude=["tree"])
    assert stream.route(rows()[0][:1], exclude=["logreg"]).name == "tree"


@pytest.mark.parametrize("n_expected", [None, 300])
def test_the_first_of_the_ranks_is_the_choice_of_a_request(n_expected):
    stream = ROUTER.stream(1000.0, n_expected)
    for value in VALUES[:200]:
        ranks = stream.rank(value)
        assert sorted(ranks) == sorted(ROUTER.choices_)
        ticket = stream.reserve(value)
        assert ticket.name == ranks[0]
        assert stream.rank(value, exclude=ranks[1:]) == ranks[:1]
        stream.commit(ticket)


@pytest.mark.parametrize("by", ["refund", "await_bill", "deadline"])
def test_a_request_with_a_key_counts_once(by, ledger):
    now = [1e9]
    ledger.store.now = lambda: now[0]
    stream = ROUTER.stream(100.0, 20, ledger=ledger)
    keyless = stream.reserve(BEST_IS_DEAREST)
    for n_tries in range(1, 4):
        ticket = stream.reserve(BEST_IS_DEAREST, key="a")
        assert stream.books().n_started == 2
        assert len({ticket.id, keyless.id}) == 2
        if by == "refund":
            stream.refund(ticket)
        elif by == "await_bill":
            stream.await_bill(ticket)
            assert stream.books().n_open == n_tries + 1
        else:
            now[0] += ledger.timeout + 1
    # `route` holds an amount first, and counts the request once all the same.
    stream.commit(stream.route(ROW, key="a"))
    assert stream.books().n_started == 2 and stream.books().n_committed == 1
    stream.refund(stream.reserve(BEST_IS_DEAREST))
    assert stream.books().n_started == 3


def test_a_failed_request_is_forgotten_with_its_key(ledger):
    now = [1e9]
    ledger.remember = 5000.0
    ledger.store.now = lambda: now[0]
    stream = ROUTER.stream(100.0, 20, ledger=ledger, period="day")
    stream.refund(stream.reserve(BEST_IS_DEAREST, key="a"))
    now[0] += 4999.0
    stream.refund(stream.reserve(BEST_IS_DEAREST, key="a"))
    assert stream.books().n_started == 1
    now[0] += 5001.0
    stream.refund(stream.reserve(BEST_IS_DEAREST, key="a"))
    assert stream.books().n_started == 2
    # Another day counts from 0.
    now[0] += 86400.0
    stream.refund(stream.reserve(BEST_IS_DEAREST, key="a"))
    assert stream.books().n_started == 1


def test_the_money_of_a_call_is_reserved_until_its_bill_comes(ledger):
    now = [1e9]
    ledger.store.now = lambda: now[0]
    stream = ROUTER.stream(20.0, ledger=ledger, max_costs=[2.0, 4.0, 10.0])
    billed = stream.reserve(BEST_IS_DEAREST)
    not_billed = stream.reserve(BEST_IS_DEAREST)
    for ticket in (billed, not_billed):
        stream.await_bill(ticket)
    # The ledger's timeout has passed, and the maximal costs are still reserved.
    now[0] += 100 * ledger.timeout
    assert stream.status().reserved == 20.0
    assert stream.unsettled() == [billed, not_billed]
    with pytest.raises(BudgetExhaustedError):
        stream.reserve(BEST_IS_DEAREST)
    # The price counts the expected cost.
    assert stream.books().pending == 10.0
    stream.refund(not_billed)
    stream.commit(billed, 9.5)
    assert stream.status()[1:4] == (9.5, 0.0, 0)
    with pytest.raises(ValueError, match="is not open"):
        stream.await_bill(billed)


def test_a_call_without_a_bill_in_time_is_free_again(ledger):
    now = [1e9]
    ledger.store.now = lambda: now[0]
    stream = ROUTER.stream(5.0, ledger=ledger)
    ticket = stream.reserve(BEST_IS_DEAREST, key="a")
    with pytest.raises(ValueError, match="timeout must be a positive number"):
        stream.await_bill(ticket, timeout=-1)
    stream.await_bill(ticket, timeout=10 * ledger.timeout)
    now[0] += 9 * ledger.timeout
    assert stream.status().reserved == 5.0
    now[0] += ledger.timeout
    assert stream.status().reserved == 0.0 and stream.books().n_expired == 1
    # It is too late to wait for the bill: the money may be spent.
    with pytest.raises(ValueError, match="is not open"):
        stream.await_bill(ticket)
    stream.commit(stream.reserve(BEST_IS_DEAREST, key="a"))
    with pytest.raises(BudgetExhaustedError, match="after its deadline"):
        stream.commit(ticket, 1.0)
    assert stream.status().spent == 6.0


def test_calls_that_time_out_break_no_cap_and_cost_what_is_billed():
    """5 % of the calls time out, half of them are billed, at the end of 100 requests."""
    rng = np.random.default_rng(0)
    router = fitted(500, budget=2.5)
    stream = router.stream(1000.0, 500, max_costs=[1.5, 3.0, 7.5])
    bills = {}
    billed = 0.0
    for i in range(500):
        value = VALUES[i % len(VALUES)]
        ticket = stream.reserve(value, key=str(i))
        cost = ticket.cost * rng.uniform(0.5, 1.5)
        if rng.random() < 0.05:
            stream.await_bill(ticket)
            bills[ticket] = cost if rng.random() < 0.5 else None
            ticket = stream.reserve(value, key=str(i), exclude=[ticket.name])
            cost = ticket.cost
        stream.commit(ticket, cost)
        billed += cost
        status = stream.status()
        assert status.spent + status.reserved <= 1000.0 * (1 + 1e-12)
        if i % 100 == 99:
            for late, bill in bills.items():
                if bill is None:
                    stream.refund(late)
                else:
                    stream.commit(late, bill)
                    billed += bill
            bills = {}
    books = stream.books()
    assert books.n_started == 500 and books.n_rejected == 0
    assert books.n_refunded > 5
    assert books.spent == pytest.approx(billed, rel=1e-12)
    assert 0.95 * 1000 < books.spent <= 1000
