"""A node behind plain calls: real loop, real files, many threads."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

import dledger
from dledger import blocking
from dledger.entry import Entry
from dledger.free_ports import free_ports
from dledger.machines import (
    AppendNotAwaitable,
    LockCalls,
    LockNotAcquired,
    Objects,
    ReplicatedCounter,
    ReplicatedLocks,
)
from tests.dledger.running_members import lone

# One election of a group of one, with room for a busy machine.
TIMEOUT_S = 30


class Sum:
    """Adds numbers up; stops its node when told to."""

    def __init__(self) -> None:
        self.value = 0

    def apply(self, entries: Sequence[Entry]) -> Sequence[object]:
        results: list[object] = []
        for entry in entries:
            if entry.body == b"break":
                raise RuntimeError("broken on purpose")
            self.value += int(entry.body)
            results.append(self.value)
        return results


@pytest.fixture
def sums() -> Sum:
    return Sum()


@pytest.fixture
def node(tmp_path: Path, sums: Sum) -> Iterator[blocking.BlockingNode]:
    with blocking.open_node(lone(tmp_path), dledger.WithSessions(sums)) as node:
        node.read(lambda: None, timeout_s=TIMEOUT_S)
        yield node


def test_an_append_returns_what_the_state_machine_made_of_it(
    node: blocking.BlockingNode, sums: Sum
) -> None:
    assert node.append(b"2").result == 2
    assert [each.result for each in node.append_many([b"3", b"4"])] == [5, 9]
    assert node.append_many([]) == []
    assert node.read(lambda: sums.value) == 9
    assert node.look(lambda: sums.value) == 9
    assert node.status().role == "leader"


def test_many_threads_append_at_once_and_each_gets_its_own_answer(
    node: blocking.BlockingNode,
) -> None:
    with ThreadPoolExecutor(8) as pool:
        waiting = [pool.submit(node.append_soon, b"1") for _ in range(400)]
        results = [each.result().result(TIMEOUT_S).result for each in as_completed(waiting)]
    assert sorted(map(int, map(str, results))) == list(range(1, 401))


def test_a_session_appends_once_and_two_of_them_do_not_disturb_each_other(
    node: blocking.BlockingNode, sums: Sum
) -> None:
    with node.session() as first, node.session() as second:
        assert first.append(b"5").result == 5
        assert second.append_soon(b"6").result(TIMEOUT_S).result == 11
        assert [each.result for each in first.append_many([b"1", b"1"])] == [12, 13]
        assert first.settle() == []


def test_committed_entries_are_iterated_over_from_another_thread(
    node: blocking.BlockingNode,
) -> None:
    first = node.append(b"1").index
    node.append(b"2")
    bodies = [entry.body for entry in islice(node.committed(first), 2)]
    assert bodies == [b"1", b"2"]


def test_an_error_in_the_loop_comes_out_of_the_call_that_caused_it(
    node: blocking.BlockingNode,
) -> None:
    with pytest.raises(dledger.EntryTooLarge):
        node.append(b"x" * 5_000_000)
    with pytest.raises(dledger.TransferFailed):
        node.transfer_leadership("nobody")
    with pytest.raises(dledger.SnapshotUnavailable):
        node.snapshot()
    with pytest.raises(ZeroDivisionError):
        node.look(lambda: 1 // 0)


def test_a_wait_that_is_given_up_gives_up_no_append(node: blocking.BlockingNode, sums: Sum) -> None:
    held = threading.Event()
    looking: Future[bool] = Future()

    def hold_the_loop() -> None:
        looking.set_result(True)
        held.wait(TIMEOUT_S)

    holder = threading.Thread(target=node.look, args=(hold_the_loop,))
    holder.start()
    assert looking.result(TIMEOUT_S)
    with pytest.raises(TimeoutError):
        node.append(b"7", timeout_s=0.01)
    cancelled = node.append_many_soon([b"100"])
    assert cancelled.cancel()
    held.set()
    holder.join()
    assert node.append(b"1").result == 8


def test_threads_that_are_faster_than_the_loop_are_told_so(
    node: blocking.BlockingNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dledger.handed_over.MAX_HANDED_OVER", 2)

    def hand_over() -> None:
        waiting.extend(node.append_soon(b"1") for _ in range(2))
        with pytest.raises(blocking.TooManyCalls):
            node.append_soon(b"1")

    # In the loop's thread nothing is taken over meanwhile.
    waiting: list[Future[dledger.Appended]] = []
    node.look(hand_over)
    assert [each.result(TIMEOUT_S).result for each in waiting] == [1, 2]
    assert node.append(b"1").result == 3


def test_a_node_that_stops_by_itself_says_why_at_the_end_of_the_block(tmp_path: Path) -> None:
    def run() -> None:
        with blocking.open_node(lone(tmp_path), Sum()) as node:
            node.read(lambda: None, timeout_s=TIMEOUT_S)
            future = node.append_soon(b"break")
            with pytest.raises(dledger.OutcomeUnknown):
                future.result(TIMEOUT_S)

    with pytest.raises(dledger.MachineFailed):
        run()


def test_a_call_behind_the_end_of_the_block_is_refused(tmp_path: Path) -> None:
    with blocking.open_node(lone(tmp_path), Sum()) as node:
        node.read(lambda: None, timeout_s=TIMEOUT_S)
    with pytest.raises(dledger.NodeClosing):
        node.append(b"1")
    with pytest.raises(dledger.NodeClosing):
        node.status()


def test_a_node_that_cannot_open_raises_at_once(tmp_path: Path) -> None:
    mine = lone(tmp_path)
    again = replace(mine, peers={"n0": "127.0.0.1:1"})
    with (
        blocking.open_node(mine, Sum()),
        pytest.raises(dledger.DataFolderLocked),
        blocking.open_node(again, Sum()),
    ):
        pytest.fail("it opened")


def test_objects_are_called_through_a_session_or_are_refused_at_once(tmp_path: Path) -> None:
    counter = ReplicatedCounter()
    machine = dledger.WithSessions(Objects(counter=counter))
    with blocking.open_node(lone(tmp_path), machine) as node, node.session() as session:
        for plain in (session, node):
            with pytest.raises(AppendNotAwaitable, match=r"session\.do"):
                counter.through(plain)  # type: ignore[arg-type]  # what a type checker refuses
        assert session.do(lambda session: counter.through(session).add(2)) == 2
        assert node.do(lambda node: counter.through(node).add(3)) == 5
        assert node.read(lambda: counter.value) == 5


# --- over the network -----------------------------------------------------------------------------


def test_threads_append_to_a_group_over_the_network_and_follow_it(
    tmp_path: Path, sums: Sum
) -> None:
    settings = lone(tmp_path)
    with (
        blocking.open_node(settings, dledger.WithSessions(sums)),
        blocking.connect(settings.peers, group="g") as log,
    ):
        first = log.append(b"1")
        with ThreadPoolExecutor(8) as threads:
            list(threads.map(log.append, [b"1"] * 50))
        futures = [log.append_soon(b"1") for _ in range(50)]
        assert max(int(str(each.result(TIMEOUT_S).result)) for each in futures) == 101
        assert [each.result for each in log.append_many([b"2", b"3"])] == [103, 106]
        assert log.read(first.index).body == b"1"
        with log.session() as session:
            assert session.append(b"4").result == 110
        found = [entry.body for entry in log.tail(first.index, follow=False)]
        assert found[:101] == [b"1"] * 101
        following = islice(log.tail(first.index), 103)
        assert [entry.body for entry in following][-2:] == [b"2", b"3"]
        assert log.status()["node_id"] == "n0"
        with pytest.raises(dledger.GroupUnreachable):
            log.status("n9")


def test_a_list_that_is_cleared_for_the_next_entries_is_appended_as_it_was(
    tmp_path: Path, sums: Sum
) -> None:
    settings = lone(tmp_path)
    with (
        blocking.open_node(settings, dledger.WithSessions(sums)) as node,
        blocking.connect(settings.peers, group="g") as log,
        log.session() as session,
    ):
        for form in (node, log, session):
            held, started = threading.Event(), threading.Event()

            def hold(held: threading.Event = held, started: threading.Event = started) -> None:
                started.set()
                held.wait(TIMEOUT_S)

            form._loop.soon(hold)
            assert started.wait(TIMEOUT_S)
            bodies = [b"1", b"1"]
            future = form.append_many_soon(bodies)
            bodies.clear()
            held.set()
            assert len(future.result(TIMEOUT_S)) == 2


def test_addresses_that_cannot_be_are_refused_where_they_are_given() -> None:
    with pytest.raises(dledger.ConfigInvalid), blocking.connect("nowhere", group="g"):
        raise AssertionError("connected")


@pytest.mark.parametrize("bodies", [["text"], [b"1", "b"], [{"a": 1}], 5, iter([b"1"])])
def test_an_odd_body_is_told_to_its_caller_and_the_node_lives_on(
    node: blocking.BlockingNode, bodies: list[bytes]
) -> None:
    with pytest.raises(dledger.BodyInvalid):
        node.append_many(bodies, timeout_s=TIMEOUT_S)
    assert node.append(b"2", timeout_s=TIMEOUT_S).result == 2


def test_no_call_outlives_the_node_whatever_ends_it(tmp_path: Path) -> None:
    with pytest.raises(dledger.MachineFailed):
        break_while_calls_wait(lone(tmp_path))


def break_while_calls_wait(settings: dledger.NodeConfig) -> None:
    with (
        ThreadPoolExecutor(1) as caller,
        blocking.open_node(settings, Sum()) as node,
    ):
        node.read(lambda: None, timeout_s=TIMEOUT_S)
        waiting: list[Future[Any]] = [caller.submit(next, node.committed(1_000))]
        waiting += [node.append_soon(body) for body in (b"1", b"break", b"2", b"3")]
        for future in waiting:
            future.exception(TIMEOUT_S)  # raises TimeoutError if nothing answers it
        for future in (*waiting[2:], node.append_soon(b"4"), node.read_soon(lambda: None)):
            error = future.exception(TIMEOUT_S)
            assert isinstance(error, dledger.DLedgerError)
            reasons = (error, error.__cause__)
            assert any(isinstance(one, dledger.MachineFailed) for one in reasons), repr(error)


def test_what_is_handed_over_while_the_loop_ends_is_answered(tmp_path: Path) -> None:
    for _ in range(20):
        with blocking.open_node(lone(tmp_path), Sum()) as node:
            node.read(lambda: None, timeout_s=TIMEOUT_S)
            node._loop.soon(node._loop._stop.cancel)
            waiting: list[Future[Any]] = [node.append_soon(b"1") for _ in range(5)]
            waiting += [node.read_soon(lambda: None) for _ in range(5)]
        for future in waiting:
            future.exception(TIMEOUT_S)


# --- where calls come from ------------------------------------------------------------------------


def test_appends_of_a_session_are_made_in_the_order_of_the_calls(
    node: blocking.BlockingNode, sums: Sum
) -> None:
    # Trio runs the tasks of one moment in either order: ten times in the right one are no chance.
    for _ in range(10):
        with node.session() as session:
            futures = [session.append_soon(b"%d" % number) for number in range(20)]
            indexes = [future.result(TIMEOUT_S).index for future in futures]
        assert indexes == sorted(indexes)


def test_a_callback_may_append_and_may_not_wait(node: blocking.BlockingNode) -> None:
    told: Future[tuple[BaseException | None, int]] = Future()

    def appended(_future: object) -> None:
        with pytest.raises(blocking.CallMisplaced, match="append_soon") as refused:
            node.append(b"1")
        node.append_soon(b"1").add_done_callback(
            lambda one: told.set_result((refused.value, int(str(one.result().result))))
        )

    # Added in the loop's thread, so that the future has no answer before.
    node.look(lambda: node.append_soon(b"1").add_done_callback(appended))
    assert told.result(TIMEOUT_S)[1] == 2


def test_a_lock_is_held_by_a_plain_block(tmp_path: Path) -> None:
    locks = ReplicatedLocks()
    machine = dledger.WithSessions(Objects(locks=locks))
    with blocking.open_node(lone(tmp_path), machine) as node, node.session() as session:
        with session.within(lambda session: LockCalls(locks, session).hold("door")) as token:
            assert token >= 1
        with pytest.raises(LockNotAcquired):
            hold_twice(node, locks)


def hold_twice(node: blocking.BlockingNode, locks: ReplicatedLocks) -> None:
    with (
        node.session() as one,
        node.session() as two,
        one.within(lambda session: LockCalls(locks, session).hold("door")),
        two.within(lambda session: LockCalls(locks, session).hold("door", timeout_s=0.05)),
    ):
        pytest.fail("both hold it")


PROGRAM = """
import sys
from pathlib import Path
import dledger
from dledger import blocking
config = dledger.NodeConfig(
    group="left",
    node_id="n0",
    peers={{"n0": "127.0.0.1:{port}"}},
    data_dir=Path({folder!r}),
    new=True,
)
opened = blocking.open_node(config, dledger.LogOnly())
node = opened.__enter__()
node.read(lambda: None)
node.append_soon(b"x").add_done_callback(lambda one: print(one.result().index, flush=True))
"""


def test_a_program_that_leaves_a_node_open_ends_and_what_it_appended_is_stored(
    tmp_path: Path,
) -> None:
    program = PROGRAM.format(port=free_ports(1)[0], folder=str(tmp_path))
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "1\n", "")
