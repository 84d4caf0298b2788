"""Several servers of one model in virtual time: who is asked what, and what happens while one of them is down."""

from __future__ import annotations

from collections import Counter
from typing import Any
from zlib import crc32

import pytest

from llmfair.asking.journal import Journal, read_rows
from llmfair.asking.lanes import order
from llmfair.asking.limits import Limits, Progress
from llmfair.backends.base import Transient
from llmfair.errors import BackendError, Incomplete, MissingKey, Rejected
from llmfair.nouns import Failure
from tests.asking.scripted import Answer, Scripted, chain, run, singles
from tests.virtual import Clock

NAMES = ("a", "b", "c")


class One(Scripted):
    """A server that is down from some time until another; `listed` raises what a look at it ends in."""

    def __init__(self, clock: Clock, answer: Answer = lambda text, attempt: text.upper()) -> None:
        super().__init__(answer, latency=0.05)
        self.clock, self.down, self.looks = clock, (0.0, 0.0), 0
        self.capabilities = frozenset({"adaptive"})
        self.listed: Exception | None = None

    @property
    def is_down(self) -> bool:
        return self.down[0] <= self.clock.now < self.down[1]

    async def look(self) -> None:
        self.looks += 1
        if self.is_down:
            raise Transient("connection refused")
        if self.listed is not None:
            raise self.listed

    async def complete(self, request: Any) -> Any:
        if self.is_down:
            raise Transient("connection refused")
        completion = await super().complete(request)
        if self.is_down:
            raise Transient("connection lost")
        return completion


class Several(Scripted):
    """Servers as one backend, which itself is never asked."""

    def __init__(self, clock: Clock, *answers: Answer) -> None:
        super().__init__(lambda text, attempt: AssertionError("the members are asked"))
        made = [One(clock, answer) for answer in answers] or [One(clock) for _ in NAMES]
        self.members = dict(zip(NAMES, made, strict=False))

    @property
    def all_asked(self) -> Counter[str]:
        return sum((one.asked for one in self.members.values()), Counter())


def well(text: str, attempt: int) -> str:
    return text.upper()


def refuses(error: Exception, after: int = 0) -> Answer:
    """A server that answers so many questions, and then refuses all."""
    answered = Counter[str]()

    def answer(text: str, attempt: int) -> Any:
        answered[text] += 1
        return error if answered.total() > after else well(text, attempt)

    return answer


@pytest.fixture
def fleet(clock: Clock) -> Several:
    return Several(clock)


def home(probe: str) -> str:
    return NAMES[crc32(probe.encode()) % 3]


def servers_of(journal: Journal) -> dict[str, set[str]]:
    """The servers that answered each probe."""
    found: dict[str, set[str]] = {}
    for row in read_rows(journal.path):
        found.setdefault(row["probe"], set()).add(row["server"])
    return found


def test_a_query_has_its_order_of_servers_and_those_of_one_are_dealt_to_all_others() -> None:
    orders = Counter(tuple(order(f"q{number}", 3)) for number in range(6000))
    assert len(orders) == 6 and all(set(one) == {0, 1, 2} for one in orders)
    assert min(orders.values()) > 900, "alike"
    assert all(next(order(f"ü{number}", 3)) == crc32(f"ü{number}".encode()) % 3 for number in range(50))
    assert list(order("\ud800", 1)) == [0]


def test_every_question_of_a_query_goes_to_its_server(fleet: Several, journal: Journal) -> None:
    assert len(run([chain(f"q{number}", 4) for number in range(30)], fleet, journal)) == 30
    assert servers_of(journal) == {f"q{number}": {home(f"q{number}")} for number in range(30)}
    assert journal.servers == {name: one.asked.total() for name, one in fleet.members.items()}
    assert all(one.looks == 1 for one in fleet.members.values())


def test_each_server_has_limits_of_its_own_and_the_budget_is_of_all(
    fleet: Several, journal: Journal, clock: Clock
) -> None:
    run(singles(60), fleet, journal, Limits(workers=2))
    assert [one.peak for one in fleet.members.values()] == [2, 2, 2]
    began = clock.now
    with pytest.raises(Incomplete, match="budget of 40 calls"):
        run([chain(f"r{number}", 1) for number in range(200)], fleet, journal, Limits(rpm=60, max_calls=40))
    assert fleet.all_asked.total() == 100
    assert 10 < clock.now - began < 20, "60 a minute at each of three servers"


def test_a_server_that_is_down_is_left_and_retried(fleet: Several, journal: Journal, clock: Clock) -> None:
    """Chains of 80 answers, 4 s; one server is down from the first second to the second."""
    fleet.members["b"].down = (clock.now + 1, clock.now + 2)
    told, began = list[str](), clock.now
    progress = Progress(tell=told.append)
    chains = [chain(f"q{number}", 80) for number in range(30)]
    found = run(chains, fleet, journal, progress=progress)
    assert {name: result for name, result in found.items() if isinstance(result, Failure)} == {}
    assert len(journal) == 2400 and fleet.all_asked.total() - 2400 < 16, "asked again: those in flight"
    assert told[0] == "b is down (connection lost): until it is back, its questions go to the others."
    assert told[1:] == ["b is back."]
    assert clock.now - began < 4.3, "nobody has waited for it"
    servers = servers_of(journal)
    moved = {name: others for name, others in servers.items() if others != {home(name)}}
    assert moved and all(home(name) == "b" and "b" in others for name, others in moved.items())
    assert {len(others) for others in moved.values()} == {2}, "b's, and the query's next server"
    assert {name for others in moved.values() for name in others} == {*NAMES}
    last = {row["probe"]: row["server"] for row in read_rows(journal.path)}
    assert all(last[name] == home(name) for name in servers), "all are back where they were"


