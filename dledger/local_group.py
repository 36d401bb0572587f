"""A group of real processes on this machine, for trying things out: `dledger group`."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import trio

from dledger.errors import ConfigInvalid, Fatal
from dledger.free_ports import free_ports as free_ports  # noqa: PLC0414 - for programs, too

GROUP_FILE = "group.json"

# A process that was asked to stop has this long to do so before it is killed.
STOP_TIMEOUT_S = 10.0


class MemberEnded(Fatal):
    """A member's process ended by itself."""

    node_id: str
    returncode: int
    _template = "{node_id} ended with exit code {returncode}; its lines above say why"


def load_group(folder: Path) -> tuple[str, dict[str, str]]:
    """Read group name and members of a folder made by `dledger group`. Raises ConfigInvalid."""
    path = folder / GROUP_FILE
    try:
        content = json.loads(path.read_text())
        return str(content["group"]), {str(k): str(v) for k, v in content["peers"].items()}
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ConfigInvalid(
            "--dir", f"{path} cannot be read ({error}); `dledger group --dir {folder}` makes it"
        ) from error


def is_unborn(folder: Path) -> bool:
    return not any(folder.glob("dledger-*"))


def load_or_make_group(folder: Path, group: str, nodes: int) -> dict[str, str]:
    """Return the members of the folder's group; a new group gets free loopback ports.

    Raises ConfigInvalid when the folder holds another group.
    """
    if (folder / GROUP_FILE).exists():
        found, peers = load_group(folder)
        if found != group or len(peers) != nodes:
            raise ConfigInvalid(
                "--dir", f"{folder} holds group {found} of {len(peers)} nodes; take another folder"
            )
        return peers
    folder.mkdir(parents=True, exist_ok=True)
    peers = {f"n{i}": f"127.0.0.1:{port}" for i, port in enumerate(free_ports(nodes))}
    (folder / GROUP_FILE).write_text(json.dumps({"group": group, "peers": peers}, indent=1) + "\n")
    return peers


def serve_command(
    group: str, node_id: str, peers: Mapping[str, str], folder: Path, more: Sequence[str] = ()
) -> list[str]:
    return [
        *(sys.executable, "-m", "dledger", "serve", "--group", group, "--node", node_id),
        *("--peers", ",".join(f"{peer}={address}" for peer, address in peers.items())),
        *("--dir", str(folder), "--exit-with-stdin", *more),
    ]


async def run_group(
    group: str, peers: Mapping[str, str], folder: Path, more: Sequence[str] = ()
) -> None:
    """Run every member in a process of its own until cancelled; then stop them all.

    A member ends when this process ends, however that happens, because its standard input closes.
    Raises MemberEnded if one ends before that.
    """
    at_birth = ("--new",) if is_unborn(folder) else ()
    async with trio.open_nursery() as nursery:
        for node_id in peers:
            command = serve_command(group, node_id, peers, folder, (*more, *at_birth))
            nursery.start_soon(_run_member, node_id, command)


async def _run_member(node_id: str, command: list[str]) -> None:
    # A process group of its own: Ctrl-C in a terminal reaches only this process, which then asks
    # its members to stop.
    process = await trio.lowlevel.open_process(command, stdin=subprocess.PIPE, process_group=0)
    try:
        returncode = await process.wait()
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
            with trio.CancelScope(shield=True), trio.move_on_after(STOP_TIMEOUT_S):
                await process.wait()
        if process.returncode is None:
            process.kill()
    if returncode == -signal.SIGINT:
        # Ctrl-C came before the member had its own process group, and ends this process as well.
        await trio.sleep(STOP_TIMEOUT_S)
    raise MemberEnded(node_id, returncode)
