from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jepsen_like.history.edn import NotEdn, read_forms
from jepsen_like.history.errors import HistoryUnreadable
from jepsen_like.history.operation import EventType
from jepsen_like.history.reading import HistoryFormat, read_history
from jepsen_like.history.value import Value, frozen

LOG = """\
2026-01-02 10:00:00,000{GMT} INFO [main] jepsen.core: Running test
INFO  jepsen.util - 0\t:invoke\t:write\t4
INFO  jepsen.util - 1   :invoke :cas    [1 2]
INFO  jepsen.util - :nemesis\t:info\t:start\tnil
INFO  jepsen.util - 2\t:invoke\t:read\tnil
INFO  jepsen.util - 0\t:ok\t:write\t4
INFO  jepsen.util - 1\t:info\t:cas\t:timed-out
INFO  jepsen.util - 2\t:ok\t:read\t4
INFO  jepsen.util - 2\t:invoke\t:cas\t[3 4]
INFO  jepsen.util - 2\t:fail\t:cas\t[3 4]\t:no-leader
"""

EDN = """\
; a comment
{:index 0, :time 100, :type :invoke, :process 0, :f :txn, :value [[:append :x 1] [:r "y" nil]]}
#jepsen.history.Op{:index 1, :time 90, :type :info, :process :nemesis, :f :kill, :value #{n1}}
{:process 0, :type :ok, :f :txn, :value [[:append :x 1] [:r "y" [1 2]]], :time 120, :node "n1"}
{:process 1, :type :invoke, :f :get, :key "k\\n", :value nil #_ :ignored}
"""


def saved(folder: Path, text: str) -> Path:
    path = folder / "history.txt"
    path.write_text(text, encoding="utf-8")
    return path


def test_lines_of_jepsens_log_are_read(tmp_path: Path) -> None:
    history = read_history(saved(tmp_path, LOG))
    write, cas, read, failed = history.operations
    assert (write.function, write.value, write.ok) == ("write", 4, True)
    assert (cas.value, cas.outcome, cas.error) == ((1, 2), EventType.INFO, "timed-out")
    assert cas.result is None
    assert (read.result, read.invoked_line, read.ended_line) == (4, 5, 8)
    assert (failed.failed, failed.error) == (True, "no-leader")
    assert not history.timed


def test_jepsens_histories_in_edn_are_read(tmp_path: Path) -> None:
    history = read_history(saved(tmp_path, EDN))
    txn, get = history.operations
    assert txn.value == (("append", "x", 1), ("r", "y", None))
    assert txn.result == (("append", "x", 1), ("r", "y", (1, 2)))
    assert (txn.invoked_ns, txn.ended_ns, txn.member) == (100, 120, "n1")
    assert (get.key, get.outcome) == ("k\n", EventType.INFO)
    assert history.timed


OPERATIONS = """\
{:process 0, :type :invoke, :f :write, :value 3, :time 10}
{:process 1, :type :invoke, :f :read, :value nil, :time 11}
{:process :nemesis, :type :info, :f :start, :value nil, :time 12}
{:process 0, :type :ok, :f :write, :value 3, :time 13}
{:process 1, :type :ok, :f :read, :value nil, :time 14}
"""
RECORDS = OPERATIONS.replace("{", "#jepsen.history.Op{")
BROKEN_OVER_LINES = OPERATIONS.replace(", ", ",\n    ")
ROWS = """\
[0   :invoke :write 3]
[1   :invoke :read  nil]
[:nemesis :info :start "cut off [:n1 (:n2"]
[0   :ok :write 3]
[1   :ok :read  nil]
"""
COMMENTED = OPERATIONS.replace("}\n", "} ; ends here: )]}\n").replace("{", ";;; next: {[(\n{")


