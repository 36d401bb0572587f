"""The longest address and the longest configuration: what fits, and the first that does not."""

from __future__ import annotations

import pytest

from dledger.core.membership.change_errors import ConfigurationInvalid
from dledger.core.membership.configuration import MAX_ADDRESS_CHARACTERS, Configuration
from dledger.core.membership.configuration_codec import (
    MAX_CONFIGURATION_BYTES,
    decode_configuration,
    encode_configuration,
)
from dledger.errors import ConfigurationMalformed

# RFC 1035, 2.3.4: 255 octets with the first length and the root, which are 253 characters as text.
LONGEST_HOST = ".".join(["h" * 63, "h" * 63, "h" * 63, "h" * 61])
HIGHEST_PORT = ":65535"


def alone_at(address: str) -> Configuration:
    return Configuration(voters=frozenset("a"), addresses={"a": address})


def test_the_longest_host_name_with_the_longest_port_is_an_address() -> None:
    address = LONGEST_HOST + HIGHEST_PORT
    assert len(address) == MAX_ADDRESS_CHARACTERS
    group = alone_at(address)
    assert decode_configuration(encode_configuration(7, group)) == (7, group)


def test_an_address_one_character_longer_is_refused() -> None:
    with pytest.raises(ConfigurationInvalid, match="no address for a"):
        alone_at("h" + LONGEST_HOST + HIGHEST_PORT)


def test_a_configuration_of_the_most_bytes_is_decoded_and_one_more_byte_is_not() -> None:
    # Neither is a configuration: the errors tell whether the bytes were looked at.
    with pytest.raises(ConfigurationMalformed, match="not msgpack"):
        decode_configuration(b"\x01" * MAX_CONFIGURATION_BYTES)
    longer = MAX_CONFIGURATION_BYTES + 1
    with pytest.raises(ConfigurationMalformed, match=f"{longer} bytes .*at most"):
        decode_configuration(b"\x01" * longer)
