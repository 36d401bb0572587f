"""A key-value store on three processes: any of them takes any request.

    python key_value_store.py serve n0          (and n1, and n2: each in a terminal of its own)
    python key_value_store.py set colour blue
    python key_value_store.py get colour
    python key_value_store.py swap colour blue green

A request is one line of JSON to a port that the member opens beside that of the group.
"""

import json
import os
import sys
from pathlib import Path

import trio

import dledger
from dledger.machines import DictCalls, Objects, ReplicatedDict

FIRST_PORT = int(os.environ.get("KV_PORT", "21311"))
NAMES = ("n0", "n1", "n2")
PEERS = {name: f"127.0.0.1:{FIRST_PORT + i}" for i, name in enumerate(NAMES)}
CLIENT_PORTS = {name: FIRST_PORT + 3 + i for i, name in enumerate(NAMES)}
MAX_REQUEST_BYTES = 64 * 1024


async def serve(name: str) -> None:
    """Run one member, and answer clients."""
    values = ReplicatedDict()
    config = dledger.NodeConfig(
        group="kv",
        node_id=name,
        peers=PEERS,
        data_dir=Path("kv-data"),
        snapshots=dledger.SnapshotPolicy(every_entries=100_000),
    )
    async with (
        dledger.open_node(config, dledger.WithSessions(Objects(values=values))) as node,
        node.session(timeout_s=60) as session,  # changes go to the leader
    ):
        calls = values.through(session)

        async def talk(stream: trio.SocketStream) -> None:
            try:
                answer = await carry_out(await receive_line(stream), node, values, calls)
            except (ValueError, dledger.DLedgerError) as error:
                answer = {"error": str(error)}
            await stream.send_all(json.dumps(answer).encode() + b"\n")

        print(f"{name} serves", flush=True)
        await trio.serve_tcp(talk, CLIENT_PORTS[name], host="127.0.0.1")


async def carry_out(
    line: bytes, node: dledger.Node, values: ReplicatedDict, calls: DictCalls
) -> object:
    """Carry out a client's request. Raises ValueError if it is malformed."""
    match json.loads(line):
        case ["get", str(key)]:
            await node.read()  # now our own state is as new as any acknowledged change
            return values.get(key)
        case ["set", str(key), value]:
            await calls.set(key, value)
            return "done"
        case ["swap", str(key), old, new]:
            return "done" if await calls.replace(key, old, new) else "it was something else"
        case _:
            raise ValueError("say get KEY, set KEY VALUE, or swap KEY OLD NEW")


async def receive_line(stream: trio.SocketStream) -> bytes:
    """One line. Raises ValueError when it is too long."""
    line = b""
    while not line.endswith(b"\n"):
        data = await stream.receive_some(MAX_REQUEST_BYTES)
        line += data
        if not data or len(line) > MAX_REQUEST_BYTES:
            raise ValueError("that is not a line")
    return line


async def ask(words: list[str]) -> object:
    """Ask any member that answers."""
    for port in CLIENT_PORTS.values():
        try:
            async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
                await stream.send_all(json.dumps(words).encode() + b"\n")
                return json.loads(await receive_line(stream))
        except OSError:
            continue  # that member is down: ask the next one
    raise SystemExit("no member answers")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["serve", name] if name in NAMES:
            trio.run(serve, name)
        case [_, _, *_]:
            print(trio.run(ask, sys.argv[1:]))
        case _:
            raise SystemExit(__doc__)
