"""A lock that survives its holder: two workers, one dies, the other takes over.

    python lock_service.py serve n0      (and n1, and n2: each in a terminal of its own)
    python lock_service.py work red      (in a fourth)
    python lock_service.py work blue     (in a fifth: it waits. Now kill red)
    python lock_service.py watch         (who holds the lock, from now on)

What the lock protects is the file `protected.txt`. It remembers the largest token that it was
shown, and refuses smaller ones: so a worker that was frozen, and believes that it still holds the
lock, can do no harm when it wakes up.
"""

import os
import sys
from pathlib import Path

import trio

import dledger
from dledger.machines import LockCalls, Objects, ReplicatedLocks

FIRST_PORT = int(os.environ.get("LOCKS_PORT", "21321"))
PEERS = {f"n{i}": f"127.0.0.1:{FIRST_PORT + i}" for i in range(3)}
LEASE_S = 2.0
PAUSE_S = 0.2
PROTECTED = Path("protected.txt")


async def serve(name: str) -> None:
    """Run one member of the group that keeps the locks."""
    machine = dledger.WithSessions(Objects(locks=ReplicatedLocks()))
    config = dledger.NodeConfig(
        group="locks", node_id=name, peers=PEERS, data_dir=Path("locks-data")
    )
    async with dledger.open_node(config, machine):
        print(f"{name} runs", flush=True)
        await trio.sleep_forever()


async def work(name: str) -> None:
    """Do the work whenever the lock is ours; never give up."""
    while True:
        client = dledger.GroupClient("locks", PEERS)
        async with client.session() as session:  # of its own: renewals must not wait
            print(f"{name} waits for the lock", flush=True)
            try:
                async with LockCalls("locks", session).hold("printer", lease_s=LEASE_S) as token:
                    print(f"{name} has the lock, token {token}", flush=True)
                    while True:
                        write(name, token)
                        await trio.sleep(PAUSE_S)
            except dledger.DLedgerError as error:  # the lease ended before we could renew it
                print(f"{name} lost it: {error}", flush=True)


async def watch() -> None:
    """Tell who holds the lock. A renewal changes a lock, too: its holder stays."""
    told = ""
    async with dledger.connect(PEERS, group="locks") as log:
        async for event in log.watch("locks", "printer"):
            found = (await log.query("locks.holding", "printer", stale=True)).result
            now = f"token {found[0]} holds the lock" if isinstance(found, list) else "it is free"
            if now != told:
                print(f"{event.index}: {now}", flush=True)
            told = now


def write(name: str, token: int) -> None:
    """Write to the protected file. Raises SystemExit if the token is an old one."""
    lines = PROTECTED.read_text().splitlines() if PROTECTED.exists() else []
    newest = int(lines[-1].split()[0]) if lines else 0
    if token < newest:
        raise SystemExit(f"token {token} is refused: {newest} was here already")
    with PROTECTED.open("a") as protected:
        protected.write(f"{token} {name}\n")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["serve", name] if name in PEERS:
            trio.run(serve, name)
        case ["work", name]:
            trio.run(work, name)
        case ["watch"]:
            trio.run(watch)
        case _:
            raise SystemExit(__doc__)
