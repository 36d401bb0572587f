"""A member of a PySyncObj group under the workloads of `jepsen-like run`.

    jepsen-like run --workload register --system bench.pysyncobj_chaos_member --nemesis kill

It does what a member of ours does in a run: clients reach it at a port of its own, orders come on
its standard input, and its status goes to standard output. The state is replicated and saved by
PySyncObj, with a journal and snapshots as its documentation has them. Reads go through its log,
because it promises nothing of reads from a member's own state.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import trio
from pysyncobj import FAIL_REASON, SyncObj, SyncObjConf, SyncObjConsumer, replicated

from dledger.command_line.server_signals import standard_input
from dledger.config import parse_address
from dledger.entry import Entry, Magic
from jepsen_like.chaos.members.settings import MemberSettings
from jepsen_like.chaos.orders import lines_of, say, take_output
from jepsen_like.chaos.outcomes import Outcome, failed, ok, unknown
from jepsen_like.chaos.service import Call, Described
from jepsen_like.chaos.services import find_service
from jepsen_like.chaos.wire import PIECE_BYTES, Messages, WireBroken, outcome_message, parse_call

STATUS_EVERY_S = 0.1
CALL_TIMEOUT_S = 10.0
# As often as members of ours write snapshots in a run, in seconds: reads are entries here.
SNAPSHOT_ENTRIES = 1_000
# A state worth a snapshot. It is written by a forked process, which takes a moment.
BALLAST_BYTES = 8 * 1024 * 1024
# The port may belong to the process that writes a snapshot for the process before this one. On a
# busy machine that takes a while; the run waits for a whole group for a minute.
BIND_TIMEOUT_S = 60.0
BIND_AGAIN_S = 0.2
# The command was dropped before it was in any log, or another one has its place for good.
CERTAIN = frozenset(
    {
        FAIL_REASON.QUEUE_FULL,
        FAIL_REASON.MISSING_LEADER,
        FAIL_REASON.NOT_LEADER,
        FAIL_REASON.DISCARDED,
        FAIL_REASON.REQUEST_DENIED,
    }
)
REASONS = {value: name for name, value in vars(FAIL_REASON).items() if not name.startswith("_")}


class Replica(SyncObjConsumer):  # type: ignore[misc] # the library has no types
    def __init__(self, machine: Any) -> None:
        super().__init__()
        self.machine = machine
        self.ballast = os.urandom(BALLAST_BYTES)
        self.applied = 0

    @replicated  # type: ignore[untyped-decorator]
    def append(self, body: bytes) -> object:
        self.applied += 1
        (result,) = self.machine.apply([Entry(self.applied, 0, 0, Magic.NORMAL, body)])
        return result

    @replicated  # type: ignore[untyped-decorator]
    def read(self, service: str, function: str, key: object, value: object) -> object:
        """Answer a read at its place in the log."""
        call = Call(function, key, value, is_read=True)
        return find_service(service).query(self.machine, call)

    @replicated  # type: ignore[untyped-decorator]
    def look(self, service: str) -> object:
        return find_service(service).state(self.machine)


class PySyncObjMember:
    def __init__(self, settings: MemberSettings) -> None:
        self._settings = settings
        self._service: Described = find_service(settings.service)
        self._names = {address: name for name, address in settings.peers.items()}
        self._replica = Replica(self._service.service.machine())
        folder = Path(settings.data_dir)
        folder.mkdir(parents=True, exist_ok=True)
        own = settings.peers[settings.node_id]
        configuration = SyncObjConf(
            bindAddress=settings.listen,
            journalFile=str(folder / "journal"),
            fullDumpFile=str(folder / "snapshot"),
            logCompactionMinEntries=SNAPSHOT_ENTRIES,
            commandsWaitLeader=False,
            appendEntriesUseBatch=False,
            connectionRetryTime=0.5,
            leaderFallbackTimeout=3.0,
        )
        others = [address for address in settings.peers.values() if address != own]
        self._node = SyncObj(own, others, configuration, consumers=[self._replica])

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._serve_clients)
            nursery.start_soon(self._tell_status)
            async with standard_input() as orders:
                async for line in lines_of(orders):
                    nursery.start_soon(self._carry_out, json.loads(line))
            nursery.cancel_scope.cancel()

    # --- clients ----------------------------------------------------------------------------------

    async def _serve_clients(self) -> None:
        host, port = parse_address("clients", self._settings.clients)
        give_up = trio.current_time() + BIND_TIMEOUT_S
        while True:
            try:
                await trio.serve_tcp(self._serve, port, host=host)
            except OSError as error:
                if error.errno != errno.EADDRINUSE or trio.current_time() > give_up:
                    raise
            await trio.sleep(BIND_AGAIN_S)

    async def _serve(self, stream: trio.SocketStream) -> None:
        messages = Messages()
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError, WireBroken):
            while piece := await stream.receive_some(PIECE_BYTES):
                messages.feed(piece)
                while (message := messages.next()) is not None:
                    call, _ = parse_call(message)
                    outcome = await self._outcome(call)
                    await stream.send_all(outcome_message(outcome, self._leader()))

    async def _outcome(self, call: Call) -> Outcome:
        if not call.is_read:
            return await self._replicated(self._replica.append, call.entry)
        words = (self._service.name, call.function, call.key, call.value)
        outcome = await self._replicated(self._replica.read, *words)
        return outcome if outcome.error is None else failed(outcome.error)

    async def _replicated(self, function: Callable[..., None], *words: object) -> Outcome:
        """Call a replicated function, and wait for its result on this member."""
        token, answered = trio.lowlevel.current_trio_token(), trio.Event()
        told: list[tuple[object, int]] = []

        def answer(result: object, reason: int) -> None:  # called by PySyncObj's thread
            told.append((result, reason))
            with suppress(trio.RunFinishedError):
                token.run_sync_soon(answered.set)

        function(*words, callback=answer)
        with trio.move_on_after(CALL_TIMEOUT_S):
            await answered.wait()
        if not told:
            return unknown("no answer")
        result, reason = told[0]
        if reason == FAIL_REASON.SUCCESS:
            return ok(result)
        name = REASONS.get(reason, str(reason))
        return failed(name) if reason in CERTAIN else unknown(name)

    # --- the run ----------------------------------------------------------------------------------

    def _leader(self) -> str | None:
        return self._names.get(str(self._node._getLeader()))

    async def _tell_status(self) -> None:
        while True:
            leads, ready = self._node._isLeader(), self._node.isReady()
            say(
                status={
                    "role": "leader" if leads else "follower",
                    "ready": leads and ready,
                    "proven": ready,
                    "term": self._node.raftCurrentTerm,
                    "leader": self._leader(),
                    "applied": self._node.raftLastApplied,
                    "last_index": self._node.raftCommitIndex,
                    "voters": sorted(self._settings.peers),
                    "members": sorted(self._settings.peers),
                    "damage": None,
                }
            )
            await trio.sleep(STATUS_EVERY_S)

    async def _carry_out(self, order: dict[str, Any]) -> None:
        value: object = None
        match order["do"]:
            case "look":
                outcome = await self._replicated(self._replica.look, self._service.name)
                value = {"index": 0, "broken": None, "state": outcome.value}
            case "transfer":
                outcome = ok(None)
                self._node.transferLeadership(None, lambda result, reason: None)
            case other:
                outcome = failed(f"no order is named {other}")
        if outcome.error is None:
            say(id=order["id"], value=value)
        else:
            say(id=order["id"], error=outcome.error)


def main() -> None:
    take_output()
    settings = MemberSettings(**json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
    sys.path.insert(0, os.getcwd())  # the module of a user's service lies there
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
    trio.run(PySyncObjMember(settings).run)
    os._exit(0)  # its own thread never ends


if __name__ == "__main__":
    main()
