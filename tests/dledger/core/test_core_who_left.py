"""What a leader counts for a member does not outlive its removal."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping

from dledger.core.hard_state import HardState
from tests.dledger.core.configurations import configuration
from tests.dledger.core.test_core_member_changes import led_by_n0


def places_of(name: str, value: object, place: str, seen: set[int]) -> Iterator[str]:
    """Where a name is below an object of the core: as a key, as an element, or as a field."""
    if value == name:
        yield place
    if id(value) in seen or isinstance(value, str | bytes | int | float | HardState):
        return
    seen.add(id(value))
    if isinstance(value, Mapping):
        for key, each in value.items():
            yield from places_of(name, key, f"{place} key", seen)
            yield from places_of(name, each, f"{place}[{key!r}]", seen)
    elif isinstance(value, list | tuple | set | frozenset | deque):
        for each in value:
            yield from places_of(name, each, f"{place}[]", seen)
    elif type(value).__module__.startswith("dledger.core"):
        fields = [
            field for kind in type(value).__mro__ for field in kind.__dict__.get("__slots__", ())
        ]
        for field in (*fields, *getattr(value, "__dict__", ())):
            if hasattr(value, field):
                yield from places_of(name, getattr(value, field), f"{place}.{field}", seen)


def test_tallies_that_follow_a_configuration_forget_the_others() -> None:
    """One of the same name may come, with an empty disk: what another has said is not its own."""
    group = led_by_n0(3)
    group.propose("n0", 3)
    group.run()
    leader = group["n0"].replica
    tallies = [leader.leadership.acks, leader.member_reads.index]
    remaining = configuration(["n0", "n2"])
    for tally in tallies:
        assert tally is not None
        assert any("_quorum" not in at for at in places_of("n1", tally, "", set())), tally
        tally.follow(remaining.quorum, remaining.members)
        assert list(places_of("n1", tally, "", set())) == []
