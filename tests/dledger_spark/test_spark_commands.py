from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from dledger.entry import Body
from dledger_spark.commands.rows import json_line
from dledger_spark.commands.spark_commands import dledger_spark
from dledger_spark.replay.replay import Piece, write_piece
from remoting.message.record import MessageRecord
from tests.dledger_spark.broker_bodies import BrokerBodies

LogWriter = Callable[..., Path]
ROOT = Path(__file__).parents[2]
HINT = (
    "left out, because not recorded as committed yet: {} at the end of {}; a running node records "
    "this four times a second, and --bootstrap asks the group itself"
)


def orders(count: int) -> list[Body]:
    """Two topics, then messages."""
    found = BrokerBodies()
    for topic in ("bills", "orders"):
        found.put_topic(topic)
    for at in range(2, count):
        found.message(MessageRecord(topic="orders" if at % 2 else "bills", body=b"%d" % at))
    return found.bodies


def run(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(dledger_spark, [str(argument) for argument in arguments])
    return result.exit_code, result.output


def test_help_shows_the_commands_and_how_to_call_them() -> None:
    code, text = run("--help")
    assert code == 0
    assert "dledger-spark replay --path DIR --out OUT" in text
    for command in ("replay", "count", "show"):
        code, text = run(command, "--help")
        assert (code, "--path" in text, "--to" in text) == (0, True, True)


def test_help_needs_none_of_the_heavy_packages(tmp_path: Path) -> None:
    program = (
        "import sys; sys.modules.update(dict.fromkeys(('numpy', 'pyarrow', 'pyspark', 'pandas')));"
        "sys.argv[1:] = sys.argv[1:];"
        "from dledger_spark.commands.spark_commands import main; main()"
    )

    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", program, *arguments],
            capture_output=True,
            check=False,
            text=True,
            cwd=ROOT,
        )

    assert call("replay", "--help").returncode == 0
    failed = call("show", "--path", str(tmp_path))
    assert failed.returncode == 1
    assert "pip install 'dledger[spark]'" in failed.stderr
    assert "Traceback" not in failed.stderr


@pytest.mark.parametrize("command", ["show", "count", "replay"])
def test_a_wrong_path_is_one_line_and_does_not_start_spark(command: str, tmp_path: Path) -> None:
    out = ("--out", tmp_path / "out") if command == "replay" else ()
    code, text = run(command, "--path", tmp_path / "nowhere", *out)
    assert code == 1
    assert text.startswith("Error: ")
    assert "does not exist" in text
    assert text.count("\n") == 1


def test_show_prints_lines_with_tabs_in_a_pipe(write_log: LogWriter) -> None:
    folder = write_log([b"first", b"a\tb\n\x1b[2J"])
    code, text = run("show", "--path", folder)
    assert code == 0
    assert text.splitlines() == [
        "index\tterm\tmagic\tpos\tsize\tbody",
        "0\t1\t1\t0\t53\tfirst",
        "1\t1\t1\t53\t56\ta\\tb\\n\\x1b[2J",
    ]


def test_show_prints_json_with_all_columns(write_log: LogWriter) -> None:
    code, text = run("show", "--path", write_log(orders(6)), "--table", "messages", "--json")
    rows = [json.loads(line) for line in text.splitlines()]
    assert code == 0
    assert [row["topic"] for row in rows] == ["bills", "orders"] * 2
    assert rows[1]["body"] == "Mw=="
    assert rows[1]["properties"] == {}
    assert rows[1]["store_time"] == "1970-01-01T00:00:00.000Z"


def test_show_picks_a_topic_and_stops_at_the_limit(write_log: LogWriter) -> None:
    code, text = run("show", "--path", write_log(orders(30)), "--topic", "orders", "--limit", "3")
    assert code == 0
    assert [line.split("\t")[:2] for line in text.splitlines()[1:]] == [
        ["3", "orders"],
        ["5", "orders"],
        ["7", "orders"],
    ]


def test_show_says_that_a_topic_has_no_message(write_log: LogWriter) -> None:
    code, text = run("show", "--path", write_log(orders(30)), "--topic", "Orders")
    assert code == 0
    told = "no message of topic 'Orders' is there: `dledger-spark count` lists the topics"
    assert told in text.splitlines()


def test_show_takes_a_range(write_log: LogWriter) -> None:
    folder = write_log([b"x"] * 9, committed=5)
    _code, text = run("show", "--path", folder, "--from", "2", "--to", "4")
    assert [line.split("\t")[0] for line in text.splitlines()[1:]] == ["2", "3", "4"]
    code, text = run("show", "--path", folder, "--to", "7")
    assert (code, "committed is 5" in text) == (1, True)


def test_nothing_committed_needs_no_spark(write_log: LogWriter, tmp_path: Path) -> None:
    folder = write_log([b"x"], committed=-1)
    code, text = run("replay", "--path", folder, "--out", tmp_path / "out")
    assert (code, text.splitlines()) == (
        0,
        [HINT.format(1, folder), f"no entry is committed in {folder}: nothing to replay"],
    )
    code, text = run("count", "--path", folder, "--json")
    assert (code, json.loads(text.partition("\n")[2])["messages"]) == (0, 0)


