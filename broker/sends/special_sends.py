"""Sends that a feature handles in its own way, because of a property of the message.

Each feature registers the properties that select its messages.
"""

from collections.abc import Iterable, Mapping
from typing import Final, Protocol

from broker.errors import RequestRefused
from broker.sends.pending_messages import PendingSend
from broker.serving.parts import Shared
from remoting.message.properties import decode_properties
from remoting.message.record_batch import RecordBatch


class SpecialSend(Protocol):
    """A feature's way to handle a send."""

    @property
    def names(self) -> tuple[str, ...]:
        """The properties of which a message needs at least one to be checked."""

    @property
    def most_in_batch(self) -> int:
        """Messages of a batch that may ask for it; 1 if batches may not."""

    def is_asked_for(self, pairs: Mapping[str, str]) -> bool:
        """Return whether this way applies to a message. May raise RequestRefused."""

    def prepare(self, send: PendingSend, pairs: Mapping[str, str]) -> None:
        """Change a send before it gets its place. May raise RequestRefused.

        `pairs` are the properties of the first message that asks for it.
        """


class SpecialSends:
    """The ways of all features."""

    def __init__(self) -> None:
        self._ways: list[SpecialSend] = []
        self._names: frozenset[bytes] = frozenset()

    def add(self, way: SpecialSend) -> None:
        """Add a way. If several ways apply to a send, those added earlier come first."""
        self._ways.append(way)
        self._names |= {name.encode() for name in way.names}

    def prepare(self, send: PendingSend) -> None:
        """Apply the ways that the message's properties ask for.

        Raises RequestRefused: (13) a message of a batch asks for one; or as the way itself.
        """
        records = send.records
        if len(records) == 1:
            if self._may_ask(records[0].properties):
                self._treat(send, [records[0].properties])
            return
        runs = (
            records.properties
            if isinstance(records, RecordBatch)
            else [record.properties for record in records]
        )
        if self._may_ask(b"\x02".join(runs)):
            self._treat(send, [run for run in runs if self._may_ask(run)])

    def _may_ask(self, properties: bytes) -> bool:
        """Return whether a run of properties has one of the names. Most messages have none."""
        return not self._names.isdisjoint(properties.replace(b"\x02", b"\x01").split(b"\x01"))

    def _treat(self, send: PendingSend, runs: Iterable[bytes]) -> None:
        asked: dict[SpecialSend, Mapping[str, str]] = {}
        for run in runs:
            pairs = decode_properties(run)
            for way in self._ways:
                if way in asked or not way.is_asked_for(pairs):
                    continue
                if len(send.records) > way.most_in_batch:
                    names = f"one of the properties {', '.join(way.names)}"
                    raise RequestRefused.illegal(
                        f"a message of a batch has {names}: send it by itself"
                        if way.most_in_batch == 1
                        else f"a batch of {len(send.records)} messages, of which one has {names}: "
                        f"send up to {way.most_in_batch} together"
                    )
                asked[way] = pairs
                way.prepare(send, pairs)


SPECIAL_SENDS: Final = Shared("special sends", lambda _parts: SpecialSends())
