"""A key-value store on three processes, and a client of it.

    python key_value_store.py serve n0          (and n1, and n2: each in a terminal of its own)
    python key_value_store.py set colour blue
    python key_value_store.py get colour
    python key_value_store.py swap colour blue green
    python key_value_store.py watch colour      (each change from now on)

A change goes through a session, so that it happens once. A `get` is a query of the state machine:
it writes nothing, and sees every change that was acknowledged before.
"""

import os
import sys
from pathlib import Path

import trio

import dledger
from dledger.machines import DictCalls, Objects, ReplicatedDict

FIRST_PORT = int(os.environ.get("KV_PORT", "21311"))
PEERS = {f"n{i}": f"127.0.0.1:{FIRST_PORT + i}" for i in range(3)}


async def serve(name: str) -> None:
    """Run one member."""
    machine = dledger.WithSessions(Objects(values=ReplicatedDict()))
    config = dledger.NodeConfig(
        group="kv",
        node_id=name,
        peers=PEERS,
        data_dir=Path("kv-data"),
        snapshots=dledger.SnapshotPolicy(every_entries=100_000),
    )
    async with dledger.open_node(config, machine):
        print(f"{name} serves", flush=True)
        await trio.sleep_forever()


async def carry_out(words: list[str]) -> None:
    """Carry out one command, by any members that answer."""
    async with dledger.connect(PEERS, group="kv") as log:
        match words:
            case ["get", key]:
                print((await log.query("values.get", key)).result)
            case ["watch", key]:
                async for event in log.watch("values", key):
                    print(told(event), flush=True)
            case ["set", key, value]:
                async with log.session() as session:
                    await DictCalls(session, "values").set(key, value)
                print("done")
            case ["swap", key, old, new]:
                async with log.session() as session:
                    swapped = await DictCalls(session, "values").replace(key, old, new)
                print("done" if swapped else "it was something else")
            case _:
                print("say get KEY, set KEY VALUE, swap KEY OLD NEW, or watch KEY")


def told(event: dledger.ValueSet | dledger.ValueDeleted | dledger.WatchedState) -> str:
    """An event in words."""
    match event:
        case dledger.WatchedState(index, values):
            return f"{index}: it is {next(iter(values.values()), None)}"
        case dledger.ValueSet(index, _, value):
            return f"{index}: set to {value}"
        case dledger.ValueDeleted(index, _):
            return f"{index}: removed"


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["serve", name] if name in PEERS:
            trio.run(serve, name)
        case [_, _, *_]:
            trio.run(carry_out, sys.argv[1:])
        case _:
            raise SystemExit(__doc__)
