import copy
import multiprocessing
import os
import pickle
import re
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression, Ridge

from skroute.assignment import assignment_path, choose_at_price
from skroute.ledgers import BudgetExhaustedError
from skroute.routing import BudgetRouter, BudgetStream

COSTS = [1.0, 2.0, 5.0]


def fitted(n=2000, estimator=None, **params):
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(n, 2))
    Q = np.column_stack([1 - X[:, 0], 0.5 + 0.3 * X[:, 1], np.full(n, 0.8)])
    Q += 0.05 * rng.standard_normal(Q.shape)
    costs = {} if params.pop("per_row", False) else {"costs": COSTS}
    fit = {} if costs else {"costs": np.array(COSTS) * rng.uniform(0.5, 1.5, (n, 1))}
    estimator = Ridge(alpha=1e-3) if estimator is None else estimator
    return BudgetRouter(estimator, cv=2, **costs, **params).fit(X, Q, **fit)


@pytest.fixture(scope="module")
def router():
    return fitted(budget=2.5)


def rows(n, seed=1):
    return np.random.default_rng(seed).uniform(size=(n, 2))


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_algorithm_1_against_a_plain_reading(router, data):
    """Every decision against the guard and the argmax written out, ledger included."""
    n_expected = data.draw(st.one_of(st.none(), st.integers(1, 12)))
    total = data.draw(st.floats(1.0, 40.0)) + (n_expected or 0)
    stream = router.stream(total, n_expected)
    # Multiples of 1/4 are exact, so that ties and full purses occur.
    quarter = st.integers(0, 8).map(lambda k: k / 4)
    spent = 0.0
    reserved: dict = {}
    arrived = 0
    for _ in range(data.draw(st.integers(1, 25))):
        action = data.draw(st.sampled_from(["route", "route", "commit", "refund"]))
        if action == "route":
            quality = np.array([data.draw(quarter) for _ in COSTS])
            room = total * (1 + 1e-12) - spent - sum(reserved.values())
            if room < 1.0:
                with pytest.raises(
                    BudgetExhaustedError, match="Not even the cheapest choice"
                ):
                    stream.reserve(quality)
                continue
            arrived += 1
            if n_expected is None:
                price = router.price_
            else:
                left = n_expected - arrived
                mean = (total - spent - sum(reserved.values())) / max(left + 1, 1)
                price = router._policy().rule(max(mean, 0)).price
                room -= max(left, 0) * 1.0
            fits = [0] + [i for i in (1, 2) if COSTS[i] <= room]
            expected = fits[
                choose_at_price(quality[None, fits], np.array(COSTS)[fits], price)[0]
            ]
            ticket = stream.reserve(quality)
            assert ticket.choice == expected and ticket.name == f"choice{expected}"
            assert ticket.cost == ticket.reserved == COSTS[expected]
            reserved[ticket] = COSTS[expected]
        elif reserved:
            ticket = data.draw(st.sampled_from(sorted(reserved)))
            amount = reserved.pop(ticket)
            if action == "commit":
                cost = data.draw(st.sampled_from([None, amount / 2, 0.0]))
                stream.commit(ticket, cost)
                spent += amount if cost is None else cost
            else:
                stream.refund(ticket)
        status = stream.status()
        assert status.spent == pytest.approx(spent)
        assert status.reserved == pytest.approx(sum(reserved.values()), abs=1e-9)
        assert status.n_open == len(reserved)
        assert status.spent + status.reserved <= total * (1 + 1e-11)


@pytest.mark.parametrize("mean", [1.0, 1.3, 2.0, 3.5])
def test_known_number_answers_all_and_spends_what_the_offline_optimum_does(mean):
    """The regret against the relaxation with all rows known is small (Theorem 4.2 and [2])."""
    router = fitted(budget=4.0)
    X = rows(1500)
    values = router.predict_quality(X)
    stream = router.stream(mean * len(X), len(X))
    choices = []
    for value in values:
        ticket = stream.reserve(value)
        stream.commit(ticket)
        choices.append(ticket.choice)
    spent = stream.status().spent
    assert spent <= mean * len(X) * (1 + 1e-12)
    offline = choose_at_price(values, COSTS, assignment_path(values, COSTS).price(mean))
    at = np.arange(len(X))
    assert values[at, choices].mean() > values[at, offline].mean() - 2e-3
    # Where the best of every row costs less than the mean, money is left.
    wanted = np.array(COSTS)[values.argmax(axis=1)].mean()
    assert spent >= 0.995 * min(mean, wanted) * len(X) - 5


