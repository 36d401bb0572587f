from dataclasses import FrozenInstanceError, replace

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger.core.membership.change_errors import (
    ConfigurationInvalid,
)
from dledger.core.membership.configuration import (
    MAX_ADDRESS_CHARACTERS,
    MAX_ID_BYTES,
    MAX_LEARNERS,
    MAX_VOTERS,
    Configuration,
)
from dledger.core.membership.configuration_codec import (
    MAX_CONFIGURATION_BYTES,
    decode_configuration,
    encode_configuration,
)
from dledger.errors import (
    ConfigurationMalformed,
    MessageMalformed,
)
from dledger.store.hard_state_file import MAX_NAME_BYTES
from tests.dledger.core.configurations import address_of, configuration, configurations

JOINT = configuration("abd", "abc", "e", "c", auto_leave=True)


def many(count: int) -> list[str]:
    return [f"m{number}" for number in range(count)]


# --- what a configuration may be ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("halves", "problem"),
    [
        (("ab", "", "b"), "both learner and voter"),
        (("a", "ab", "b"), "both learner and voter"),
        (("ab", "ac", "", "b"), "in learners_next, and not outgoing"),
        (("ab", "abc", "", "a"), "in learners_next, and to stay a voter"),
        (("", "", "a"), "no voters"),
        (("", "ab"), "no voters"),
        ((many(MAX_VOTERS + 1),), "more than 9 voters"),
        (("a", many(MAX_VOTERS + 1)), "more than 9 voters"),
        (("a", "", many(MAX_LEARNERS + 1)), "10 learners; at most 9"),
        (("a", "b", many(MAX_LEARNERS), "b"), "10 learners; at most 9"),
    ],
)
def test_a_configuration_that_contradicts_itself_cannot_be_made(
    halves: tuple[list[str] | str, ...], problem: str
) -> None:
    with pytest.raises(ConfigurationInvalid, match=problem):
        configuration(*halves)


def test_only_a_joint_configuration_is_left() -> None:
    with pytest.raises(ConfigurationInvalid, match="auto_leave"):
        configuration("abc", auto_leave=True)


@pytest.mark.parametrize("voters", ["a", "abc"])
def test_addresses_are_those_of_the_members_and_of_nobody_else(voters: str) -> None:
    addresses = {"a": address_of("a"), "b": address_of("b")}
    with pytest.raises(ConfigurationInvalid, match="addresses and members differ"):
        Configuration(voters=frozenset(voters), addresses=addresses)


def test_two_members_cannot_share_an_address() -> None:
    with pytest.raises(ConfigurationInvalid, match="the same address"):
        Configuration(voters=frozenset("ab"), addresses=dict.fromkeys("ab", "h:1"))


@pytest.mark.parametrize(
    "address",
    [
        "", "h", ":1", "h:", "h:0", "h:01", "h:-1", "h:65536", "h:x", "h h:1", "h\n:1", "é:1",
        "h:" + "1" * 5_000, "h" * MAX_ADDRESS_CHARACTERS + ":1", "h:²",
    ],
)  # fmt: skip
def test_an_address_that_nobody_can_dial_is_refused(address: str) -> None:
    with pytest.raises(ConfigurationInvalid, match="no address for a"):
        Configuration(voters=frozenset("a"), addresses={"a": address})


@pytest.mark.parametrize("address", ["localhost:1", "10.0.0.1:65535", "[::1]:20911", "a.b-c:80"])
def test_an_address_is_host_and_port(address: str) -> None:
    group = Configuration(voters=frozenset("a"), addresses={"a": address})
    assert group.addresses["a"] == address


@pytest.mark.parametrize("member", ["", "a b", "a/b", "a\0", "a=b", "n" * 65, "\u4e2d" * 43])
def test_an_id_that_does_not_fit_into_the_record_or_a_path_is_refused(member: str) -> None:
    with pytest.raises(ConfigurationInvalid, match="no member id"):
        Configuration(voters=frozenset([member]), addresses={member: "h:1"})


def test_an_id_that_a_configuration_takes_fits_where_votes_are_kept() -> None:
    assert MAX_ID_BYTES <= MAX_NAME_BYTES


def test_a_configuration_cannot_be_altered() -> None:
    addresses = {"a": address_of("a")}
    group = Configuration(voters=frozenset("a"), addresses=addresses)
    addresses["a"] = "elsewhere:1"
    assert group.addresses == {"a": address_of("a")}
    with pytest.raises(TypeError):
        group.addresses["a"] = "elsewhere:1"  # type: ignore[index]
    with pytest.raises(FrozenInstanceError):
        group.voters = frozenset("b")  # type: ignore[misc]


def test_equal_configurations_are_equal_and_one_address_makes_a_difference() -> None:
    group = configuration("abc")
    assert group == configuration("cba")
    assert hash(group) == hash(configuration("cba"))
    assert group != replace(group, addresses={**group.addresses, "a": "elsewhere:1"})


def test_a_member_that_votes_and_who_only_listens_is_told_apart() -> None:
    assert JOINT.is_joint
    assert JOINT.voting_members == frozenset("abcd")
    assert JOINT.members == frozenset("abcde")
    assert not configuration("abc").is_joint
    assert Configuration().members == frozenset()