@pytest.mark.parametrize(
    "text",
    [
        OPERATIONS,
        RECORDS,
        f"[{OPERATIONS}]",
        f"[{RECORDS}]\n",
        f"({OPERATIONS})",
        f"; written by hand\n\n(\n{BROKEN_OVER_LINES}\n)\n; the end\n",
        "[\n" + BROKEN_OVER_LINES.replace("{", "#jepsen.history.Op{") + "]",
        f"[ ; all of them\n{COMMENTED}\n]",
        "[" + OPERATIONS.replace("\n", " ") + "]",
        OPERATIONS.replace("\n", " ") + "\n",
        OPERATIONS.replace(",", "").replace("{", "#_{:process 9} {"),
        OPERATIONS.replace("{:", "{:jepsen/").replace(", :", ", :jepsen.history/"),
        OPERATIONS.replace("{", "#:jepsen.history{"),
        ROWS,
        f"[{ROWS}]",
    ],
)
def test_any_wrapping_of_knossos_and_elle_is_taken_off(tmp_path: Path, text: str) -> None:
    write, read = read_history(saved(tmp_path, text)).operations
    assert (write.process, write.function, write.value, write.ok) == (0, "write", 3, True)
    assert (read.process, read.function, read.result, read.ok) == (1, "read", None, True)


def test_what_all_operations_have_in_common_may_be_left_out(tmp_path: Path) -> None:
    text = """\
{:index 0 :type :invoke, :value [[:append 255 8] [:r 253 nil]]}
{:index 1 :type :ok,     :value [[:append 255 8] [:r 253 [1 3 4]]]}
"""
    (one,) = read_history(saved(tmp_path, text)).operations
    assert (one.process, one.function, one.ok) == (0, "txn", True)
    assert one.result == (("append", 255, 8), ("r", 253, (1, 3, 4)))


def test_an_operation_is_named_by_the_line_at_which_it_begins(tmp_path: Path) -> None:
    history = read_history(saved(tmp_path, f"[\n{BROKEN_OVER_LINES}]"))
    assert [one.invoked_line for one in history.operations] == [2, 7]


@pytest.mark.parametrize(
    "text",
    [
        "{:process 0 :type :invoke :f :read :value [7 nil]}\n"
        "{:process 0 :type :ok :f :read :value [7 3]}\n",
        "INFO  jepsen.util - 0 :invoke :read [7 nil]\nINFO  jepsen.util - 0 :ok :read [7 3]\n",
    ],
)
def test_pairs_are_keys_and_values_only_when_that_is_said(tmp_path: Path, text: str) -> None:
    (plain,) = read_history(saved(tmp_path, text)).operations
    assert (plain.key, plain.result) == (None, (7, 3))
    (keyed,) = read_history(saved(tmp_path, text), keyed=True).operations
    assert (keyed.key, keyed.value, keyed.result) == (7, None, 3)


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("{:process 0 :type :invoke :f :read} 5", 1, "one map of EDN"),
        ("[{:process 0 :type :invoke :f :read}\n 5]", 2, "one map of EDN"),
        ("[{:process 0 :type :invoke :f :read}\n", 1, "the [ of line 1 is not closed"),
        ("\n[{:process 0 :type :invoke :f :read}\n)", 3, "[ of line 2 is closed by )"),
        ("[\n{:process 0\n :type :invoke :f :read\n", 2, "ends early"),
        ("[{:process 0 :type :invoke :f :read}]]", 1, "where a value must stand"),
        ("{:process 0 :type :invoke :f :read", 1, "ends early"),
        ('{:process 0 :f "', 1, "cannot be read"),
        ("{:process 0 :type :invoke}", 1, ":f is missing"),
        ("{:process 0 :type :invoke :f}", 1, "a key without a value"),
        ("{:process 0 :type :invoke :f :read :time -1}", 1, ":time is -1"),
        ("{:process -2 :type :invoke :f :read}", 1, "process is -2"),
        ("{:process [0} :type :invoke :f :read}", 1, "closed by"),
        ("{:process 0 :type :done :f :read}", 1, "type"),
        ('{:process 0 :type :invoke :f "re\x1b[2Jad"}', 1, "function is"),
        ('{:process 0 :type :invoke :f :read :node "n\\n1"}', 1, "member is"),
        ("INFO  jepsen.util - 0 :invoke :re\x1b[2Jad nil\n", 1, "function is"),
        ("{:value " + "[" * 50, 1, "nested deeper"),
        ("{:value " + "9" * 50 + "}", 1, "40 digits"),
        ("INFO  jepsen.util - 0 :invoke :read nil\nhello\n", 2, "not a line of Jepsen's log"),
        ("INFO  jepsen.util - 0 :invoke :read nil\nINFO jepsen.util 0 :ok\n", 2, "not a line"),
        ("INFO  jepsen.util - x :ok :read nil\n", 1, "only notes"),
        ("INFO  jepsen.util - 0 :invoke :read [1\n", 1, "not EDN"),
        ("INFO  jepsen.util - 0 :ok :read 1\n", 1, "called nothing"),
    ],
)
def test_a_line_that_is_not_jepsens_is_named(
    tmp_path: Path, text: str, place: int, words: str
) -> None:
    path = saved(tmp_path, text)
    with pytest.raises(HistoryUnreadable) as caught:
        read_history(path)
    assert str(caught.value).startswith(f"{path}:{place}: ")
    assert words in str(caught.value)


