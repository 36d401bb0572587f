"""The records of a batch send, in columns of bodies, properties and flags.

Making an object for each message takes as long as everything else that a broker does with the
messages of a batch before they are in its log.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias

from remoting.message.record import MessageRecord, encode_parts_alike


class RecordBatch:
    """Successive records of one queue. Its items are copies: changes to them are lost.

    Attributes:
        shared: the common fields, with the queue offset of the first record. Its body, properties
            and flag are not used.
        bodies: as stored.
        properties: a run for each.
        flags: the users' numbers.
    """

    __slots__ = ("bodies", "flags", "properties", "shared")

    def __init__(
        self,
        shared: MessageRecord,
        bodies: Sequence[bytes],
        properties: Sequence[bytes],
        flags: Sequence[int],
    ) -> None:
        self.shared = shared
        self.bodies = bodies
        self.properties = properties
        self.flags = flags

    def __len__(self) -> int:
        return len(self.bodies)

    def __iter__(self) -> Iterator[MessageRecord]:
        return map(self.__getitem__, range(len(self.bodies)))

    def __getitem__(self, at: int) -> MessageRecord:
        return replace(
            self.shared,
            body=self.bodies[at],
            properties=self.properties[at],
            flag=self.flags[at],
            queue_offset=self.shared.queue_offset + at,
        )

    def encode_parts(self) -> list[tuple[bytes, bytes]]:
        """Encode each record like `record.encode_record_parts`. Raises MessageMalformed for all of
        them.
        """
        return encode_parts_alike(self.shared, self.bodies, self.properties, self.flags)


Records: TypeAlias = Sequence[MessageRecord] | RecordBatch