def test_a_configuration_is_one_line_of_text() -> None:
    assert str(JOINT) == "voters=(a b d)&&(a b c) learners=(e) learners_next=(c) auto_leave"
    assert str(configuration("abc")) == "voters=(a b c)"


# --- its bytes ------------------------------------------------------------------------------------


@given(st.integers(-1, 2**63 - 1), configurations())
def test_what_is_written_is_read_back(index: int, group: Configuration) -> None:
    data = encode_configuration(index, group)
    assert decode_configuration(data) == (index, group)


def test_the_bytes_of_a_configuration_stay_what_they_are() -> None:
    assert encode_configuration(7, configuration("ba", "", "c")).hex() == (
        "98" "01" "07" "92a161a162" "90" "91a163" "90" "c2"
        "93af612e6578616d706c653a3230393131af622e6578616d706c653a3230393131"
        "af632e6578616d706c653a3230393131"
    )  # fmt: skip


def test_the_largest_configuration_there_can_be_is_read() -> None:
    def names(first: str, count: int) -> list[str]:
        return [first + str(number) + "\u0101" * (64 - 2) for number in range(count)]

    voters, outgoing = names("v", MAX_VOTERS), names("w", MAX_VOTERS)
    everybody = [*voters, *outgoing]
    host = "h" * (MAX_ADDRESS_CHARACTERS - 6 - 2)
    group = Configuration(
        voters=frozenset(voters),
        outgoing=frozenset(outgoing),
        learners_next=frozenset(outgoing),
        auto_leave=True,
        addresses={m: f"{host}{at:02}:20911" for at, m in enumerate(everybody)},
    )
    data = encode_configuration(2**63 - 1, group)
    assert len(data) <= MAX_CONFIGURATION_BYTES
    assert decode_configuration(data).configuration == group


def fields() -> list[object]:
    unpacked = msgpack.unpackb(encode_configuration(7, JOINT))
    assert isinstance(unpacked, list)
    return unpacked


@pytest.mark.parametrize(
    ("at", "value", "problem"),
    [
        (0, 2, "version 2 .* upgrade it"),
        (0, True, "version True"),
        (0, "1", "version '1'"),
        (1, -2, "-2 where an index belongs"),
        (1, 2**63, "where an index belongs"),
        (1, None, "None where an index belongs"),
        (1, True, "True where an index belongs"),
        (2, [], "without voters"),
        (2, ["b", "a", "d"], "ids that do not ascend"),
        (2, ["a", "a", "d"], "ids that do not ascend"),
        (2, ["a", 1], "not text in a list"),
        (2, [b"a"], "not text in a list"),
        (2, "abd", "str where a list of texts belongs"),
        (2, {"a": 1}, "dict where a list of texts belongs"),
        (2, ["a", "b", "d/d"], "no member id"),
        (4, ["a"], "4 members"),
        (5, ["e"], "not outgoing"),
        (6, 1, "1 where true or false belongs"),
        (7, [], "0 addresses of 5 members"),
        (7, ["h:1", "h:2", "h:3", "h:4", 5], "not text in a list"),
        (7, ["h:1", "h:2", "h:3", "h:4", "h:4"], "the same address"),
        (7, ["h:1", "h:2", "h:3", "h:4", "h"], "no address for e"),
    ],
)
def test_every_field_of_a_configuration_is_checked(at: int, value: object, problem: str) -> None:
    wrong = fields()
    wrong[at] = value
    with pytest.raises(ConfigurationMalformed, match=problem):
        decode_configuration(msgpack.packb(wrong))


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "not msgpack"),
        (b"\xc1", "not msgpack"),
        (b"\x98", "not msgpack"),
        (b"\x91\xa1\xff", "not msgpack"),
        (b"\x91" * 2_000, "not msgpack"),
        (b"\x80", "not an array"),
        (b"\x90", "not an array"),
        (b"\x91\x01", "1 fields where 8 belong"),
        (b"\x01" * (MAX_CONFIGURATION_BYTES + 1), "at most"),
    ],
)
def test_bytes_that_are_no_configuration_are_refused(data: bytes, problem: str) -> None:
    with pytest.raises(ConfigurationMalformed, match=problem):
        decode_configuration(data)


def test_there_is_only_one_way_to_write_a_configuration() -> None:
    data = encode_configuration(7, JOINT)
    long_number = data[:2] + b"\xcd\x00\x07" + data[3:]
    assert msgpack.unpackb(long_number) == msgpack.unpackb(data)
    with pytest.raises(ConfigurationMalformed, match="not in canonical form"):
        decode_configuration(long_number)


@given(st.binary(max_size=80))
def test_arbitrary_bytes_give_an_error_of_the_tree_or_what_they_were_written_from(
    data: bytes,
) -> None:
    try:
        numbered = decode_configuration(data)
    except MessageMalformed:
        return
    assert encode_configuration(*numbered) == data


@given(configurations(), st.data())
def test_a_changed_byte_never_gives_another_error_than_that_of_the_tree(
    group: Configuration, data: st.DataObject
) -> None:
    whole = bytearray(encode_configuration(7, group))
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] = data.draw(st.integers(0, 255))
    try:
        numbered = decode_configuration(bytes(whole))
    except ConfigurationMalformed:
        return
    assert encode_configuration(*numbered) == whole
