"""What tells two groups of one name apart travels with every channel that is opened."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger.core.orphans import Orphans
from dledger.errors import LogCorrupt, MessageMalformed
from dledger.machine_kind import UNKNOWN_MACHINE, MachineKind
from dledger.store.disk import OsDisk
from dledger.store.generation import Generation
from dledger.store.generation_file import GenerationFile
from dledger.wire.channel_protocol import (
    ABOUT_ITSELF,
    MACHINE_KIND,
    MAX_PROCESS,
    Opening,
    decode_about_itself,
    decode_call,
    decode_machine_kind,
    encode_opening,
)
from dledger.wire.frame import FrameDecoder, encode_frame
from dledger.wire.group_identity import (
    GroupIdentity,
    superseded_reason,
    superseding_generation,
)

MARK, OTHER_MARK = "0123456789abcdef", "fedcba9876543210"
HEX = "0123456789abcdef"
MARKS = st.text(HEX, min_size=16, max_size=16)
GENERATIONS = st.builds(
    Generation, st.integers(1, 999_999_999), st.one_of(st.just(""), MARKS)
) | st.just(Generation())
IDENTITIES = st.builds(
    GroupIdentity,
    GENERATIONS,
    st.one_of(st.just(""), MARKS),
    st.one_of(st.just(""), st.text(HEX, min_size=32, max_size=32)),
    st.just(UNKNOWN_MACHINE),
    st.just(0),
    st.none(),
)
INDEXES = st.tuples(st.integers(0, 2**62 - 1), st.integers(0, 2**62 - 1))
ORPHANS = st.none() | st.builds(lambda ends: Orphans(*sorted(ends)), INDEXES)
KINDS = st.builds(MachineKind, st.text(max_size=64), st.integers(0, 2**31 - 1), st.booleans())


@given(KINDS)
def test_the_kind_of_a_machine_is_told_before_the_channel_opens(kind: MachineKind) -> None:
    opening = Opening(3, "g", "n1", "n0", GroupIdentity(machine=kind))
    *told, opens = FrameDecoder().feed(encode_opening(opening))
    assert [decode_machine_kind(frame) for frame in told] == [(3, kind)] * (kind != UNKNOWN_MACHINE)
    assert decode_call(opens) == opening._replace(identity=GroupIdentity())


@pytest.mark.parametrize(
    "fields",
    [
        [],
        [0, "counter"],
        [0, 1, "counter"],
        [-1, "counter", 1],
        [0, "counter", 1],
        [0, "counter", 1, 0],
        [0, "counter", -1, False],
        [0, "counter", True, False],
        [0, "counter", 2**31, False],
        [0, "c" * 65, 1, False],
    ],
)
def test_the_kind_of_a_machine_of_another_form_is_refused(fields: list[object]) -> None:
    (frame,) = FrameDecoder().feed(encode_frame([MACHINE_KIND, *fields]))
    with pytest.raises(MessageMalformed):
        decode_machine_kind(frame)


def test_later_versions_may_tell_more_of_a_machine() -> None:
    (frame,) = FrameDecoder().feed(encode_frame([MACHINE_KIND, 0, "counter", 1, True, "more", [2]]))
    assert decode_machine_kind(frame) == (0, MachineKind("counter", 1, True))


@given(KINDS, st.integers(0, MAX_PROCESS - 1), ORPHANS)
def test_what_a_member_tells_of_itself_comes_before_the_channel_opens(
    kind: MachineKind, process: int, orphans: Orphans | None
) -> None:
    identity = GroupIdentity(machine=kind, process=process, orphans=orphans)
    *told, opens = FrameDecoder().feed(encode_opening(Opening(3, "g", "n1", "n0", identity)))
    of_itself = [frame for frame in told if frame.header[0] == ABOUT_ITSELF]
    if process or orphans is not None:
        (frame,) = of_itself
        assert decode_about_itself(frame) == (3, process, orphans)
    else:
        assert not of_itself
    assert decode_call(opens).channel == 3


@pytest.mark.parametrize(
    "fields",
    [
        [],
        [0, 7],
        [0, 7, -1],
        [-1, 7, -1, -1],
        [0, -7, -1, -1],
        [0, MAX_PROCESS, -1, -1],
        [0, True, -1, -1],
        [0, 7, 5, 4],
        [0, 7, -2, 4],
        [0, 7, 4, 2**62],
        [0, 7, "4", 5],
    ],
)
def test_what_a_member_tells_of_itself_in_another_form_is_refused(fields: list[object]) -> None:
    (frame,) = FrameDecoder().feed(encode_frame([ABOUT_ITSELF, *fields]))
    with pytest.raises(MessageMalformed):
        decode_about_itself(frame)


def test_later_versions_may_tell_more_of_themselves() -> None:
    (frame,) = FrameDecoder().feed(encode_frame([ABOUT_ITSELF, 0, 7, -1, -1, "more"]))
    assert decode_about_itself(frame) == (0, 7, None)


@given(IDENTITIES)
def test_the_identity_of_a_group_is_read_back_from_the_frame_that_opens_a_channel(
    identity: GroupIdentity,
) -> None:
    opening = Opening(3, "g", "n1", "n0", identity)
    (frame,) = FrameDecoder().feed(encode_opening(opening))
    assert decode_call(frame) == opening


@pytest.mark.parametrize(
    "fields",
    [
        [],
        [0, "", ""],
        [0, "", "", "", ""],
        [0, MARK, "", ""],  # never recovered, and yet a mark
        [-1, "", "", ""],
        [10**9, "", "", ""],
        [True, "", "", ""],
        [1.0, "", "", ""],
        ["1", "", "", ""],
        [1, None, "", ""],
        [1, MARK[1:], "", ""],
        [1, MARK.upper(), "", ""],
        [1, MARK + "\n", "", ""],
        [1, "", MARK + "0", ""],
        [1, "", MARK + "\n", ""],
        [1, "", b"\0" * 16, ""],
        [1, "", "x" * 16, ""],
        [1, "", "", "00"],
        [1, "", "", "0" * 31 + "\n"],
        [1, "", "", "0" * 32 + "\n"],
        [1, "", "", "\u0660" * 32],
        [1, "", "", None],
        [1, "", [], {}],
    ],
)
def test_fields_that_are_no_identity_are_refused(fields: list[object]) -> None:
    (frame,) = FrameDecoder().feed(encode_frame(["open", 3, "g", "n1", "n0", *fields]))
    with pytest.raises(MessageMalformed):
        decode_call(frame)


@pytest.mark.parametrize("mark", ["", MARK])
def test_a_refusal_tells_which_generation_is_newer(mark: str) -> None:
    newer = Generation(3, mark)
    reason = superseded_reason("g", newer, "n1", Generation(2, OTHER_MARK))
    assert superseding_generation(reason) == newer
    assert superseding_generation("this is node n1, not n2") is None


@pytest.mark.parametrize("mark", ["", MARK])
def test_the_generation_of_a_folder_is_read_back(tmp_path: object, mark: str) -> None:
    assert GenerationFile(OsDisk(), str(tmp_path)).generation == Generation()
    GenerationFile(OsDisk(), str(tmp_path)).set(Generation(2, OTHER_MARK))
    GenerationFile(OsDisk(), str(tmp_path)).set(Generation(3, mark))
    assert GenerationFile(OsDisk(), str(tmp_path)).generation == Generation(3, mark)


def test_the_number_alone_is_what_versions_before_marks_wrote(tmp_path: object) -> None:
    with open(f"{tmp_path}/generation", "w") as file:
        file.write("generation 7\n")
    assert GenerationFile(OsDisk(), str(tmp_path)).generation == Generation(7)


@pytest.mark.parametrize(
    "text",
    [
        "rubbish",
        "",
        "generation \n",
        "generation -1\n",
        f"generation 1 {MARK}0\n",
        f"generation 1 {MARK}",
        "generation 1",
        "generation 1\n\n",
        "generation ²\n",
    ],
)
def test_a_broken_generation_is_no_generation(tmp_path: object, text: str) -> None:
    with open(f"{tmp_path}/generation", "w") as file:
        file.write(text)
    with pytest.raises(LogCorrupt, match="generation"):
        GenerationFile(OsDisk(), str(tmp_path))
