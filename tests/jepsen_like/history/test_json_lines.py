import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jepsen_like.history.errors import EventRefused, HistoryUnreadable
from jepsen_like.history.operation import EventType
from jepsen_like.history.pairing import OPERATIONS_MAX
from jepsen_like.history.reading import LINE_BYTES_MAX, HistoryFormat, read_history
from jepsen_like.history.value import NESTED_MAX, Map, frozen
from jepsen_like.history.writer import HistoryWriter

HEADER = '{"history_format": 1}'


def event(**fields: object) -> str:
    whole = {"process": 0, "time_ns": 0, "type": "invoke", "function": "read", **fields}
    return json.dumps({name: value for name, value in whole.items() if value != "absent"})


def written(folder: Path, *lines: str | bytes) -> Path:
    path = folder / "history.jsonl"
    whole = [line if isinstance(line, bytes) else line.encode() for line in lines]
    path.write_bytes(b"".join(line + b"\n" for line in whole))
    return path


def refusal(
    path: Path, line_bytes_max: int = LINE_BYTES_MAX, operations_max: int = OPERATIONS_MAX
) -> str:
    """What is said of a file; the place comes first and is cut off here, after it is checked."""
    with pytest.raises(HistoryUnreadable) as caught:
        read_history(path, line_bytes_max=line_bytes_max, operations_max=operations_max)
    text = str(caught.value)
    assert text.startswith(f"{path}:")
    assert "\n" not in text
    return text.removeprefix(str(path))


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    with HistoryWriter(path, workload="register", model="cas-register", seed=7) as writer:
        writer.event(0, 10, EventType.INVOKE, "cas", "x", [1, 2], member="n1")
        writer.event("nemesis", 11, EventType.INFO, "kill", value="n2")
        writer.event(1, 12, EventType.INVOKE, "read", "x")
        writer.event(0, 20, EventType.FAIL, "cas", "x", [1, 2], error="not the leader")
        writer.event(1, 21, EventType.OK, "read", "x", {"a": [1, None]})
        writer.event(0, 22, EventType.INVOKE, "write", "y", 3)
    history = read_history(path)
    assert (history.header.workload, history.header.seed) == ("register", 7)
    assert history.header.model == "cas-register"
    cas, read, write = history.operations
    assert (cas.value, cas.outcome, cas.error) == ((1, 2), EventType.FAIL, "not the leader")
    assert (cas.invoked_line, cas.ended_line, cas.member) == (2, 5, "n1")
    assert (read.result, read.ok) == (Map({"a": (1, None)}), True)
    assert (read.invoked_ns, read.ended_ns) == (12, 21)
    # It never ended, so nobody knows.
    assert (write.outcome, write.ended_line) == (EventType.INFO, None)


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text()
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(values, st.none() | st.text(min_size=1) | st.integers())
def test_any_value_of_json_comes_back(
    tmp_path_factory: pytest.TempPathFactory, value: object, key: str | int | None
) -> None:
    path = tmp_path_factory.mktemp("any") / "history.jsonl"
    with HistoryWriter(path) as writer:
        writer.event(0, 0, EventType.INVOKE, "write", key, value)
    (operation,) = read_history(path).operations
    assert operation.value == frozen(value)
    assert operation.key == key
    assert hash(operation.value) == hash(frozen(value))


@pytest.mark.parametrize(
    ("lines", "place", "words"),
    [
        ([], "", "nothing is in the file"),
        ([event()], ":1", "no header"),
        (['{"history_format": 2}'], ":1", "newer than this program"),
        (['{"history_format": true}'], ":1", "not a version number"),
        (['{"history_format": 1, "seed": "x"}'], ":1", "seed"),
        (['{"history_format": 1, "model": 3}'], ":1", "model"),
        ([HEADER, '{"process": 0, "time'], ":2", "not JSON"),
        ([HEADER, "[]"], ":2", "one JSON object"),
        ([HEADER, "5"], ":2", "one JSON object"),
        ([HEADER, event(latency=3)], ":2", "unknown field latency"),
        ([HEADER, event(type="absent")], ":2", "field type is missing"),
        ([HEADER, event(type="done")], ":2", "not one of invoke, ok, fail, info"),
        ([HEADER, event(type=["ok"])], ":2", "not one of"),
        ([HEADER, event(process=-1)], ":2", "process is -1"),
        ([HEADER, event(process=True)], ":2", "process is true"),
        ([HEADER, event(process=1.5)], ":2", "process is 1.5"),
        ([HEADER, event(process="")], ":2", "process"),
        ([HEADER, event(time_ns=-5)], ":2", "time_ns is -5"),
        ([HEADER, event(time_ns="now")], ":2", "time_ns"),
        ([HEADER, event(time_ns=2**63)], ":2", "time_ns"),
        ([HEADER, event(time_ns=1.0)], ":2", "time_ns"),
        ([HEADER, event(function=None)], ":2", "function is null"),
        ([HEADER, event(member=7)], ":2", "member is 7"),
        ([HEADER, event(member="n\x1b[2J")], ":2", "member is"),
        ([HEADER, event(function="read\n")], ":2", "function is"),
        ([HEADER, event(process="\x9b2J", type="info")], ":2", "process is"),
        (['{"history_format": 1, "workload": "a\\u202e"}'], ":1", "workload is"),
        ([HEADER, '{"process": NaN}'], ":2", "NaN is no number"),
        ([HEADER, '{"value": 1e999}'], ":2", "too large"),
        ([HEADER, '{"value": ' + "[" * 100 + "]" * 100 + "}"], ":2", "nested deeper"),
        ([HEADER, '{"value": ' + "[" * 100_000], ":2", "nested"),
        ([HEADER, '{"value": ' + "1" * 10_000 + "}"], ":2", "digits"),
        ([HEADER, event(value=[-(10**300)])], ":2", "more than 300 digits"),
        ([HEADER, event(time_ns=9), event(process=1, time_ns=8)], ":3", "time goes back"),
        ([HEADER, event(type="ok")], ":2", "called nothing"),
        ([HEADER, event(), event()], ":3", "while its read of line 2 is running"),
        ([HEADER, event(), event(type="ok"), event(type="ok")], ":4", "called nothing"),
        ([HEADER, event(), event(type="ok", function="write")], ":3", "ends write"),
        ([HEADER, event(key=1), event(type="ok", key=2)], ":3", "of key 2"),
        ([HEADER, event(process="nemesis")], ":2", "only notes"),
        ([HEADER, b"\x00\x01"], ":2", "zero byte"),
        ([HEADER, b"\xff\xfe"], ":2", "UTF-8"),
        ([b"\x7fELF\x02\x01\x01"], ":1", "not a history"),
        ([b"\x89PNG\r\n\x1a\n\x00\x00"], ":1", "UTF-8"),
        (["hello"], ":1", "--format"),
    ],
)
def test_a_line_that_cannot_be_true_is_named_with_its_place(
    tmp_path: Path, lines: list[str | bytes], place: str, words: str
) -> None:
    said = refusal(written(tmp_path, *lines))
    assert said.startswith(f"{place}: ")
    assert words in said


