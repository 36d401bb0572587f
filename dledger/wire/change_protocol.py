"""Encodes a client's request to change the group, and decodes it on the node.

A request's numbers are the transition (its place in `TRANSITIONS`) and, if the change is made for
a certain configuration, the index of that configuration + 1. Its payload is a msgpack array of
[kind, member] or [kind, member, address]; an empty array ends a joint phase. The payload of the
answer is the configuration then in force, with its index, encoded by `configuration_codec`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgpack

from dledger.core.membership.change_errors import ConfigurationInvalid
from dledger.core.membership.configuration import (
    MAX_ADDRESS_CHARACTERS,
    MAX_ID_BYTES,
    MAX_LEARNERS,
    MAX_VOTERS,
    check_address,
    check_member_id,
)
from dledger.core.membership.configuration_change import (
    AddLearner,
    AddVoter,
    Change,
    Demote,
    Promote,
    Remove,
    Transition,
    UpdateAddress,
)
from dledger.errors import MessageMalformed
from dledger.wire.client_protocol import Operation, Request

TRANSITIONS = (Transition.AUTO, Transition.JOINT, Transition.JOINT_MANUAL)

# More than a change of every member needs.
MAX_CHANGES = 2 * (2 * MAX_VOTERS + MAX_LEARNERS)
# MAX_CHANGES changes with the longest names and addresses. Longer input is refused unread.
MAX_CHANGE_BYTES = MAX_CHANGES * (MAX_ID_BYTES + MAX_ADDRESS_CHARACTERS + 16)

_WITH_ADDRESS: dict[str, type[AddVoter | AddLearner | UpdateAddress]] = {
    "add": AddVoter,
    "learner": AddLearner,
    "move": UpdateAddress,
}
_WITHOUT: dict[str, type[Promote | Demote | Remove]] = {
    "promote": Promote,
    "demote": Demote,
    "remove": Remove,
}
_KINDS: dict[type[Change], str] = {
    **{kind: name for name, kind in _WITH_ADDRESS.items()},
    **{kind: name for name, kind in _WITHOUT.items()},
}


class ChangeRequest(NamedTuple):
    changes: Sequence[Change]
    transition: Transition = Transition.AUTO
    expected: int | None = None


def encode_change(request: ChangeRequest) -> tuple[Operation, list[int], bytes]:
    """Return the operation, numbers and payload of a request.

    Raises ConfigurationInvalid for a name or an address that no member can have: a leader refuses
    such a request as malformed, which does not say that nothing was changed.
    """
    for change in request.changes:
        check_member_id(change.member)
        if isinstance(change, (AddVoter, AddLearner, UpdateAddress)):
            check_address(change.member, change.address)
    rows = [
        [
            _KINDS[type(change)],
            change.member,
            *([change.address] if hasattr(change, "address") else []),
        ]
        for change in request.changes
    ]
    numbers = [TRANSITIONS.index(request.transition)]
    if request.expected is not None:
        numbers.append(request.expected + 1)
    payload: bytes = msgpack.packb(rows)
    return Operation.CHANGE, numbers, payload


def decode_change(request: Request) -> ChangeRequest:
    """Decode the changes in a request. Raises MessageMalformed."""
    if len(request.numbers) not in (1, 2) or request.numbers[0] >= len(TRANSITIONS):
        raise MessageMalformed("a change takes a transition and at most one configuration index")
    if len(request.payload) > MAX_CHANGE_BYTES:
        raise MessageMalformed(f"more than {MAX_CHANGE_BYTES} bytes of changes")
    try:
        rows = msgpack.unpackb(
            request.payload, max_array_len=MAX_CHANGES, max_map_len=0, max_ext_len=0
        )
    except (ValueError, msgpack.UnpackException) as error:
        raise MessageMalformed("changes that are not msgpack") from error
    if not isinstance(rows, list) or len(rows) > MAX_CHANGES:
        raise MessageMalformed(f"more than {MAX_CHANGES} changes, or not a list")
    expected = request.numbers[1] - 1 if len(request.numbers) == 2 else None
    return ChangeRequest([_change(row) for row in rows], TRANSITIONS[request.numbers[0]], expected)


def _change(row: object) -> Change:
    if not isinstance(row, list) or not all(isinstance(part, str) for part in row):
        raise MessageMalformed("a change that is not a list of texts")
    try:
        match row:
            case [kind, member, address] if kind in _WITH_ADDRESS:
                check_member_id(member)
                check_address(member, address)
                return _WITH_ADDRESS[kind](member, address)
            case [kind, member] if kind in _WITHOUT:
                check_member_id(member)
                return _WITHOUT[kind](member)
    except ConfigurationInvalid as error:
        raise MessageMalformed(error.problem) from error
    raise MessageMalformed("a change of unknown kind")
