"""The switch, over sockets in the place of devices, and with namespaces where root runs this."""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import closing

import pytest
import trio

from jepsen_like.chaos.links.condition import CLEAR, CUT, LinkCondition
from jepsen_like.chaos.links.counts import Counts, LinkCounts, counts_rows, parse_counts
from jepsen_like.chaos.links.namespaces import FOLDER, prefix_of, why_not
from jepsen_like.chaos.links.switch import (
    DONE,
    TELL_COUNTS,
    Switch,
    links_line,
    order_line,
    parse_links,
)
from jepsen_like.chaos.links.switched_network import SwitchedNetwork, switched_network

ADDRESSES = {"a": b"\x0a\x63\x00\x01", "b": b"\x0a\x63\x00\x02", "c": b"\x0a\x63\x00\x03"}
# Long enough for a packet that is to arrive at once, and short enough to wait for one that is not.
ARRIVES_S, PATIENCE_S = 0.1, 5.0


def packet(source: str, target: str, content: bytes = b"x") -> bytes:
    """An IPv4 header with addresses, as far as the switch looks."""
    return b"\x45" + bytes(11) + ADDRESSES[source] + ADDRESSES[target] + content


class SwitchedHosts:
    """Three hosts around a switch in a thread."""

    def __init__(self) -> None:
        pairs = {host: socket.socketpair(type=socket.SOCK_DGRAM) for host in ADDRESSES}
        self.hosts = {host: pair[0] for host, pair in pairs.items()}
        self._ends = [pair[1] for pair in pairs.values()]
        for end in self._ends:
            end.setblocking(False)
        self._orders_read, self._orders = os.pipe()
        self._answers, self._answers_write = os.pipe()
        devices = {host: pair[1].fileno() for host, pair in pairs.items()}
        switch = Switch(devices, ADDRESSES, 1)
        self._thread = threading.Thread(
            target=switch.run, args=(self._orders_read, self._answers_write)
        )
        self._thread.start()

    def set_links(self, links: dict[tuple[str, str], LinkCondition]) -> None:
        os.write(self._orders, links_line(links))
        assert os.read(self._answers, 100) == b"done\n"

    def counts(self) -> Counts:
        os.write(self._orders, order_line(TELL_COUNTS))
        return parse_counts(json.loads(os.read(self._answers, 65_536)))

    def receive(self, host: str, patience_s: float = PATIENCE_S) -> bytes | None:
        self.hosts[host].settimeout(patience_s)
        try:
            return self.hosts[host].recv(65_536)
        except TimeoutError:
            return None

    def close(self) -> None:
        os.close(self._orders)
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()
        for descriptor in (self._orders_read, self._answers, self._answers_write):
            os.close(descriptor)
        for one in (*self.hosts.values(), *self._ends):
            one.close()


@pytest.fixture
def switched() -> Iterator[SwitchedHosts]:
    with closing(SwitchedHosts()) as hosts:
        yield hosts


def test_packets_go_to_the_host_of_their_address(switched: SwitchedHosts) -> None:
    switched.hosts["a"].send(packet("a", "c"))
    assert switched.receive("c") == packet("a", "c")
    assert switched.receive("b", 0.01) is None


def test_a_cut_holds_in_its_direction_alone_once_the_order_is_answered(
    switched: SwitchedHosts,
) -> None:
    switched.set_links({("a", "b"): CUT})
    switched.hosts["a"].send(packet("a", "b"))
    switched.hosts["b"].send(packet("b", "a"))
    assert switched.receive("a") == packet("b", "a")
    assert switched.receive("b", ARRIVES_S) is None
    switched.set_links({})
    switched.hosts["a"].send(packet("a", "b", b"again"))
    assert switched.receive("b") == packet("a", "b", b"again")


def test_packets_that_are_held_up_arrive_in_their_time(switched: SwitchedHosts) -> None:
    switched.set_links({("a", "b"): LinkCondition(delay_s=0.2, duplicate=1.0)})
    switched.hosts["a"].send(packet("a", "b"))
    assert switched.receive("b", 0.05) is None
    assert switched.receive("b") == packet("a", "b")
    assert switched.receive("b") == packet("a", "b")


def test_what_is_no_packet_between_hosts_is_dropped(switched: SwitchedHosts) -> None:
    for foreign in (b"\x60" + bytes(39), b"\x45" + bytes(30), b"\x00"):
        switched.hosts["a"].send(foreign)
    switched.hosts["a"].send(packet("a", "b"))
    assert switched.receive("b") == packet("a", "b")