def test_a_line_that_is_too_long_is_refused_before_it_is_read_whole(tmp_path: Path) -> None:
    path = written(tmp_path, HEADER, event(value="x" * 1000))
    assert ":2: the line is longer than 200 bytes" in refusal(path, line_bytes_max=200)


def test_more_operations_than_the_limit_are_refused(tmp_path: Path) -> None:
    lines = [event(process=process) for process in range(4)]
    assert ":5: more than 3 operations" in refusal(
        written(tmp_path, HEADER, *lines), operations_max=3
    )


def test_a_file_that_is_not_there_and_a_folder_are_refused(tmp_path: Path) -> None:
    assert "cannot be read: No such file" in refusal(tmp_path / "none.jsonl")
    assert "cannot be read" in refusal(tmp_path)


def test_empty_lines_count_but_say_nothing(tmp_path: Path) -> None:
    path = written(tmp_path, HEADER, "", event(), "  ", event(type="ok"), "")
    (read,) = read_history(path).operations
    assert (read.invoked_line, read.ended_line) == (3, 5)


def test_a_process_may_go_on_after_an_unknown_outcome(tmp_path: Path) -> None:
    path = written(tmp_path, HEADER, event(), event(type="info"), event(), event(type="ok"))
    assert [operation.outcome for operation in read_history(path).operations] == ["info", "ok"]


def test_a_forced_format_is_not_guessed(tmp_path: Path) -> None:
    path = written(tmp_path, "{:process 0 :type :invoke :f :read}")
    with pytest.raises(HistoryUnreadable, match="not JSON"):
        read_history(path, HistoryFormat.JSON_LINES)


@pytest.mark.parametrize(
    ("process", "time_ns", "type", "value"),
    [
        (-1, 0, "invoke", None),
        (0, -1, "invoke", None),
        (0, 0, "ok", None),
        (0, 0, "invoke", object()),
        (0, 0, "invoke", float("nan")),
        (0, 0, "begin", None),
        (0, 0, "invoke", 10**300),
    ],
)
def test_the_writer_refuses_what_a_reader_would_refuse(
    tmp_path: Path, process: int, time_ns: int, type: str, value: object
) -> None:
    path = tmp_path / "history.jsonl"
    with HistoryWriter(path) as writer, pytest.raises(EventRefused):
        writer.event(process, time_ns, type, "read", value=value)  # type: ignore[arg-type]
    assert read_history(path).operations == []


@pytest.mark.parametrize(
    "names", [{"function": "re\x1bad"}, {"function": "read", "member": "n\n1"}]
)
def test_the_writer_refuses_names_that_are_more_than_a_line(
    tmp_path: Path, names: dict[str, str]
) -> None:
    with HistoryWriter(tmp_path / "history.jsonl") as writer, pytest.raises(EventRefused):
        writer.event(0, 0, EventType.INVOKE, **names)


def test_the_writer_overwrites_no_history(tmp_path: Path) -> None:
    HistoryWriter(tmp_path / "history.jsonl").close()
    with pytest.raises(FileExistsError):
        HistoryWriter(tmp_path / "history.jsonl")


def test_the_writer_refuses_a_header_that_a_reader_would_refuse(tmp_path: Path) -> None:
    with pytest.raises(EventRefused, match="seed"):
        HistoryWriter(tmp_path / "history.jsonl", seed="seven")


def test_the_deepest_value_that_may_be_written_can_be_read(tmp_path: Path) -> None:
    value: object = 1
    for _ in range(NESTED_MAX):
        value = [value]
    with HistoryWriter(tmp_path / "history.jsonl") as writer:
        with pytest.raises(EventRefused, match="nested"):
            writer.event(0, 0, EventType.INVOKE, "write", value=[value])
        writer.event(0, 0, EventType.INVOKE, "write", value=value)
    assert read_history(tmp_path / "history.jsonl").operations[0].value == frozen(value)