def test_an_operation_over_many_lines_has_a_limit(tmp_path: Path) -> None:
    path = saved(tmp_path, "{:process 0 :value\n" + "[1 2\n" * 100)
    with pytest.raises(HistoryUnreadable, match="txt:1: the operation is longer than 99 bytes"):
        read_history(path, line_bytes_max=99)


def test_a_value_that_is_no_pair_is_refused_when_values_are_keyed(tmp_path: Path) -> None:
    path = saved(tmp_path, "INFO  jepsen.util - 0 :invoke :write 4\n")
    with pytest.raises(HistoryUnreadable, match="no pair"):
        read_history(path, HistoryFormat.JEPSEN_LOG, keyed=True)


def as_edn(value: Value) -> str:
    if value is None or isinstance(value, bool):
        return {None: "nil", True: "true", False: "false"}[value]
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value, dict):
        return "{" + ", ".join(f"{as_edn(k)} {as_edn(v)}" for k, v in value.items()) + "}"
    if isinstance(value, tuple):
        return "[" + " ".join(map(as_edn, value)) + "]"
    return str(value)


edn_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text() | st.integers(), inner, max_size=3).map(frozen)
    ),
    max_leaves=8,
)


@given(st.lists(edn_values, max_size=3))
def test_any_forms_are_read_as_they_were_written(values: list[Value]) -> None:
    assert read_forms(" ".join(map(as_edn, values))) == values


@given(st.text(alphabet='[](){}#_":;\\ ,0a1.-~^@`\n', max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(NotEdn):
        read_forms(text)


@pytest.mark.parametrize("part", [" ", "1 ", ";\n", ", ", "[", "#_"])
def test_long_hostile_text_takes_no_more_than_its_length(part: str) -> None:
    # Without possessive quantifiers the first takes hours.
    with pytest.raises(NotEdn):
        read_forms(part * 300_000 + '"')


@pytest.mark.parametrize("process", [";0", "#{", '"', "[0"])
def test_a_process_that_cannot_be_read_in_a_log_is_named_with_its_line(
    tmp_path: Path, process: str
) -> None:
    path = saved(tmp_path, LOG + f"INFO  jepsen.util - {process} :invoke :read nil\n")
    with pytest.raises(HistoryUnreadable) as caught:
        read_history(path)
    assert caught.value.line == 11


def test_a_number_that_is_too_large_is_refused_as_in_json() -> None:
    with pytest.raises(NotEdn, match="too large"):
        read_forms("1e999")


@pytest.mark.parametrize(
    "text", ['{"history_format": 1}\n', "{:process 0 :type :invoke :f :read}\n", LOG]
)
def test_a_mark_of_the_byte_order_is_passed_over(tmp_path: Path, text: str) -> None:
    read_history(saved(tmp_path, "\ufeff" + text))
