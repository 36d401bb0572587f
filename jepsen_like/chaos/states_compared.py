"""The states of members side by side, once all of them have applied the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from jepsen_like.simulation.service.fingerprint import difference


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
