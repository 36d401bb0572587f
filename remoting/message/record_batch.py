"""The records of a batch send, in columns: alike but for bodies, properties, flags and offsets.

An object a message takes as long as all else that a broker does with the messages of a batch before
they are in its log.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias

from remoting.message.record import MessageRecord, encode_parts_alike


class RecordBatch:
    """Records of one queue, in a row. Its items are copies: changes to those are lost.

    Args:
        shared: see below.
        bodies, properties, flags: of the records, as many of each.

    Attributes:
        shared: what all have in common, with the queue offset of the first one. Body, properties
            and flag of it are nobody's.
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
        """Each record as `remoting.message.record.encode_record_parts` has it.

        Raises:
            MessageMalformed: as there; none of them can be stored then.
        """
        return encode_parts_alike(self.shared, self.bodies, self.properties, self.flags)


Records: TypeAlias = Sequence[MessageRecord] | RecordBatch
