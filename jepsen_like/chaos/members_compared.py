"""Checks that members agree at the end: on their states, after the same entries, and their logs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from dledger.errors import DLedgerError
from dledger.store.scan import StoreScan, scan_folder
from jepsen_like.fingerprint import difference

# A call that was given up may still be appended while the members are looked at, one after the
# other. No client makes new ones, so a few rounds are enough.
MAX_ROUNDS = 20


class Look(NamedTuple):
    """The state of a member after the entry `after`, and its broken invariant."""

    after: int
    state: object
    broken: str | None


async def looks_at_the_same(
    names: Collection[str], look: Callable[[str], Awaitable[Look | None]]
) -> dict[str, Look]:
    """Look at members until all show their state after the same entry; return the last looks.

    Looks at members that never reached the others differ in `after`. A failed look, None, is not
    tried again.
    """
    seen: dict[str, Look] = {}
    behind = list(names)
    for _ in range(MAX_ROUNDS):
        for name in behind:
            if (shown := await look(name)) is None:
                seen.pop(name, None)
            else:
                seen[name] = shown
        newest = max((each.after for each in seen.values()), default=0)
        behind = [name for name, each in seen.items() if each.after < newest]
        if not behind:
            break
    return seen


def state_differences(states: Mapping[str, object]) -> Iterator[str]:
    """Yield a sentence for each member whose state differs from the first one's: where, and how."""
    first = next(iter(states), "")
    for name, state in states.items():
        if state != states[first]:
            where = difference(states[first], state)
            yield f"the states of {first} and {name} differ in the end: on {first}, {where}"


def log_differences(folders: Mapping[str, Path], *, verify: bool) -> list[str]:
    """Return where committed entries of two members differ, and broken sums, in sentences.

    Equal indexes with equal chained sums mean equal histories up to there. All sums are checked as
    well with `verify`: not if the run has damaged files.
    """
    found: list[str] = []
    chains: dict[int, tuple[str, int]] = {}
    for name, folder in folders.items():
        if not folder.exists():
            continue
        try:
            scan = scan_folder(str(folder))
            if verify:
                found += [f"{name}: {problem.path}: {problem.text}" for problem in scan.verify()]
            found += _differences(name, scan, chains)
        except (DLedgerError, OSError) as error:
            found.append(f"the log of {name} cannot be read: {error}")
    return found


def _differences(name: str, scan: StoreScan, chains: dict[int, tuple[str, int]]) -> list[str]:
    for place in scan.entries(check_sums=False):
        header = place.header
        if header.index > scan.committed:
            break
        other, chain = chains.setdefault(header.index, (name, header.chain_crc))
        if chain != header.chain_crc:
            return [f"entry {header.index} of {name} is not that of {other}, and both committed it"]
    return []
