"""The bytes of a configuration, in entries of magic 3 and in snapshots.

A msgpack array, the same in both places:

===== ============= ===========================================================================
 at   field         value
===== ============= ===========================================================================
   0  version       1
   1  index         of an entry that brought a configuration, or -1 for the one a group began
                    with. In a snapshot: of the configuration itself. In an entry: of the one
                    that it changes; the entry's own index is in its header
   2  voters        ids, each once, in ascending order; so are the next three
   3  outgoing
   4  learners
   5  learners_next
   6  auto_leave    boolean
   7  addresses     host:port of every member, in ascending order of their ids
===== ============= ===========================================================================

Each configuration has one canonical form, and no other is accepted: equal configurations have
equal bytes on all members. An entry names the configuration that it changes, so the change is a
compare and set on every member that applies it. The name also tells a member that finds the entry
in its log after a restart that the named configuration is committed: the leader had applied it.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import msgpack

from dledger.core.membership.change_errors import ConfigurationInvalid
from dledger.core.membership.configuration import (
    MAX_ADDRESS_CHARACTERS,
    MAX_ID_BYTES,
    MAX_LEARNERS,
    MAX_VOTERS,
    Configuration,
)
from dledger.entry import BEFORE_FIRST_INDEX
from dledger.errors import ConfigurationMalformed

VERSION = 1

_FIELDS = 8
_MAX_MEMBERS = 2 * MAX_VOTERS + MAX_LEARNERS
# Every member in its longest form, in two of the lists (outgoing and learners_next) and with an
# address; the rest are a few bytes for each length. Longer input is refused without decoding.
MAX_CONFIGURATION_BYTES = 64 + _MAX_MEMBERS * (2 * (MAX_ID_BYTES + 2) + MAX_ADDRESS_CHARACTERS + 3)

_HIGHEST_INDEX = 2**63 - 1


class NumberedConfiguration(NamedTuple):
    """A configuration and the index that is encoded with it; see the table of the module."""

    index: int  # type: ignore[assignment]  # hides tuple.index
    configuration: Configuration


def encode_configuration(index: int, configuration: Configuration) -> bytes:
    addresses = [configuration.addresses[member] for member in sorted(configuration.members)]
    packed: bytes = msgpack.packb(
        [
            VERSION,
            index,
            sorted(configuration.voters),
            sorted(configuration.outgoing),
            sorted(configuration.learners),
            sorted(configuration.learners_next),
            configuration.auto_leave,
            addresses,
        ]
    )
    return packed


def decode_configuration(data: bytes) -> NumberedConfiguration:
    """Decode a configuration and its index. Raises ConfigurationMalformed."""
    if len(data) > MAX_CONFIGURATION_BYTES:
        raise ConfigurationMalformed(
            f"{len(data)} bytes for a configuration; at most {MAX_CONFIGURATION_BYTES}"
        )
    try:
        fields = msgpack.unpackb(data, max_array_len=_MAX_MEMBERS, max_ext_len=0)
    # RecursionError cannot occur: msgpack's own depth limit raises a ValueError.
    except (ValueError, msgpack.UnpackException) as error:
        raise ConfigurationMalformed(
            f"a configuration that is not msgpack ({type(error).__name__})"
        ) from error
    if not isinstance(fields, list) or not fields:
        raise ConfigurationMalformed("a configuration that is not an array")
    if type(fields[0]) is not int or fields[0] != VERSION:
        raise ConfigurationMalformed(
            f"version {_shown(fields[0])} of configurations; this node reads {VERSION}: upgrade it"
        )
    if len(fields) != _FIELDS:
        raise ConfigurationMalformed(f"{len(fields)} fields where {_FIELDS} belong")
    numbered = NumberedConfiguration(_index(fields[1]), _configuration(fields))
    if encode_configuration(*numbered) != data:
        raise ConfigurationMalformed("a configuration that is not in canonical form")
    return numbered


def _configuration(fields: list[object]) -> Configuration:
    voters, outgoing, learners, learners_next = (_ids(field) for field in fields[2:6])
    auto_leave = fields[6]
    if type(auto_leave) is not bool:
        raise ConfigurationMalformed(f"{_shown(auto_leave)} where true or false belongs")
    if not voters:
        raise ConfigurationMalformed("a configuration without voters")
    members = sorted({*voters, *outgoing, *learners})
    addresses = _texts(fields[7])
    if len(addresses) != len(members):
        raise ConfigurationMalformed(f"{len(addresses)} addresses of {len(members)} members")
    try:
        return Configuration(
            voters=frozenset(voters),
            outgoing=frozenset(outgoing),
            learners=frozenset(learners),
            learners_next=frozenset(learners_next),
            auto_leave=auto_leave,
            addresses=dict(zip(members, addresses, strict=True)),
        )
    except ConfigurationInvalid as error:
        raise ConfigurationMalformed(error.problem) from error


def _shown(field: object) -> str:
    # repr fails on deeply nested values.
    return type(field).__name__ if isinstance(field, list | dict) else repr(field)[:40]


def _index(field: object) -> int:
    if type(field) is not int or not BEFORE_FIRST_INDEX <= field <= _HIGHEST_INDEX:
        raise ConfigurationMalformed(f"{_shown(field)} where an index belongs")
    return field


def _ids(field: object) -> list[str]:
    ids = _texts(field)
    if any(earlier >= later for earlier, later in pairwise(ids)):
        raise ConfigurationMalformed("ids that do not ascend")
    return ids


def _texts(field: object) -> list[str]:
    if not isinstance(field, list):
        raise ConfigurationMalformed(f"{type(field).__name__} where a list of texts belongs")
    texts = [text for text in field if isinstance(text, str)]
    if len(texts) != len(field):
        raise ConfigurationMalformed("a value that is not text in a list of texts")
    return texts