def test_who_waits_for_a_place_at_a_server_that_goes_down_goes_elsewhere(
    fleet: Several, journal: Journal, clock: Clock
) -> None:
    fleet.members["a"].down = (clock.now + 0.2, clock.now + 1000)
    began = clock.now
    assert len(run(singles(300), fleet, journal, Limits(workers=4, rpm=6000))) == 300
    assert clock.now - began < 5 and fleet.members["a"].asked.total() < 40


def test_all_down_is_an_outage_which_is_waited_out(fleet: Several, journal: Journal, clock: Clock) -> None:
    for seconds, one in zip((3, 20, 30), fleet.members.values(), strict=True):
        one.down = (clock.now + 1, clock.now + 1 + seconds)
    found = run([chain(f"q{number}", 60) for number in range(12)], fleet, journal, Limits(outage=10))
    assert not [result for result in found.values() if isinstance(result, Failure)]
    assert len(journal) == 720


def test_a_server_without_the_model_ends_the_run_before_it_asks(fleet: Several, journal: Journal) -> None:
    fleet.members["c"].listed = BackendError("c does not list the model m: it lists other.")
    with pytest.raises(BackendError, match="c does not list the model m"):
        run(singles(30), fleet, journal)
    assert not fleet.all_asked


def test_a_server_that_lists_its_model_and_fails_costs_no_answer(journal: Journal, clock: Clock) -> None:
    """An engine that is dead behind a server that is up: it is tried less and less often."""
    fleet = Several(clock, well, refuses(Transient("b answers 500")), well)
    found = run([chain(f"q{number}", 300) for number in range(8)], fleet, journal)
    assert not [result for result in found.values() if isinstance(result, Failure)]
    assert journal.servers.keys() == {"a", "c"} and len(journal) == 2400
    assert fleet.members["b"].looks < 8 and fleet.members["b"].asked.total() < 100


@pytest.mark.parametrize("error", [BackendError("b answers 404."), MissingKey("b refuses the key.")])
@pytest.mark.parametrize("lists", [True, False])
def test_a_server_that_refuses_all_from_some_time_on_is_left(
    error: BackendError, lists: bool, journal: Journal, clock: Clock
) -> None:
    fleet, told = Several(clock, well, refuses(error, after=5), well), list[str]()

    def tell(text: str) -> None:
        told.append(text)
        fleet.members["b"].listed = None if lists else error

    chains = [chain(f"q{number}", 300) for number in range(8)]
    found = run(chains, fleet, journal, progress=Progress(tell=tell))
    assert not [result for result in found.values() if isinstance(result, Failure)]
    said = error.message.rstrip(".")
    assert told[0] == f"b cannot be asked ({said}): until it is back, its questions go to the others."
    assert told[1] == ("b is back." if lists else f"b is back, but cannot be asked: {said}.")
    assert len(journal) == 2400 and journal.servers["b"] == 5
    assert fleet.members["b"].asked.total() < 50 and fleet.members["b"].looks < 8


@pytest.mark.parametrize("latency", [0.05, 3.0], ids=["soon", "later than they are looked at"])
@pytest.mark.parametrize("after", [0, 5])
def test_servers_that_all_refuse_end_it(after: int, latency: float, journal: Journal, clock: Clock) -> None:
    fleet = Several(clock, *(refuses(BackendError(f"{name} has no credit."), after) for name in NAMES))
    for one in fleet.members.values():
        one.latency = latency
    with pytest.raises(Incomplete if after else BackendError, match=r"^[abc] has no credit\.$"):
        run(singles(60), fleet, journal, Limits(workers=2))
    assert fleet.all_asked.total() <= 3 * after + 12 and len(journal) == 3 * after


def test_a_refused_question_fails_alone_and_is_asked_nowhere_else(journal: Journal, clock: Clock) -> None:
    strange: Answer = lambda text, attempt: Rejected("400.") if text == "t7" else well(text, attempt)  # noqa: E731
    fleet, told = Several(clock, strange, strange, strange), list[str]()
    found = run(singles(30), fleet, journal, progress=Progress(tell=told.append))
    assert [name for name, result in found.items() if isinstance(result, Failure)] == ["p7"]
    assert fleet.all_asked.total() == 30 and told == []


def test_a_server_that_says_how_long_it_is_away_is_left_at_once(
    fleet: Several, journal: Journal, clock: Clock
) -> None:
    """For longer than --max-wait, too: the others are there."""
    one = fleet.members["b"]

    def away(text: str, attempt: int) -> Exception:
        one.listed = Transient("b answers 503", 1e9)  # also when it is looked at
        return one.listed

    one.answer = away
    told, began = list[str](), clock.now
    chains = [chain(f"q{number}", 4) for number in range(30)]
    found = run(chains, fleet, journal, Limits(workers=1), progress=Progress(tell=told.append))
    assert not [result for result in found.values() if isinstance(result, Failure)]
    assert told == ["b is down (b answers 503): until it is back, its questions go to the others."]
    assert one.asked.total() == 1 and clock.now - began < 5


def test_a_server_that_fails_now_and_then_is_not_left(journal: Journal, clock: Clock) -> None:
    flaky: Answer = lambda text, attempt: (  # noqa: E731
        Transient("500") if crc32(text.encode()) % 40 == 0 and attempt == 1 else text.upper()
    )
    fleet, told = Several(clock, flaky, flaky, flaky), list[str]()
    run([chain(f"q{n}", 40) for n in range(60)], fleet, journal, progress=Progress(tell=told.append))
    assert told == [] and len(journal) == 2400 and fleet.all_asked.total() > 2420
