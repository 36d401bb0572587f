"""Users' state machines in the simulation: right ones pass, wrong ones are found and shrunk."""

import os
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

import jepsen_like
from dledger import OutcomeUnknown, Rejected
from jepsen_like import Failure, Schedule, Step, World
from jepsen_like.__main__ import main
from jepsen_like.chaos.workloads.catalogue import WORKLOADS
from jepsen_like.simulation.campaign import Plan, run_campaign
from jepsen_like.simulation.service.drawn_schedule import drawn_schedule
from tests.examples import examples
from tests.jepsen_like import services
from tests.jepsen_like.services import Register

ROOT = Path(__file__).parents[2]
SERVICES = "tests.jepsen_like.services"


def campaign_of(name: str, seeds: int) -> Plan:
    return Plan(first_seed=0, seeds=seeds, service=f"{SERVICES}:{name}")


def test_a_right_machine_passes_and_clients_reach_it() -> None:
    result = run_campaign(campaign_of("RIGHT", seeds=1), jobs=1)
    assert result.broken is None
    counts = result.coverage.counts()
    assert counts["appends done"] > counts["appends done or not"] > 0
    assert counts["reads done"] > 0
    for reached in ("kills", "power cuts", "snapshots restored at the start", "truncations"):
        assert counts[reached] > 0, reached