def test_entries_that_are_not_recorded_as_committed_yet_are_told_once(
    write_log: LogWriter, tmp_path: Path
) -> None:
    base = tmp_path / "groups"
    first, _second = (
        write_log([b"x"] * 9, committed=5, group=group, base=base / group) for group in "ab"
    )
    assert run("show", "--path", first)[1].splitlines()[0] == HINT.format(3, first)
    code, text = run("show", "--path", base)
    assert (code, text.splitlines()[0]) == (0, HINT.format(6, f"{first} and 1 more"))
    assert text.count("left out") == 1
    # What an end was asked for is not left out.
    assert "left out" not in run("show", "--path", first, "--to", "3")[1]
    assert "left out" not in run("show", "--path", first, "--to", "end")[1]
    assert "left out" not in run("show", "--path", write_log([b"x"], committed=0))[1]


def test_show_goes_over_the_groups_below_a_folder(write_log: LogWriter, tmp_path: Path) -> None:
    base = tmp_path / "groups"
    for group in ("broker-a", "broker-b"):
        write_log(orders(4), group=group, base=base / group)
    code, text = run("show", "--path", base, "--table", "messages")
    assert (code, [line.split("\t")[:3] for line in text.splitlines()]) == (
        0,
        [
            ["raft_group", "index", "topic"],
            *(
                [group, str(at), topic]
                for group in ("broker-a", "broker-b")
                for at, topic in ((2, "bills"), (3, "orders"))
            ),
        ],
    )
    assert len(run("show", "--path", base, "--limit", "5", "--json")[1].splitlines()) == 5
    code, text = run("show", "--path", base, "--from", "2")
    assert code == 1
    assert "an index is one group's, and there are 'broker-a', 'broker-b'" in text


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--path", "a", "--bootstrap", "b:1", "--group", "g"),
        ("--bootstrap", "b:1"),
        ("--group", "g"),
        ("--bootstrap", "b:1", "--bootstrap", "c:1", "--group", "g"),
    ],
)
def test_options_that_name_no_log_or_two_are_a_wrong_call(words: tuple[str, ...]) -> None:
    code, text = run("show", *words)
    assert code == 2
    assert "give --" in text


def test_an_unknown_format_is_refused(write_log: LogWriter, tmp_path: Path) -> None:
    code, text = run(
        "replay", "--path", write_log([b"x"]), "--out", tmp_path / "out", "--format", "csv"
    )
    assert (code, "parquet" in text) == (2, True)


def test_a_line_of_json_holds_bytes_as_base64() -> None:
    assert json_line({"body": b"\xff", "properties": {"a": "b"}, "keys": None}) == (
        '{"body": "/w==", "properties": {"a": "b"}, "keys": null}'
    )


def test_a_line_of_json_holds_whatever_a_query_may_answer() -> None:
    row = {
        "sum": Decimal(6),
        "price": Decimal("1.50"),
        "none": float("nan"),
        "listed": [b"\xff", {"at": datetime(2026, 3, 2, tzinfo=UTC)}],
        "day": date(2026, 3, 2),
        "took": timedelta(seconds=3),
    }
    assert json.loads(json_line(row)) == {
        "sum": 6,
        "price": 1.5,
        "none": None,
        "listed": ["/w==", {"at": "2026-03-02T00:00:00.000Z"}],
        "day": "2026-03-02",
        "took": "0:00:03",
    }


def test_ctrl_c_ends_a_command_with_the_code_that_shells_report(
    write_log: LogWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_log([b"x"])

    def interrupted(*_: object, **__: object) -> list[object]:
        os.kill(os.getpid(), signal.SIGINT)
        raise AssertionError("the signal arrives before this")

    monkeypatch.setattr("dledger_spark.commands.preview.first_rows", interrupted)
    # What a shell starts in the background ignores Ctrl-C.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        result = CliRunner().invoke(dledger_spark, ["show", "--path", str(folder)])
    finally:
        signal.signal(signal.SIGINT, before)
    assert result.exit_code == 130
    assert not result.output


def test_a_replay_that_is_interrupted_says_what_is_kept_and_goes_on(
    write_log: LogWriter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, out = write_log(orders(100)), tmp_path / "out"

    def interrupted(
        _session: object, out: str, run: str, pieces: list[Piece], _on_progress: object
    ) -> None:
        write_piece(pieces[0].origin.open(), out, run, pieces[0])
        raise KeyboardInterrupt

    monkeypatch.setattr("dledger_spark.replay.replay.run_replay", interrupted)
    monkeypatch.setattr("dledger_spark.session.local_session", lambda **_options: nullcontext())
    words = ("replay", "--path", folder, "--out", out, "--file-bytes", "4096")
    code, text = run(*words)
    done = len(pq.read_table(out / "entries"))
    assert 0 < done < 100
    told = f"stopped: {done} of 100 entries are in {out}: the same command goes on behind them\n"
    assert (code, text) == (130, told)
    code, text = run(*words)
    assert (code, "of 100" in text) == (130, False)  # what was kept is not read again
    assert len(pq.read_table(out / "entries")) > done


def test_tables_that_are_interrupted_say_how_to_go_on(
    write_log: LogWriter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("deltalake", reason="deltalake is not installed: run make setup-spark")

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("dledger_spark.tables.update.update_tables", interrupted)
    out = tmp_path / "out"
    code, text = run("tables", "--path", write_log(orders(9)), "--out", out)
    kept = f"stopped: {out} keeps what was committed to it: the same command goes on behind that\n"
    assert (code, text) == (130, kept)