def test_learned_costs_need_an_upper_bound():
    router = fitted(per_row=True, cost_estimator=LinearRegression(), budget=2.5)
    with pytest.raises(ValueError, match="max_costs must be given, got None"):
        router.stream(100.0)
    stream = router.stream(100.0, 20, max_costs=[2.0, 4.0, 9.0])
    ticket = stream.route(rows(1))
    assert ticket.reserved == [2.0, 4.0, 9.0][ticket.choice]
    assert ticket.cost == pytest.approx(COSTS[ticket.choice], rel=0.1)
    # An estimate above what a call can cost at most is not believed.
    low = router.stream(100.0, 20, max_costs=[0.1, 0.2, 0.3])
    with pytest.warns(UserWarning, match="which is taken instead"):
        ticket = low.route(rows(1))
    assert ticket.cost == ticket.reserved == [0.1, 0.2, 0.3][ticket.choice]
    with pytest.raises(ValueError, match="max_costs must have one number for each"):
        router.stream(100.0, max_costs=[1.0])


def test_a_cost_above_its_reservation_is_never_silent(router):
    stream = router.stream(10.0)
    first, second = stream.reserve([1, 0, 0]), stream.reserve([1, 0, 0])
    # Out of money that nobody has reserved.
    stream.commit(first, 6.0)
    assert stream.status().spent == 6.0
    with pytest.raises(
        BudgetExhaustedError, match="10 is broken by 2: the call of 'choice0'"
    ):
        stream.commit(second, 6.0)
    # It is recorded as what it is, and nothing more is handed out.
    assert stream.status().spent == 12.0 and stream.status().n_open == 0
    with pytest.raises(BudgetExhaustedError, match="12 is spent"):
        stream.reserve([1, 0, 0])


@pytest.mark.parametrize("n_expected", [None, 4_000])
def test_threads_never_exceed_the_cap_and_lose_nothing(router, n_expected):
    """16 threads, random costs below the reservation, failures, demand far above the cap."""
    n_requests, n_threads = 4_000, 16
    # Known or not, the requests want more than there is.
    cap = 6_000.0 if n_expected else 3_000.0
    stream = router.stream(cap, n_expected, max_costs=[1.5, 3.0, 7.5])
    values = router.predict_quality(rows(n_requests))
    paid = [[] for _ in range(n_threads)]
    counts = np.zeros((n_threads, 3), dtype=int)
    worst = np.zeros(n_threads)

    def serve(thread):
        rng = np.random.default_rng(thread)
        for value in values[thread::n_threads]:
            try:
                ticket = stream.reserve(value)
            except BudgetExhaustedError:
                counts[thread, 2] += 1
                continue
            if rng.random() < 0.1:
                stream.refund(ticket)
                counts[thread, 1] += 1
            else:
                cost = ticket.cost * rng.uniform(0.5, 1.5)
                stream.commit(ticket, cost)
                paid[thread].append(cost)
                counts[thread, 0] += 1
            status = stream.status()
            worst[thread] = max(worst[thread], status.spent + status.reserved)

    with ThreadPoolExecutor(n_threads) as pool:
        list(pool.map(serve, range(n_threads)))
    status = stream.status()
    assert worst.max() <= cap * (1 + 1e-11)
    assert status.spent == pytest.approx(sum(map(sum, paid)), rel=1e-9)
    assert counts.sum() == n_requests
    assert (status.n_committed, status.n_refunded, status.n_rejected) == tuple(
        counts.sum(axis=0)
    )
    assert status.n_open == 0 and abs(status.reserved) < 1e-6
    assert status.spent >= 0.95 * cap
    if n_expected:
        assert status.n_rejected == 0


def test_a_rejected_request_is_not_estimated(router):
    stream = pickle.loads(pickle.dumps(router)).stream(1.0)
    stream.commit(stream.route(rows(1)))

    def untouchable(X):
        raise AssertionError("estimated for nothing")

    stream.router.quality_estimator_.predict = untouchable
    with pytest.raises(
        BudgetExhaustedError, match=re.escape("it takes 1, and of 1 in all 1 is")
    ):
        stream.route(rows(1))
    assert stream.status().n_rejected == 1


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_all_expected_requests_are_answered_whatever_calls_cost(router, data):
    """Up to what is reserved for them, with any number of them open at once."""
    n = data.draw(st.integers(1, 12))
    quarter = st.integers(1, 12).map(lambda k: k / 4)
    max_costs = data.draw(
        st.none()
        | st.tuples(*[quarter.map(lambda extra, c=c: c + extra) for c in COSTS])
    )
    least = n * min(max_costs or COSTS)
    if max_costs is not None:
        with pytest.raises(ValueError, match="is below the cheapest feasible plan"):
            router.stream(least - 0.25, n, max_costs=max_costs)
    stream = router.stream(
        least + data.draw(st.integers(0, 20)), n, max_costs=max_costs
    )
    waiting = []
    for _ in range(n):
        ticket = stream.reserve([data.draw(st.integers(0, 3)) for _ in COSTS])
        waiting.append(ticket)
        while waiting and data.draw(st.booleans()):
            ticket = waiting.pop()
            stream.commit(
                ticket, data.draw(st.sampled_from([0.0, 0.5, 1.0])) * ticket.reserved
            )
    assert stream.status().n_rejected == 0
    assert (
        stream.status().spent + stream.status().reserved <= stream.status().budget_total
    )


