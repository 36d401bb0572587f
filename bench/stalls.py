"""`python -m bench stalls`: the leaders and the time that pauses of members cost."""

from __future__ import annotations

from pathlib import Path

import click
import trio

from bench.dledger_member import GROUP
from bench.options import COUNT, folder_option
from bench.peers.watched import WATCHED
from bench.place import make_place
from bench.report import Report, show_tables, tell
from bench.summary import Rows, percentile
from bench.toolchain import BUILD, Toolchain
from bench.watch import Watch
from bench.workload import Workload
from dledger.client.group_client import GroupClient
from dledger.command_line.options import option

LEADER, ALL, FOLLOWER, FOLLOWERS = "the leader", "all", "one follower", "all followers"
# Shorter and longer than elections, which take 0.5 to 1 s; a laptop sleeps for longer.
PAUSES = (
    *((ALL, pause_s) for pause_s in (0.3, 0.6, 1.0, 5.0, 30.0)),
    *((FOLLOWER, pause_s) for pause_s in (0.9, 2.0)),
    *((FOLLOWERS, pause_s) for pause_s in (0.6, 0.9)),
    *((LEADER, pause_s) for pause_s in (0.3, 2.0)),
)
# An election that a pause caused is over by then.
SEEN_S = 2.2
COLUMNS = ["paused", "s", "times", "new terms", "p50 ms", "max ms"]
HOW = (
    "Three real processes on this machine under the load of {clients} clients; SIGSTOP, and then "
    "SIGCONT for all of them at once. `ms`: from then on, until an append is acknowledged that "
    "began afterwards. A leader that pauses for longer than an election loses its office; nothing "
    "else costs one."
)


def term_of(peers: dict[str, str]) -> int:

    async def ask() -> int:
        told = await GroupClient(GROUP, peers).leader_status(30.0)
        return int(str(told["term"]))

    return trio.run(ask)


def paused(who: str, leader: str, names: list[str]) -> list[str]:
    others = [name for name in names if name != leader]
    return {LEADER: [leader], ALL: [leader, *others], FOLLOWER: others[:1]}.get(who, others)


@click.command()
@option("--times", "Each pause.", default=3, type=COUNT)
@click.option("--clients", default=16, show_default=True, type=COUNT)
@folder_option
def stalls(times: int, clients: int, folder: Path) -> None:
    """Pause members under load, and see whether that costs leaders, and clients time."""
    ours = next(each for each in WATCHED if each.key == "dledger")
    watching = ours.prepare(Toolchain(BUILD, building=lambda _: None))
    cells = []
    with Report(folder).run_folder() as base:
        place = make_place(base / ours.key)
        with Watch(watching, place, Workload(in_flight=clients)) as watch:
            for who, pause_s in PAUSES:
                terms, took_ms = 0, []
                for _ in range(times):
                    leader = watch.settle()
                    before = term_of(place.peers)
                    took_ms.append(watch.pause(paused(who, leader, list(place.peers)), pause_s))
                    trio.run(trio.sleep, SEEN_S)
                    terms += term_of(place.peers) - before
                row = [who, f"{pause_s:g}", str(times), str(terms)]
                cells.append([*row, *(f"{percentile(took_ms, share):,.0f}" for share in (50, 100))])
                tell(" | ".join(cells[-1]))
    show_tables([Rows("pauses under load", COLUMNS, cells)], HOW.format(clients=clients))
