"""The offset of a stream: its progress in the log of each group. Pure.

Spark keeps it as JSON in the checkpoint:

    {"v": 1, "groups": {"broker-a": {"next": 1200, "term": 3, "chain": 2868044544}}}

`next` is the first entry not read yet. `term` and `chain` are those of the entry before it, and
prove after a restart that the log is the same: the chain sum covers all entries up to there.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from dledger_spark.errors import OffsetUnreadable
from dledger_spark.log.mark import NO_CHAIN, Mark

VERSION: Final = 1
_HIGHEST: Final = 2**63 - 1


class GroupOffset(NamedTuple):
    """The progress in one log.

    Attributes:
        next: the first entry not read yet.
        before: the mark of the entry before it.
    """

    next: int
    before: Mark


def encode_offset(groups: Mapping[str, GroupOffset]) -> dict[str, Any]:
    return {
        "v": VERSION,
        "groups": {
            group: {"next": at.next, "term": at.before.term, "chain": at.before.chain}
            for group, at in groups.items()
        },
    }


def decode_offset(content: Any) -> dict[str, GroupOffset]:
    """Return the offset of each group.

    Raises:
        OffsetUnreadable: a later version wrote it, or another program.
    """
    match content:
        case {"v": int(version), "groups": dict(groups)} if version == VERSION:
            return {str(group): _group_offset(content, at) for group, at in groups.items()}
        case _:
            raise OffsetUnreadable(content)


def _group_offset(content: Any, at: Any) -> GroupOffset:
    match at:
        case {"next": int(index), "term": int(term)} if 0 <= index <= _HIGHEST:
            chain = at.get("chain", NO_CHAIN)
            if isinstance(chain, int):
                return GroupOffset(index, Mark(term, chain))
    raise OffsetUnreadable(content)