def test_a_stream_keeps_the_policy_of_its_router():
    router = fitted(budget=2.5)
    stream, X = router.stream(1e6), rows(50)
    before = [stream.route(x[None]).choice for x in X]
    router.set_params(costs=[1, 1, 1], reg_lambda=9.0, budget=1.0)
    assert [stream.route(x[None]).choice for x in X] == before
    Q = np.random.default_rng(0).uniform(size=(60, 2))
    router.set_params(costs=[1, 2]).fit(rows(60), Q)
    assert [stream.route(x[None]).choice for x in X] == before
    assert router.stream(1e6).route(X[:1]).name in ("choice0", "choice1")


@pytest.mark.parametrize("kind", ["fixed", "per_row", "estimated"])
def test_route_and_reserve_agree_on_costs(kind):
    estimator = LinearRegression() if kind == "estimated" else None
    router = fitted(per_row=kind != "fixed", cost_estimator=estimator, budget=2.5)
    x = rows(1)
    quality = router.predict_quality(x)[0]
    stream = router.stream(100.0, 5, max_costs=[3.0, 4.0, 9.0])
    start = stream.status()
    told = [1.0, 2.5, 4.0]
    if kind == "fixed":
        for call in (stream.route, stream.reserve):
            with pytest.raises(ValueError, match="use set_costs"):
                call(x if call == stream.route else quality, costs=told)
    else:
        first, second = (
            stream.route(x, costs=[told]),
            stream.reserve(quality, costs=told),
        )
        assert first[2:] == second[2:] and first.cost == told[first.choice]
        stream.refund(first)
        stream.refund(second)
        # Above what a call can cost at most: refused before money moves, never clipped.
        for call in (stream.route, stream.reserve):
            with pytest.raises(
                ValueError, match="The cost of 'choice1' is 4.5, above its max_c"
            ):
                call(x if call == stream.route else quality, costs=[1.0, 4.5, 4.0])
    assert stream.status()._replace(n_refunded=0) == start
    if kind == "fixed":
        with pytest.raises(
            ValueError, match="The cost of 'choice2' is 5.0, above its max_costs"
        ):
            router.stream(100.0, max_costs=[3.0, 4.0, 4.5])


def test_bad_streams_and_requests(router):
    with pytest.raises(NotFittedError):
        BudgetRouter(costs=COSTS).stream(1.0)
    for args, message in [
        ((10.0, 0), "n_expected must be a positive int or None for unknown, got 0"),
        ((10.0, True), "n_expected must be a positive int"),
        (
            (10.0, 11),
            "budget_total=10.0 is below the cheapest .* feasible budget_total is 11",
        ),
        ((0.5,), "the smallest feasible budget_total is 1"),
    ]:
        with pytest.raises(ValueError, match=message):
            router.stream(*args)
    with pytest.raises(ValueError, match="the smallest feasible budget_total is 5"):
        fitted(60, routing_cost=0.25).stream(4.0, 4)
    stream = BudgetStream(router, 10.0)
    with pytest.raises(TypeError, match="BudgetRouter has no models to answer with"):
        stream.predict(rows(1))
    with pytest.raises(
        ValueError, match=re.escape("x must be one row, shape (1, n_features),")
    ):
        stream.route(rows(2))
    with pytest.raises(
        ValueError, match=re.escape("quality must have shape (3,), got (2,)")
    ):
        stream.reserve([0.1, 0.2])
    with pytest.raises(ValueError, match="quality must have no missing values"):
        stream.reserve([0.1, 0.2, np.nan])
    assert stream.status().n_open == 0 and stream.status().reserved == 0


# Copies and forks; what each call does to books stands in `tests/ledgers/test_books.py`.
FORKS = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


class Hooked(Ridge):
    """Does what a test wants while a request is being estimated."""

    during = None

    def predict(self, X):
        if Hooked.during is not None and len(X) == 1:
            Hooked.during()
        return super().predict(X)


