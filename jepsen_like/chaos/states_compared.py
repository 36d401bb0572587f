"""The states of members side by side, once all of them have applied the same."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from typing import NamedTuple

from jepsen_like.simulation.service.fingerprint import difference

# A call that was given up may still be appended while the members are looked at, one after the
# other. No client makes new ones, so a few rounds are enough.
MAX_ROUNDS = 20


class Look(NamedTuple):
    """What a member showed: its state, behind the entry at `after`; what is wrong with it."""

    after: int
    state: object
    broken: str | None


async def looks_at_the_same(
    names: Collection[str], look: Callable[[str], Awaitable[Look | None]]
) -> dict[str, Look]:
    """Look at members until all show their state behind the same entry.

    Args:
        names: the members.
        look: at one of them; None if it shows nothing, which is not tried again.

    Returns:
        The last look at each. Those of members that never reached the others differ in `after`.
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
    """A sentence for each member whose state is not that of the first: where, and both values.

    Args:
        states: plain values, by the names of the members.
    """
    first = next(iter(states), "")
    for name, state in states.items():
        if state != states[first]:
            where = difference(states[first], state)
            yield f"the states of {first} and {name} differ in the end: on {first}, {where}"