@pytest.mark.parametrize("seeds", [1, pytest.param(3, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", ["OBJECTS", "WITH_SESSIONS", "Shop"])
def test_machines_of_the_library_and_services_for_real_processes_pass(
    name: str, seeds: int
) -> None:
    result = run_campaign(campaign_of(name, seeds), jobs=1)
    assert result.broken is None
    assert result.coverage.counts()["appends done"] > 0


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(WORKLOADS))
def test_workloads_for_real_processes_pass(name: str) -> None:
    kind = WORKLOADS[name]
    service = f"{kind.__module__}:{kind.__qualname__}"
    assert run_campaign(Plan(0, 60, service=service), jobs=2).broken is None


@pytest.mark.long
def test_a_right_machine_passes_a_campaign() -> None:
    result = run_campaign(campaign_of("RIGHT", seeds=400), jobs=2)
    assert result.broken is None
    assert result.coverage.counts()["snapshots installed"] > 0


@pytest.mark.parametrize(
    ("name", "promise", "hint"),
    [
        ("TakesFromASet", "equal logs give equal states in every process", "other hashes"),
        ("ForgetsAField", "a snapshot has the whole state", "writes is 0, not"),
        ("StampsTheTime", "equal logs give equal states", "times"),
        ("StampsTheDay", "equal logs give equal states in every process", "date.today() at serv"),
        ("Draws", "equal logs give equal results", "one by one"),
        ("CountsRuns", "equal logs give equal results", "one by one"),
        ("SavesTooLate", "", "bodies"),
        ("Raises", "the state machine never raises", "UnicodeDecodeError"),
        ("LosesResults", "", "results for"),
        ("CannotBeSaved", "the state machine never raises", "not JSON serializable"),
        ("READS_ITS_OWN_STATE", "clients see what the model allows", "read"),
        ("ShopThatSellsTwice", "clients see what the model allows", "buy"),
        ("ShopOfThreeSeats", "the invariant of ShopOfThreeSeats holds", "4 seats are sold"),
        ("BOUNDED", "the invariant no_more_than_five_writes holds", "assert machine.writes <= 5"),
    ],
)
def test_a_wrong_machine_is_found_within_a_few_seeds(name: str, promise: str, hint: str) -> None:
    broken = run_campaign(campaign_of(name, seeds=5), jobs=1).broken
    assert broken is not None, f"{name} was not found"
    assert promise in broken.promise
    assert hint in broken.how


# --- the world in a test's hands ------------------------------------------------------------------


def test_a_group_survives_the_loss_of_its_leader() -> None:
    with jepsen_like.simulate(services.RIGHT, nodes=5, seed=7) as world:
        assert world.append(b"one").result == ""
        first = world.leader
        world.kill("leader")
        world.run_for(2.0)
        assert world.append(b"two").result == "one"
        assert world.leader is not first
        assert world.read() == "two"
        assert world.now > 2.0
    assert {machine.value for machine in machines(world)} == {"two"}
    assert all(member.is_up for member in world.members)


def machines(world: World) -> list[Register]:
    found = list(world.machines.values())
    assert all(isinstance(machine, Register) for machine in found)
    return found


def test_a_member_that_is_cut_off_misses_appends_until_all_is_healed() -> None:
    with jepsen_like.simulate(Register, seed=1) as world:
        world.append(b"one")
        world.run_for(1.0)
        away = next(member for member in world.members if not member.leads)
        world.partition(away)
        world.append(b"two")
        machine = world.machine(away)
        assert isinstance(machine, Register)
        assert machine.value == "one"
        world.heal()
        assert world.run_until(lambda: machine.value == "two")


def test_a_leader_without_a_quorum_acknowledges_nothing() -> None:
    with jepsen_like.simulate(Register, seed=2) as world:
        world.append(b"one")
        leader = world.leader
        assert leader is not None
        world.partition(leader)
        call = world.submit(b"two", leader)
        world.run_for(5.0)
        assert call.told in ("certainly not done", "done or not")
        with pytest.raises((Rejected, OutcomeUnknown)):
            assert call.result
        with pytest.raises((Rejected, OutcomeUnknown)):
            world.read(leader, within_s=1.0)


def test_a_frozen_member_stands_still_and_goes_on() -> None:
    with jepsen_like.simulate(Register, seed=3) as world:
        world.append(b"one")
        frozen = next(member for member in world.members if not member.leads)
        world.freeze(frozen)
        world.append(b"two")
        assert frozen.is_frozen
        before = frozen.applied
        world.run_for(1.0)
        assert frozen.applied == before
        world.thaw(frozen)
        assert world.run_until(lambda: frozen.applied > before)


def test_a_member_that_is_down_has_no_machine_and_comes_back_with_its_state() -> None:
    with jepsen_like.simulate(Register, nodes=1, seed=4) as world:
        world.append(b"one")
        world.close("n0")
        assert world.members[0].machine is None
        with pytest.raises(ValueError, match="down"):
            world.machine("n0")
        world.restart("n0")
        world.kill("n0", power=True)
        world.restart("n0")
        machine = world.read()
        assert isinstance(machine, Register)
        assert machine.value == "one"


def test_a_broken_promise_names_the_promise_and_ends_the_world() -> None:
    world = jepsen_like.simulate(services.BOUNDED).__enter__()
    for number in range(5):
        world.append(b"%d" % number)
    with pytest.raises(Failure) as caught:
        world.append(b"the sixth")
    assert caught.value.promise == "the invariant no_more_than_five_writes holds"
    with pytest.raises(Failure):
        world.append(b"more")


def test_faults_of_the_seed_come_by_themselves() -> None:
    with jepsen_like.simulate(services.RIGHT, seed=5, faults_s=5.0) as world:
        for number in range(20):
            world.submit(b"%d" % number)
            world.run_for(0.25)
    assert any(name.startswith("faults: ") for name in world.coverage.counts())


def test_the_fixture_makes_groups(simulated_group: Callable[..., World]) -> None:
    world = simulated_group(Register, nodes=3, seed=7)
    world.append(b"one")
    other = simulated_group(Register, nodes=1)
    other.append(b"two")
    assert {machine.writes for machine in machines(other)} == {1}


def test_the_fixture_checks_the_end(tmp_path: Path) -> None:
    test = tmp_path / "test_it.py"
    test.write_text(
        f"from {SERVICES} import ForgetsAField\n"
        "def test_it(simulated_group):\n"
        "    simulated_group(ForgetsAField).append(b'one')\n"
    )
    told = in_a_process("-m", "pytest", "-q", "-p", "no:cacheprovider", str(test))
    assert "a snapshot has the whole state" in told.stdout
    assert "1 passed, 1 error" in told.stdout


def in_a_process(
    *words: str, hash_seed: str = "random", folder: Path | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@settings(max_examples=examples(10), deadline=None)
@given(
    seed=st.integers(0, 2**32),
    doings=st.lists(st.sampled_from(["append", "kill", "restart", "cut", "heal", "wait"])),
)
def test_hypothesis_can_drive_a_group(seed: int, doings: list[str]) -> None:
    with jepsen_like.simulate(services.RIGHT, seed=seed, records=False) as world:
        for doing in doings:
            match doing:
                case "append":
                    world.submit(b"%d" % len(world.requests))
                case "kill":
                    world.kill("leader")
                case "restart":
                    for member in world.members:
                        world.restart(member)
                case "cut":
                    world.partition("n0")
                case "heal":
                    world.heal()
                case _:
                    world.run_for(0.5)


# --- equal runs -----------------------------------------------------------------------------------

PRINT_DIGEST = """
import jepsen_like
from jepsen_like.simulation.service.drawn_schedule import drawn_schedule
from tests.jepsen_like import services
print(jepsen_like.run_schedule(services.RIGHT, drawn_schedule(services.RIGHT, 11, 3, 4.0)).digest)
"""


@cache
def digest_of(seed: int) -> str:
    schedule = drawn_schedule(services.RIGHT, seed, 3, 4.0)
    return jepsen_like.run_schedule(services.RIGHT, schedule).digest


@pytest.mark.parametrize("hash_seed", ["0", pytest.param("12345", marks=pytest.mark.long)])
def test_a_seed_gives_the_same_run_in_another_process(hash_seed: str) -> None:
    told = in_a_process("-c", PRINT_DIGEST, hash_seed=hash_seed)
    assert told.stdout.strip() == digest_of(11)


def test_two_seeds_give_two_runs() -> None:
    assert digest_of(1) != digest_of(11)


def test_notes_change_nothing_in_a_run() -> None:
    counts = []
    for records in (True, False):
        with jepsen_like.simulate(Register, seed=9, faults_s=3.0, records=records) as world:
            for number in range(10):
                world.submit(b"%d" % number)
                world.run_for(0.4)
        counts.append(world.coverage.counts())
    assert counts[0] == counts[1]


def test_a_schedule_says_what_happens_and_when() -> None:
    schedule = Schedule(
        seed=3,
        nodes=3,
        length_s=2.0,
        steps=[
            Step(1.0, "append", body=b"one"),
            Step(1.2, "kill", "leader", for_s=0.3),
            Step(1.9, "append", "n1", body=b"two"),
        ],
    )
    world = jepsen_like.run_schedule(Register, schedule)
    assert [(call.began_s, call.body) for call in world.requests] == [(1.0, b"one"), (1.9, b"two")]
    assert world.coverage.counts()["kills"] == 1


def test_what_is_printed_by_a_machine_does_no_harm(tmp_path: Path) -> None:
    (tmp_path / "loud.py").write_text(
        "print('loaded')\n"
        "class Loud:\n"
        "    def apply(self, entries):\n"
        "        print('applied')\n"
        "        return [None] * len(entries)\n"
    )
    words = ["simulate", "--service", "loud:Loud", "--seeds", "2", "--jobs", "1", "--seconds", "2"]
    told = in_a_process("-m", "jepsen_like", *words, folder=tmp_path)
    assert told.returncode == 0, told.stderr
    assert "no promise was broken" in told.stdout


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("tests.jepsen_like.services:an_object", "is an object"),
        ("tests.jepsen_like.services:the_same_object", "is made once only"),
        ("tests.jepsen_like.services:NoSuch", "has no NoSuch"),
        ("tests.jepsen_like.no_such:Machine", "cannot import"),
        ("tests.jepsen_like.services", "name a module and what is in it"),
        ("tests.jepsen_like.services:RegisterModel", "has no method apply(entries)"),
    ],
)
def test_a_wrong_name_is_a_wrong_call(name: str, said: str) -> None:
    result = CliRunner().invoke(main, ["simulate", "--service", name])
    assert result.exit_code == 2
    assert said in result.output.replace("\n", " ")


def test_a_campaign_keeps_to_its_time() -> None:
    result = run_campaign(campaign_of("Register", 10_000)._replace(time_budget_s=0.5), jobs=1)
    assert 0 < result.seeds < 1_000
    assert result.real_s < 10