HOOKED = fitted(200, Hooked(alpha=1e-3), budget=2.5, routing_cost=0.25)
ROW = np.array([[0.5, 0.5]])
COPIES = {
    "pickle": lambda stream: pickle.loads(pickle.dumps(stream)),
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
}


def exit_code(child, seconds=10):
    """Run a function in a forked child; None if it hangs."""
    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join(seconds)
    code = process.exitcode
    process.kill()
    process.join()
    return code


@pytest.mark.parametrize("n_expected", [None, 6])
@pytest.mark.parametrize("how", COPIES)
def test_a_copy_has_the_books_of_its_moment(how, n_expected, monkeypatch):
    """One that is made while a request is being decided knows nothing of the request."""
    stream, other = (HOOKED.stream(40.0, n_expected) for _ in range(2))
    alike, opened, settled = (
        other.route(ROW),
        stream.route(ROW),
        stream.reserve([0, 0, 4]),
    )
    stream.commit(settled, 1.0)
    before, copies = stream.books(), []
    monkeypatch.setattr(Hooked, "during", lambda: copies.append(COPIES[how](stream)))
    later = stream.route(ROW)
    monkeypatch.setattr(Hooked, "during", None)
    (copied,) = copies
    assert copied.books() == before and stream.books().n_open == 2
    own = copied.reserve(HOOKED.predict_quality(ROW)[0])
    # They look alike, and are of two streams.
    assert own[1:] == later[1:]
    for one, foreign in [
        (stream, own),
        (copied, later),
        (stream, alike),
        (copied, settled),
    ]:
        # As from a queue: equal, not the same object.
        for settle in (one.commit, one.refund):
            with pytest.raises(ValueError, match="is not open"):
                settle(pickle.loads(pickle.dumps(foreign)))
    # What was open is settled in each of them, once.
    for one in (stream, copied):
        one.commit(pickle.loads(pickle.dumps(opened)), 0.5)
        with pytest.raises(ValueError, match="is not open"):
            one.commit(opened, 0.5)
        assert (one.status().spent, one.status().n_open) == (1.0 + 0.5 + 2 * 0.25, 1)


@pytest.mark.parametrize("kind", [ConnectionError, KeyboardInterrupt])
def test_what_fails_while_deciding_leaves_the_books_as_they_were(kind, monkeypatch):
    stream = HOOKED.stream(40.0, 6)
    before = stream.books()

    def fail():
        assert stream.books().n_held == 1
        raise kind

    monkeypatch.setattr(Hooked, "during", fail)
    with pytest.raises(kind) as caught:
        stream.route(ROW)
    if kind is ConnectionError:
        assert "predict of 'quality_estimator' with 1 rows" in caught.value.__notes__[0]
    monkeypatch.setattr(Hooked, "predict", lambda self, X: np.full((len(X), 3), np.nan))
    with pytest.raises(
        ValueError, match="quality_estimator must estimate finite numbers"
    ):
        stream.route(ROW)
    assert stream.books() == before


@FORKS
def test_a_forked_child_has_a_purse_of_its_own():
    stream = HOOKED.stream(40.0, 6)
    ticket = stream.route(ROW)
    books = stream.books()

    def child():
        assert stream.books() == books
        stream.refund(ticket)
        # Its tickets are not the parent's next ones.
        assert stream.reserve([1, 1, 1]).stream != ticket.stream

    assert exit_code(child) == 0
    assert stream.books() == books


@pytest.mark.slow
@FORKS
def test_a_child_forked_while_threads_use_the_stream_does_not_hang():
    stream = HOOKED.stream(1e9)
    stop = threading.Event()

    def busy():
        while not stop.is_set():
            stream.commit(stream.reserve([1, 0, 0]))

    threads = [threading.Thread(target=busy) for _ in range(4)]
    for thread in threads:
        thread.start()

    def child():
        # The books are those of one moment: nothing is half written.
        status = stream.status()
        assert status.spent == 1.25 * status.n_committed
        assert status.reserved == 1.25 * status.n_open <= 1.25 * 4
        stream.commit(stream.reserve([1, 0, 0]))

    try:
        codes = [exit_code(child, seconds=5) for _ in range(20)]
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert codes == [0] * 20