def test_the_switch_counts_by_link_what_became_of_packets(switched: SwitchedHosts) -> None:
    switched.set_links({("a", "b"): CUT, ("a", "c"): LinkCondition(delay_s=0.01, duplicate=1.0)})
    for target in ("b", "b", "c"):
        switched.hosts["a"].send(packet("a", target))
    switched.hosts["b"].send(packet("b", "a"))
    assert switched.receive("c") == switched.receive("c") == packet("a", "c")
    assert switched.receive("a") == packet("b", "a")
    assert switched.counts() == {
        ("a", "b"): LinkCounts(lost=2),
        ("a", "c"): LinkCounts(passed=2, held=2, copied=1),
        ("b", "a"): LinkCounts(passed=1),
    }


def test_packets_beyond_those_that_may_be_held_are_lost_and_counted(
    switched: SwitchedHosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jepsen_like.chaos.links.switch.HELD_PACKETS_MAX", 2)
    switched.set_links({("a", "b"): LinkCondition(delay_s=0.2)})
    for content in (b"1", b"2", b"3"):
        switched.hosts["a"].send(packet("a", "b", content))
    arrived = [switched.receive("b"), switched.receive("b")]
    assert arrived == [packet("a", "b", b"1"), packet("a", "b", b"2")]
    assert switched.counts() == {("a", "b"): LinkCounts(passed=2, held=2, overflowed=1)}


def test_counts_pass_to_the_run_unchanged() -> None:
    counts = {("a", "b"): LinkCounts(1, 2, 3, 4, 5), ("b", "a"): LinkCounts()}
    assert parse_counts(json.loads(json.dumps(counts_rows(counts)))) == counts


def test_conditions_pass_to_the_switch_unchanged() -> None:
    links = {
        ("a", "b"): LinkCondition(False, 0.1, 0.02, 0.03, 0.4, 0.5),
        ("b", "a"): CUT,
        ("a", "c"): CLEAR,
    }
    line = links_line(links)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert parse_links(json.loads(line)) == links


ANSWERER = """
import socket, sys
with socket.create_server((sys.argv[1], 20911)) as server:
    sys.stdout.write("listens")
    sys.stdout.flush()
    while True:
        connection, _ = server.accept()
        connection.sendall(b"hello")
        connection.close()
"""
ASKER = """
import socket, sys
try:
    with socket.create_connection((sys.argv[1], 20911), timeout=float(sys.argv[2])) as asker:
        print(asker.recv(10).decode())
except OSError as error:
    print("none")
"""


async def ask(network: SwitchedNetwork, source: str, timeout_s: float) -> str:
    address = network.wiring.addresses["b"].peer.partition(":")[0]
    command = network.wiring.command(source, [sys.executable, "-c", ASKER, address, str(timeout_s)])
    ended = await trio.run_process(command, capture_stdout=True)
    return ended.stdout.decode().strip()


@pytest.mark.skipif(why_not() is not None, reason=f"no namespaces here: {why_not()}")
async def test_processes_in_namespaces_reach_each_other_unless_a_link_is_cut() -> None:
    async with switched_network(["a", "b", "c"], 1) as network:
        address = network.wiring.addresses["b"].peer.partition(":")[0]
        answerer = await trio.lowlevel.open_process(
            network.wiring.command("b", [sys.executable, "-c", ANSWERER, address]), stdout=-1
        )
        try:
            assert answerer.stdout is not None
            async with answerer.stdout:
                assert (await answerer.stdout.receive_some(100)).startswith(b"listens")
            assert await ask(network, "a", PATIENCE_S) == "hello"
            await network.set_links({("b", "a"): CUT})
            assert await ask(network, "a", 0.3) == "none"
            assert await ask(network, "c", PATIENCE_S) == "hello"
            await network.heal()
            assert await ask(network, "a", PATIENCE_S) == "hello"
        finally:
            answerer.kill()
            await answerer.wait()
    assert list(FOLDER.glob(f"{prefix_of(os.getpid())}-*")) == []


class Answering:
    """A switch as a process, which answers an order when the test lets it."""

    def __init__(self) -> None:
        self.stdin = self.stdout = self
        self.orders: list[bytes] = []
        self.answers, self._answers = trio.open_memory_channel[bytes](9)

    async def send_all(self, line: bytes) -> None:
        self.orders.append(line)

    async def receive_some(self, _most: int) -> bytes:
        return await self._answers.receive()


async def test_an_order_whose_caller_is_cancelled_leaves_no_answer_for_the_next_one(
    autojump_clock: trio.abc.Clock,
) -> None:
    process, answered = Answering(), trio.Event()
    network = SwitchedNetwork("x", ["a", "b"], process)  # type: ignore[arg-type]

    async def answer_late() -> None:
        await trio.sleep(2)
        await process.answers.send(DONE)
        answered.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(answer_late)
        with trio.move_on_after(1):
            await network.heal()
        await answered.wait()
        await process.answers.send(b"[]\n")
        assert await network.counts() == {}
