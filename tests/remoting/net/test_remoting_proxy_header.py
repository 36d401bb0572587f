"""The header of the PROXY protocol: as the specification has it, and nothing else."""

from __future__ import annotations

import ipaddress
from contextlib import suppress
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remoting.net.address import Address
from remoting.net.proxy_header import (
    HEAD_BYTES,
    MAX_HEADER_BYTES,
    ProxyHeader,
    ProxyHeaderMalformed,
    decode_proxy_header,
    encode_proxy_header,
    proxy_header_bytes,
)

VERSIONS: st.SearchStrategy[Literal[4, 6]] = st.sampled_from((4, 6))
ports = st.integers(0, 65535)


@given(VERSIONS, st.data(), ports, ports, st.binary(max_size=400))
def test_what_is_encoded_is_decoded_whatever_fields_follow(
    version: Literal[4, 6], data: st.DataObject, port: int, other: int, fields: bytes
) -> None:
    hosts = [str(data.draw(st.ip_addresses(v=version))) for _ in range(2)]
    client = Address(hosts[0], port)
    header = encode_proxy_header(client, Address(hosts[1], other))
    length = int.from_bytes(header[14:16], "big") + len(fields)
    whole = header[:14] + length.to_bytes(2, "big") + header[16:] + fields
    assert proxy_header_bytes(whole[:HEAD_BYTES]) == len(whole)
    found = decode_proxy_header(whole).client
    assert found is not None
    assert ipaddress.ip_address(found.host) == ipaddress.ip_address(client.host)
    assert found.port == port


def test_the_bytes_are_those_of_the_specification() -> None:
    header = encode_proxy_header(Address("10.1.2.3", 0x1234), Address("10.0.0.1", 10911))
    assert header.hex(" ") == (
        "0d 0a 0d 0a 00 0d 0a 51 55 49 54 0a 21 11 00 0c 0a 01 02 03 0a 00 00 01 12 34 2a 9f"
    )


def test_a_local_header_and_one_of_another_kind_name_no_client() -> None:
    signature = bytes.fromhex("0d0a0d0a000d0a515549540a")
    assert decode_proxy_header(signature + b"\x20\x00\x00\x00") == ProxyHeader(None)
    assert decode_proxy_header(signature + b"\x21\x31\x00\x02xx") == ProxyHeader(None)


@given(st.binary(max_size=64), st.integers(0, 27), st.integers(1, 255))
def test_anything_else_is_refused_with_one_kind_of_error(junk: bytes, at: int, change: int) -> None:
    header = bytearray(encode_proxy_header(Address("10.1.2.3", 1), Address("10.0.0.1", 2)))
    header[at] ^= change
    for one in (junk, bytes(header), bytes(header[:at])):
        with suppress(ProxyHeaderMalformed):
            decode_proxy_header(one)


@pytest.mark.parametrize("length", [MAX_HEADER_BYTES - HEAD_BYTES + 1, 65535])
def test_a_header_that_is_too_long_is_refused_before_it_is_read(length: int) -> None:
    head = encode_proxy_header(Address("10.1.2.3", 1), Address("10.0.0.1", 2))[:14]
    with pytest.raises(ProxyHeaderMalformed, match="more than 536"):
        proxy_header_bytes(head + length.to_bytes(2, "big"))


def test_addresses_of_different_kinds_make_no_header() -> None:
    with pytest.raises(ValueError, match="different kinds"):
        encode_proxy_header(Address("10.1.2.3", 1), Address("::1", 2))