@pytest.fixture
def restless_threads():
    """Threads that are switched as often as they can be."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def at_once(*calls):
    """Make calls in threads that start together, and raise what one of them raises."""
    start = threading.Barrier(len(calls))

    def call(function):
        start.wait()
        function()

    with ThreadPoolExecutor(len(calls)) as pool:
        list(pool.map(call, calls))


@pytest.mark.parametrize("seed", range(12))
def test_no_change_of_a_stream_is_lost_between_threads(restless_threads, seed):
    """Exclusions, inclusions and prices, each by its own thread, all hold afterwards."""
    rng = np.random.default_rng(seed)
    names = [f"m{k}" for k in range(8)]
    X = rng.uniform(size=(60, 1))
    quality = rng.random((60, 8)) + X
    costs = dict(zip(names, rng.uniform(1, 5, 8)))
    router = BudgetRouter(LinearRegression(), costs=costs, cv=2).fit(X, quality)
    stream = router.stream(1000.0, max_costs=dict.fromkeys(names, 50.0))
    out, back = names[:3], names[3:6]
    stream.exclude(back)
    new_costs = {name: float(cost) for name, cost in zip(names, rng.uniform(6, 9, 8))}
    at_once(
        *[lambda name=name: stream.exclude([name]) for name in out],
        *[lambda name=name: stream.include([name]) for name in back],
        lambda: stream.set_costs(new_costs),
    )
    served = set()
    for _ in range(8):
        ticket = stream.route(X[:1])
        served.add(ticket.name)
        assert ticket.cost == new_costs[ticket.name]
        if len(served) == 5:
            break
        stream.exclude([ticket.name])
    assert served == {*names} - {*out}


@pytest.mark.parametrize(
    "how", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))]
)
def test_a_copied_stream_can_be_changed_while_the_original_is(router, how):
    stream = router.stream(100.0)
    stream.exclude(["choice0"])
    other = how(stream)
    with stream._changing:
        other.include()
        other.exclude(["choice1"])
    assert stream._offers.excluded == {"choice0"}
    assert other._offers.excluded == {"choice1"}


def test_numbers_of_choices_are_read_by_name():
    rng = np.random.default_rng(0)
    names = ["small", "middle", "large"]
    X = rng.uniform(size=(200, 2))
    quality = np.column_stack([X[:, 0], np.full(200, 0.5), np.full(200, 0.9)])
    Q = pd.DataFrame(quality, columns=names)
    C = pd.DataFrame(rng.uniform(0.5, 1.5, (200, 3)) * [1, 2, 30], columns=names)
    router = BudgetRouter(Ridge(), budget=20).fit(X, Q, costs=C)
    costs = pd.DataFrame([[30.0, 2.0, 1.0]], columns=names[::-1])
    row = [[0.1, 0.1]]
    routed = router.predict_routed(row, costs=costs)
    series = costs.iloc[0]
    for numbers in (costs, series, series.to_dict(), [[1.0, 2.0, 30.0]]):
        ticket = router.stream(1000.0).route(row, costs=numbers)
        assert ticket.choice == routed.route[0]
        assert ticket.cost == ticket.reserved == routed.cost[0]
        # All choices have the quality 0 but the large one.
        best = {"large": 1.0, "small": 0.0, "middle": 0.0}
        stream = router.stream(1000.0)
        assert stream.reserve(best, costs=numbers).cost == 30
        assert stream.rank(pd.Series(best), costs=numbers)[0] == "large"
    with pytest.raises(ValueError, match="costs must have an entry for each of"):
        router.stream(1000.0).route(row, costs={"small": 1.0, "large": 2.0})
    with pytest.raises(ValueError, match="costs must have the columns"):
        router.stream(1000.0).route(row, costs=costs.rename(columns={"small": "s"}))


def test_a_price_list_next_to_other_bills_needs_an_upper_bound():
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(600, 1))
    Q = np.column_stack([1 - X[:, 0], np.full(600, 0.9)])
    bills = rng.gamma(4, 1 / 4, (600, 2)) * [1.3, 6.5]
    costs = {"small": 1, "large": 5}
    with pytest.warns(UserWarning, match="logged costs"):
        router = BudgetRouter(Ridge(), costs=costs, budget=4).fit(X, Q, costs=bills)
    with pytest.raises(ValueError, match="prices other than the bills of its log"):
        router.stream(4.0 * 600, n_expected=600)
    stream = router.stream(4.0 * 600, max_costs=[6, 30])
    rows = np.array([[0.99]])
    routed = router.predict_routed(rows)
    ticket = stream.route(rows)
    # The ticket has the expected bill, 1.3 times the price.
    assert ticket.cost == pytest.approx(routed.cost[0])
    assert ticket.cost == pytest.approx(6.5, rel=0.05)
    assert ticket.reserved == 30
    # If the list is what is billed, nothing more is needed.
    exact = BudgetRouter(Ridge(), costs=costs, budget=4).fit(X, Q)
    assert exact.stream(4.0 * 600).route(rows).cost == 5
