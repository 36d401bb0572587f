"""Clients whose next call depends on the last answer."""

from collections.abc import Callable, Generator

import pytest

import jepsen_like
from jepsen_like import Answer, Call, Failure, Schedule, Step
from jepsen_like.chaos.service import Caller
from jepsen_like.simulation.campaign import Plan, run_campaign
from jepsen_like.simulation.service.drawn_schedule import drawn_schedule
from jepsen_like.simulation.service.service import service_of
from jepsen_like.simulation.service.service_campaign import shrunk
from tests.jepsen_like import leases
from tests.jepsen_like.leases import Editors, EditorsOfAnUnfencedFile, LeasedFile
from tests.jepsen_like.services import LONGEST_SEARCH_S

MODULE = leases.__name__


def turns(*clients: int) -> Schedule:
    steps = [Step(1.0 + 0.2 * at, "turn", client=client) for at, client in enumerate(clients)]
    return Schedule(seed=1, nodes=1, length_s=5.0, steps=steps)


def told(world: jepsen_like.World) -> list[tuple[int, str, object]]:
    """The calls of a run, with the number of their client and the result."""
    return [
        (each.client, each.call.function if each.call else "", each.result)
        for each in world.requests
    ]


def test_a_client_is_told_each_answer_before_its_next_call() -> None:
    world = jepsen_like.run_schedule(Editors, turns(0, 0, 3, 0, 3, 0))
    assert told(world) == [
        (0, "take", 1),
        (0, "write", "written"),
        (3, "take", 2),
        (0, "write", "expired"),
        (3, "write", "written"),
        (5, "take", 3),  # a new client in the place of the one that is done
    ]


def test_the_file_that_fences_passes_and_the_one_that_does_not_is_found() -> None:
    assert run_campaign(Plan(0, 3, service=f"{MODULE}:Editors"), jobs=1).broken is None
    plan = Plan(0, 3, service=f"{MODULE}:EditorsOfAnUnfencedFile")
    broken = run_campaign(plan, jobs=1).broken
    assert broken is not None
    assert "wrote after lease" in broken.how


@pytest.mark.long
def test_a_failure_of_adaptive_clients_is_shortened_to_their_turns() -> None:
    short = shrunk(f"{MODULE}:EditorsOfAnUnfencedFile", 0, None, None, budget_s=LONGEST_SEARCH_S)
    assert short is not None
    assert [step.do for step in short.schedule.steps] == ["turn"] * 4
    with pytest.raises(Failure, match="wrote after lease"):
        jepsen_like.run_schedule(EditorsOfAnUnfencedFile, short.schedule)


def test_equal_seeds_give_equal_calls() -> None:
    service = service_of(Editors)
    schedule = drawn_schedule(service, 3, fault_s=3.0)
    first, second = (jepsen_like.run_schedule(Editors, schedule) for _ in range(2))
    assert first.digest == second.digest
    assert len(first.requests) > 10


def test_a_call_without_a_known_outcome_goes_on_under_another_number() -> None:
    outcomes: list[str] = []

    class Patient(Editors):
        def client(self, caller: Caller) -> Generator[Call, Answer, None]:
            while True:
                answer = yield Call("take", "file")
                outcomes.append(answer.outcome.value)

    schedule = turns(0, 0, 0)
    kill = Step(1.0000001, "kill", "n0", for_s=0.05)
    steps = sorted([*schedule.steps, kill], key=lambda step: step.at_s)
    world = jepsen_like.run_schedule(Patient, schedule._replace(steps=steps, nodes=1))
    assert outcomes == ["info", "ok"]
    assert [each.client for each in world.requests] == [0, 5, 5]


def no_generator(self: object, caller: Caller) -> object:
    return Call("take", "file")


def no_calls(self: object, caller: Caller) -> Generator[str, Answer, None]:
    yield "take"


def too_much(self: object, caller: Caller) -> Generator[Call, Answer, None]:
    yield Call("take", "file", body=b"x" * 2000)


def raises(self: object, caller: Caller) -> Generator[Call, Answer, None]:
    raise RuntimeError("as planned")
    yield Call("take", "file")


@pytest.mark.parametrize(
    ("client", "words"),
    [
        (no_generator, "client() is a generator"),
        (no_calls, "client() yields calls: it yields 'take'"),
        (too_much, "one has 2000 bytes, more than 1024"),
        (raises, "client() never raises: RuntimeError: as planned (test_adaptive_clients.py:"),
    ],
)
def test_what_is_no_client_is_told(client: Callable[..., object], words: str) -> None:
    service = type("Wrong", (), {"machine": LeasedFile, "client": client})
    with pytest.raises(Failure) as caught:
        jepsen_like.run_schedule(service, turns(0))
    assert words in str(caught.value)
