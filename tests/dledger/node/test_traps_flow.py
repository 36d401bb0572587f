"""Known traps of flow control and of memory; docs/traps.md says which test stands for which."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import trio

import dledger
from dledger.config import Address
from dledger.core.agenda import Agenda
from dledger.core.entry_dispatcher import EntryDispatcher
from dledger.core.messages import Phase, PushRequest, PushResponse
from dledger.free_ports import free_ports
from dledger.network.channel import Identity
from dledger.network.connections import Connections
from dledger.network.host_connection import MAX_OUTBOX_BYTES
from dledger.network.links import Links
from dledger.waits.pending_appends import Outcome
from dledger.wire.channel_protocol import encode_opened
from dledger.wire.handshake import encode_welcome
from tests.dledger.core.core_group import EntriesAtOnce, view_of
from tests.dledger.node.test_keeps_nothing import ready


def test_a_refusal_that_arrives_after_the_acknowledgement_causes_no_new_probe() -> None:
    streaming = EntryDispatcher("n1", 1, view_of([1] * 10), EntriesAtOnce(1), 0.0, Agenda())
    streaming.pump(-1, 0.0)
    streaming.receive(PushResponse(1, Phase.COMPARE, True, 8, match=8, last_index=8), 0.0)
    streaming.pump(-1, 0.0)
    streaming.receive(PushResponse(1, Phase.APPEND, True, 9, match=9, last_index=9), 0.0)
    refusal = PushResponse(1, Phase.APPEND, ok=False, index=2, hint_index=1, hint_term=1)
    streaming.receive(refusal, 0.0)
    assert streaming.phase is Phase.COMMIT
    assert streaming.pump(-1, 0.0) == []


class Counted:
    """Takes every entry."""

    def __init__(self) -> None:
        self.count = 0

    def apply(self, entries: Sequence[dledger.Entry]) -> list[object]:
        self.count += len(entries)
        return [None] * len(entries)


async def test_a_leader_takes_only_as_many_appends_as_it_has_room_for(tmp_path: Path) -> None:
    [port] = free_ports(1)
    config = dledger.NodeConfig(
        group="g",
        node_id="n0",
        peers={"n0": f"127.0.0.1:{port}"},
        data_dir=tmp_path,
        store=dledger.StoreConfig(
            segment_bytes=1 << 20, index_segment_bytes=1 << 16, max_body_bytes=1000
        ),
        max_pending_entries=10,
        max_pending_bytes=5000,
        new=True,
    )
    async with dledger.open_node(config, Counted()) as node:
        await ready(node)
        outcomes: list[Outcome] = []
        with pytest.raises(dledger.BodyInvalid, match="at least one body"):
            node.submit([], outcomes.append)
        await node.append(b"the node goes on")
        for _ in range(10):
            node.submit([b"x"], outcomes.append)
        with pytest.raises(dledger.LogFull) as full:
            node.submit([b"x"], outcomes.append)
        assert full.value.retry_safe
        with trio.fail_after(5):
            await node.wait_applied(node.status().last_index + 10)
        assert len(outcomes) == 10
        for _ in range(5):
            node.submit([bytes(1000)], outcomes.append)
        with pytest.raises(dledger.LogFull):
            node.submit([bytes(1000)], outcomes.append)
        assert len(await node.append_many([])) == 0


async def test_a_peer_that_does_not_read_is_cut_off_before_memory_is_full() -> None:
    async def welcome_and_read_no_more(stream: trio.SocketStream) -> None:
        await stream.receive_some(1)
        await stream.send_all(encode_welcome("n1") + encode_opened(0))
        await trio.sleep_forever()

    changes: list[bool] = []
    changed = {True: trio.Event(), False: trio.Event()}

    def note(_: str, connected: bool) -> None:
        changes.append(connected)
        changed[connected].set()

    async with trio.open_nursery() as nursery:
        [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, welcome_and_read_no_more, [listener])
        port = listener.socket.getsockname()[1]
        home = Address("127.0.0.1", 1)
        links = Links(Identity("g", "n0", home), Connections(nursery, home), note)
        links.set_members({"n1": Address("127.0.0.1", port)})
        link = links.members["n1"]
        with trio.fail_after(10):
            await changed[True].wait()
            payload = bytes(1024 * 1024)
            push = PushRequest(1, Phase.APPEND, -1, -1, 0, -1)
            for _ in range(MAX_OUTBOX_BYTES // len(payload) + 32):
                link.send(push, payload)
            await changed[False].wait()
        assert changes[:2] == [True, False]
        assert link.last_problem is not None
        assert "too slowly" in link.last_problem
        nursery.cancel_scope.cancel()
