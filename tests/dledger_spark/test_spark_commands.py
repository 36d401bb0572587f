from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from dledger.entry import Body
from dledger_spark.commands import dledger_spark
from dledger_spark.rows import json_line
from remoting.message.record import MessageRecord
from tests.dledger_spark.broker_bodies import BrokerBodies

LogWriter = Callable[..., Path]
ROOT = Path(__file__).parents[2]


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
        "sys.argv[1:] = sys.argv[1:]; from dledger_spark.commands import main; main()"
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


def test_show_takes_a_range(write_log: LogWriter) -> None:
    folder = write_log([b"x"] * 9, committed=5)
    _code, text = run("show", "--path", folder, "--from", "2", "--to", "4")
    assert [line.split("\t")[0] for line in text.splitlines()[1:]] == ["2", "3", "4"]
    code, text = run("show", "--path", folder, "--to", "7")
    assert (code, "committed is 5" in text) == (1, True)


def test_nothing_committed_needs_no_spark(write_log: LogWriter, tmp_path: Path) -> None:
    folder = write_log([b"x"], committed=-1)
    assert run("replay", "--path", folder, "--out", tmp_path / "out") == (
        0,
        f"no entry is committed in {folder}: nothing to replay\n",
    )
    code, text = run("count", "--path", folder, "--json")
    assert (code, json.loads(text)["messages"]) == (0, 0)


def test_an_unknown_format_is_refused(write_log: LogWriter, tmp_path: Path) -> None:
    code, text = run(
        "replay", "--path", write_log([b"x"]), "--out", tmp_path / "out", "--format", "csv"
    )
    assert (code, "parquet" in text) == (2, True)


def test_a_line_of_json_holds_bytes_as_base64() -> None:
    assert json_line({"body": b"\xff", "properties": [("a", "b")], "keys": None}) == (
        '{"body": "/w==", "properties": {"a": "b"}, "keys": null}'
    )


def test_ctrl_c_ends_a_command_with_the_code_that_shells_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> list[object]:
        os.kill(os.getpid(), signal.SIGINT)
        raise AssertionError("the signal arrives before this")

    monkeypatch.setattr("dledger_spark.preview.first_rows", interrupted)
    # What a shell starts in the background ignores Ctrl-C.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        result = CliRunner().invoke(dledger_spark, ["show", "--path", str(tmp_path)])
    finally:
        signal.signal(signal.SIGINT, before)
    assert result.exit_code == 130
    assert not result.output
