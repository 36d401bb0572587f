"""The generated tables and pictures of docs/protocol.md agree with the code."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import msgpack
import pytest

from dledger.core.entry_dispatcher import PHASE_CHANGES
from dledger.core.member_state import ROLE_CHANGES
from dledger.core.messages import Message
from dledger.errors import MessageMalformed
from dledger.wire.client_protocol import Operation, Request, decode_request, encode_request
from dledger.wire.codec import CHANNEL_SHIFT, decode_message, encode_message
from dledger.wire.frame import FrameDecoder, encode_frame
from dledger.wire.handshake import decode_hello
from docs._ext import message_tables, roles_and_phases
from docs._ext.contents import PICTURES, TABLES
from docs._ext.message_tables import (
    SAMPLES,
    all_messages,
    fields_of,
    kind_of,
    sent_as,
)
from docs._ext.message_words import MESSAGES, OPERATIONS
from docs._ext.sequence_chart import record
from docs._ext.state_diagram import arrows_of
from tests.dledger.scenarios.scenario_language import ScenarioFailed

DOCS = Path(__file__).parent.parent.parent / "docs"
PAGE = (DOCS / "protocol.md").read_text(encoding="utf-8")
SCENARIOS = sorted((DOCS / "pictures").glob("*.scenario"))


def name_of(message: Message) -> str:
    return type(message).__name__


def test_every_message_that_members_exchange_is_described() -> None:
    assert {type(sample) for sample in SAMPLES} == all_messages() == set(MESSAGES)
    assert len({kind_of(sample) for sample in SAMPLES}) == len(SAMPLES)


@pytest.mark.parametrize("sample", SAMPLES, ids=name_of)
def test_every_field_of_a_message_is_described_at_its_place(sample: Message) -> None:
    fields = fields_of(sample)
    assert {field.name for field in fields} == set(MESSAGES[type(sample)].fields)
    places = [field.place for field in fields if field.place is not None]
    assert places == list(range(1, len(sent_as(sample).header)))


@pytest.mark.parametrize("sample", SAMPLES, ids=name_of)
def test_a_field_of_another_type_or_outside_of_its_bounds_is_refused(sample: Message) -> None:
    """What the page says of integers and booleans, tried at every place."""
    header = sent_as(sample).header
    for field in fields_of(sample):
        if field.place is None:
            continue
        wrong: list[object] = ["text", None, 1.5]
        wrong += [0, 1] if field.type == "boolean" else [True, -2, 2**63]
        for value in wrong:
            changed = [*header[: field.place], value, *header[field.place + 1 :]]
            with pytest.raises(MessageMalformed):
                decode_message(sent_as(sample)._replace(header=changed))
    with pytest.raises(MessageMalformed):
        decode_message(sent_as(sample)._replace(header=[*header, 0]))


def test_a_message_names_its_channel_as_the_page_says() -> None:
    assert f"channel times {1 << CHANNEL_SHIFT}, plus the kind" in PAGE
    sample = SAMPLES[0]
    (frame,) = FrameDecoder().feed(encode_message(sample, channel=3))
    assert frame.header[0] == 3 * (1 << CHANNEL_SHIFT) + kind_of(sample)


def test_a_frame_is_laid_out_as_the_page_says() -> None:
    header = [1, "two"]
    packed = msgpack.packb(header)
    by_hand = (2 + len(packed) + 3).to_bytes(4, "big") + len(packed).to_bytes(2, "big")
    assert encode_frame(list(header), b"raw") == by_hand + packed + b"raw"


def test_every_operation_of_a_client_is_described() -> None:
    assert set(OPERATIONS) == {str(operation) for operation in Operation}
    for operation in Operation:
        (frame,) = FrameDecoder().feed(encode_request(Request(7, operation, [1, 2], b"")))
        assert frame.header == [7, str(operation), [1, 2]]
        assert decode_request(frame).operation is operation


def test_the_first_frame_on_the_page_is_a_hello() -> None:
    hello = re.search(r"`\[\"hello\", (\d+), \"client\", \"orders\"", message_tables.first_frames())
    assert hello is not None
    (frame,) = FrameDecoder().feed(
        encode_frame(["hello", int(hello[1]), "client", "orders", "n1", ""])
    )
    assert decode_hello(frame).group == "orders"


def test_the_tables_of_transitions_have_every_row() -> None:
    assert roles_and_phases.role_changes().count("\n") == len(ROLE_CHANGES) + 2
    assert roles_and_phases.phase_changes().count("\n") == len(PHASE_CHANGES) + 2


@pytest.mark.parametrize(
    ("picture", "changes"),
    [
        ("roles", [(a.value, b.value) for (a, _), b in ROLE_CHANGES.items()]),
        ("phases", [(a.name, b.name) for (a, _), b in PHASE_CHANGES.items()]),
    ],
)
def test_a_diagram_has_an_arrow_for_each_pair_that_the_code_has(
    picture: str, changes: list[tuple[str, str]]
) -> None:
    pairs = {pair for pair in changes if pair[0] != pair[1]}
    drawn = ElementTree.fromstring(PICTURES[picture]())
    assert len(drawn.findall("path")) == len(pairs)


def test_arrows_of_one_pair_are_drawn_as_one_with_all_words() -> None:
    (arrow,) = arrows_of({("a", "up"): "b", ("a", "on"): "b", ("b", "stay"): "b"})
    assert arrow == ("a", "b", ("up", "on"))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_a_picture_is_a_recording_in_which_messages_arrive_after_they_left(path: Path) -> None:
    recording = record(path)
    arrived = [flight for flight in recording.flights if flight.arrived_at is not None]
    assert len(arrived) >= 3
    assert all(flight.left_at < (flight.arrived_at or 0) for flight in arrived)
    drawn = ElementTree.fromstring(PICTURES[path.stem]())
    words = [text.text for text in drawn.findall("text")]
    assert {flight.sent.text for flight in arrived} <= set(words)
    assert set(recording.members) <= set(words)


def test_a_picture_of_a_run_that_went_otherwise_is_not_drawn(tmp_path: Path) -> None:
    lines = (DOCS / "pictures" / "election.scenario").read_text(encoding="utf-8")
    changed = tmp_path / "election.scenario"
    changed.write_text(lines.replace("expect n1: role leader", "expect n1: role follower"))
    with pytest.raises(ScenarioFailed, match="expected follower"):
        record(changed)


def test_everything_generated_is_shown_and_everything_shown_is_generated() -> None:
    pages = "\n".join(page.read_text(encoding="utf-8") for page in DOCS.rglob("*.md"))
    assert set(re.findall(r"```{generated} (\S+)", pages)) == set(TABLES)
    assert set(re.findall(r"```{picture} (\S+)", pages)) == set(PICTURES)


def test_a_field_that_is_not_sent_has_no_place() -> None:
    push = next(sample for sample in SAMPLES if name_of(sample) == "PushRequest")
    assert not {"facts", "changes"} & {field.name for field in fields_of(push)}
