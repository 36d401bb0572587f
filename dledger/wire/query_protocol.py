"""Requests of clients that query a state machine, and the answers. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgpack

from dledger.errors import MessageMalformed
from dledger.query_errors import QueryInvalid
from dledger.short_repr import short_repr
from dledger.wire.client_protocol import HIGHEST, Operation, Request, encode_answer

# A query is small: it names what to look up. Larger values are better appended.
MAX_ARGUMENT_BYTES = 64 * 1024
# Elements of one list or dict in the arguments: a few bytes can announce any number at each level
# of nesting, and room for all of them is made at once.
MAX_ARGUMENT_ELEMENTS = 4_096
# The same as in other answers of a member, so that one query delays no other request for long.
MAX_RESULT_BYTES = 1024 * 1024

MAX_NAME_CHARACTERS = 255

_LINEARIZABLE, _STALE = 0, 1


class Query(NamedTuple):
    """One query.

    Attributes:
        name, arguments: of the method.
        stale: whether the state may be older than other members'.
        max_lag_ms: the greatest allowed lag of a stale state.
        after: an entry that the state has to include.
        wait_ms: how long the member waits for it.
    """

    name: str
    arguments: Sequence[object]
    stale: bool = False
    max_lag_ms: int | None = None
    after: int | None = None
    wait_ms: int = 0


class Queried(NamedTuple):
    """The answer to a query.

    Attributes:
        result: of the method; tuples have become lists.
        index: the last entry that the state included.
        member: the member that answered.
    """

    result: object
    index: int  # type: ignore[assignment]  # hides tuple.index
    member: str

    def __repr__(self) -> str:
        return short_repr(self)


def encode_query(query: Query) -> tuple[Operation, Sequence[int], bytes]:
    """Encode a query as the fields of a request. Raises QueryInvalid."""
    name, arguments, stale, max_lag_ms, after, wait_ms = query
    if after is not None and after > HIGHEST:
        raise QueryInvalid(name, f"there can be no entry {after}")
    numbers = [
        _STALE if stale else _LINEARIZABLE,
        0 if max_lag_ms is None else max_lag_ms + 1,
        0 if after is None else max(after, -1) + 2,
        wait_ms,
    ]
    try:
        payload: bytes = msgpack.packb([name, *arguments])
    except (TypeError, ValueError, OverflowError) as error:
        raise QueryInvalid(
            str(name)[:MAX_NAME_CHARACTERS], _not_plain("an argument", error)
        ) from None
    _check_size(name, payload)
    return Operation.QUERY, numbers, payload


def decode_query(request: Request) -> Query:
    """Decode a query. Raises MessageMalformed, QueryInvalid."""
    match request.numbers:
        case [kind, lag, after, wait_ms] if kind in (_LINEARIZABLE, _STALE):
            pass
        case _:
            raise MessageMalformed("a query takes a kind, an age, an entry and a wait in ms")
    _check_size("", request.payload)
    try:
        parts = msgpack.unpackb(
            request.payload,
            strict_map_key=False,
            max_array_len=MAX_ARGUMENT_ELEMENTS,
            max_map_len=MAX_ARGUMENT_ELEMENTS,
            max_ext_len=0,  # only msgpack's plain types are used
        )
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        problem = f"arguments that are not plain, or more than {MAX_ARGUMENT_ELEMENTS} in one list"
        raise MessageMalformed(problem) from error
    match parts:
        case [str(name), *arguments] if len(name) <= MAX_NAME_CHARACTERS:
            return Query(
                name,
                arguments,
                kind == _STALE,
                lag - 1 if lag else None,
                after - 2 if after else None,
                wait_ms,
            )
        case _:
            raise MessageMalformed("a query without a name")


def _check_size(name: str, payload: bytes) -> None:
    if len(payload) > MAX_ARGUMENT_BYTES:
        problem = f"arguments of {len(payload)} bytes; the limit is {MAX_ARGUMENT_BYTES}"
        raise QueryInvalid(name, problem)


def encode_queried(request_id: int, name: str, queried: Queried) -> bytes:
    """Encode the answer to a query. Raises QueryInvalid."""
    try:
        payload: bytes = msgpack.packb(queried.result)
    except (TypeError, ValueError, OverflowError) as error:
        raise QueryInvalid(name, _not_plain("the result", error)) from None
    if len(payload) > MAX_RESULT_BYTES:
        problem = f"a result of {len(payload)} bytes; the limit is {MAX_RESULT_BYTES}: ask for less"
        raise QueryInvalid(name, problem)
    return encode_answer(request_id, [queried.index, queried.member], payload)


def decode_queried(value: object, payload: bytes) -> Queried:
    """Decode the answer to a query. Raises MessageMalformed."""
    match value:
        case [int(index), str(member)]:
            pass
        case _:
            raise MessageMalformed("an answer to a query with wrong fields")
    try:
        return Queried(msgpack.unpackb(payload, strict_map_key=False), index, member)
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise MessageMalformed("a result that is not msgpack") from error


def _not_plain(what: str, error: Exception) -> str:
    return f"{what} is not made of plain values ({error})"
