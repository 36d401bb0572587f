"""The messages of RocketMQ 5: the written file, the generated code, and their global names."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import Default

from proxy.wire import messages_pb2 as messages
from tests.proxy.real_proxy import message

ROOT = Path(__file__).parents[2]
WRITTEN = ROOT / "proxy" / "wire" / "messages.proto"
_BEGIN = re.compile(r"(message|enum|oneof)\s+(\w+)\s*\{")
_FIELD = re.compile(r"(?:[\w.<>, ]+\s)?(\w+)\s*=\s*(\d+)\s*;")


def _written() -> Iterator[tuple[str, int]]:
    """Each field and value of the file, as "Message.field", with its number."""
    inside: list[str] = []
    for line in WRITTEN.read_text().splitlines():
        text = line.partition("//")[0].strip()
        begun = _BEGIN.fullmatch(text)
        if begun:
            inside.append("" if begun[1] == "oneof" else begun[2])
        elif text == "}":
            inside.pop()
        elif inside and (field := _FIELD.fullmatch(text)):
            yield ".".join([*filter(None, inside), field[1]]), int(field[2])
        else:
            assert not text or not inside, line


def _generated() -> Iterator[tuple[str, int]]:
    def of_enum(enum: Any, before: str) -> Iterator[tuple[str, int]]:
        yield from ((f"{before}{enum.name}.{value.name}", value.number) for value in enum.values)

    def of(kind: Any, before: str) -> Iterator[tuple[str, int]]:
        whole = f"{before}{kind.name}."
        yield from ((whole + field.name, field.number) for field in kind.fields)
        for enum in kind.enum_types:
            yield from of_enum(enum, whole)
        for inner in kind.nested_types:
            if not inner.GetOptions().map_entry:
                yield from of(inner, whole)

    for kind in messages.DESCRIPTOR.message_types_by_name.values():
        yield from of(kind, "")
    for enum in messages.DESCRIPTOR.enum_types_by_name.values():
        yield from of_enum(enum, "")


def test_the_generated_code_has_the_names_and_numbers_of_the_written_file() -> None:
    written = dict(_written())
    assert len(written) > 200
    assert written == dict(_generated())


def test_a_client_in_the_same_process_may_have_the_messages_of_rocketmq() -> None:
    """All names of protobuf are global in a process: of files, messages, and values."""
    ours = FileDescriptorProto()
    messages.DESCRIPTOR.CopyToProto(ours)
    assert ours.name == "proxy/wire/messages.proto"
    assert ours.package == "dledger.proxy"
    theirs = FileDescriptorProto.FromString(
        ours.SerializeToString().replace(b"dledger.proxy", b"apache.rmq.v2")
    )
    theirs.name, theirs.package = "apache/rocketmq/v2/definition.proto", "apache.rmq.v2"
    theirs = FileDescriptorProto.FromString(theirs.SerializeToString())
    Default().AddSerializedFile(theirs.SerializeToString())
    found = Default().FindMessageTypeByName("apache.rmq.v2.SendMessageRequest")
    assert found.fields_by_name["messages"].number == 1
    assert messages.Message.FromString(message("T").SerializeToString()).topic.name == "T"


@pytest.mark.long
def test_make_protos_writes_the_same_code_again(tmp_path: Path) -> None:
    make = shutil.which("make")
    if make is None:
        pytest.skip("make is not installed")
    command = [make, "protos", f"PROTOS_OUT={tmp_path}", f"PYTHON={sys.executable}"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if ended.returncode and "pip" in ended.stderr + ended.stdout:
        pytest.skip(f"the compiler cannot be installed: {ended.stderr[-300:]}")
    assert ended.returncode == 0, ended.stderr
    for name in ("messages_pb2.py", "messages_pb2.pyi"):
        made = tmp_path / "proxy" / "wire" / name
        assert made.read_bytes() == (ROOT / "proxy" / "wire" / name).read_bytes()
