"""The process of one member: `python -m jepsen_like.chaos.members SETTINGS.json`.

It opens a node with the machine under test, serves clients, and ends when its standard input does.
Its log goes to standard error.
"""

from __future__ import annotations

import json
import logging
import sys
import traceback
from functools import partial
from pathlib import Path
from typing import Any

import trio

import dledger
from dledger.command_line.log_lines import PROGRESS, TEXT, set_up_logging
from dledger.command_line.server_signals import cancel_on_signal
from dledger.node.node_events import NodeEvents
from dledger.system_refusals import single
from jepsen_like.chaos.members.answering import Answering
from jepsen_like.chaos.members.client_port import ClientPort
from jepsen_like.chaos.members.control import Control
from jepsen_like.chaos.members.settings import MemberSettings
from jepsen_like.chaos.orders import take_output
from jepsen_like.chaos.services import find_service
from jepsen_like.mutants.planting import planted
from jepsen_like.users_code import raised_in
from jepsen_like.users_modules import find_users_modules

# Small, so that in a minute snapshots are written, the log is dropped, and snapshots are sent.
STORE = dledger.StoreConfig(
    segment_bytes=1024 * 1024, index_segment_bytes=256 * 1024, max_body_bytes=256 * 1024
)
SNAPSHOTS = dledger.SnapshotPolicy(every_entries=2_000, trailing_entries=1_000)

logger = logging.getLogger("jepsen_like.member")


async def serve(settings: MemberSettings) -> None:
    """Run the member until its standard input ends, or it is asked to stop."""
    service = find_service(settings.service)
    machine: Any = service.service.machine()
    saves = isinstance(machine, dledger.SnapshottingMachine)
    config = dledger.NodeConfig(
        group=settings.group,
        node_id=settings.node_id,
        peers=settings.peers,
        listen=settings.listen,
        data_dir=Path(settings.data_dir),
        joining=settings.joining,
        store=STORE,
        snapshots=SNAPSHOTS if saves else dledger.SnapshotPolicy(),
        max_clock_drift=settings.max_clock_drift,
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(cancel_on_signal, nursery.cancel_scope)
        async with dledger.open_node(config, dledger.WithSessions(machine)) as node:
            answering = Answering(node, machine, service)
            async with trio.open_nursery() as inner:
                inner.start_soon(ClientPort(node, answering, settings.clients).run)
                inner.start_soon(NodeEvents(node, logging.getLogger(PROGRESS)).run)
                broken = partial(service.invariant, machine)
                control = Control(node, broken, partial(service.state, machine))
                await control.run(nursery.cancel_scope)


def main() -> None:
    """Run one member; the error that ends it is the last line of its log."""
    take_output()
    settings = MemberSettings(**json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
    find_users_modules()
    set_up_logging(settings.group, settings.node_id, TEXT, "info")
    progress = logging.getLogger(PROGRESS)
    progress.handlers = logging.getLogger().handlers  # standard output is for the run
    try:
        with planted(settings.seeded_bug):
            trio.run(serve, settings)
    except Exception as error:
        errors = list(single(error))
        if not all(isinstance(each, dledger.DLedgerError) for each in errors):
            traceback.print_exc()
        for each in errors:
            logger.critical("stopped: %s", _told(each))
        sys.exit(1)


def _told(error: BaseException) -> str:
    """Return an error in a line; one of the user's code with its place."""
    if not isinstance(error, dledger.DLedgerError):
        return raised_in(error)
    cause = error.__cause__
    from_user = cause is not None and not isinstance(cause, dledger.DLedgerError | OSError)
    place = f" ({raised_in(cause)})" if cause is not None and from_user else ""
    return f"{type(error).__name__}: {error}{place}"


if __name__ == "__main__":
    main()
