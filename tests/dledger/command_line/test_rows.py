"""What commands print, in a terminal and in a pipe, and how far they are."""

from __future__ import annotations

import io
import os
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from dledger.command_line.options import flag, given, kept_option, option, options
from dledger.command_line.progress import counted
from dledger.command_line.rows import new_table, print_table, table_console

ROWS = [("n0", 1, 0.125), ("[bold]\x1b[2J", 20, None)]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_pipe_gets_a_line_for_each_row(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("node", "entries", "s"), ROWS, pipe_title="node\tentries\ts", title="t")
    assert capsys.readouterr().out.splitlines() == [
        *("node\tentries\ts", "n0\t1\t0.12", "[bold]\t20\t-")
    ]


def test_a_terminal_gets_a_table_in_which_nothing_of_users_is_a_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("TERM", "dumb")
    print_table(("node", "entries", "s"), ROWS, words=("node",), title="members")
    table_console().print(new_table(("node", "entries", "s"), ROWS, ("node",)))
    shown = terminal.getvalue()
    assert "members" in shown
    assert "[bold]\\x1b[2J" in shown
    assert "\x1b[2J" not in shown


def test_what_reads_the_output_may_go_away() -> None:
    source = (
        "from dledger.command_line.rows import print_table\n"
        "print_table(('n',), ((number,) for number in range(200_000)))\n"
    )
    reading, writing = os.pipe()
    with subprocess.Popen(
        [sys.executable, "-c", source], stdout=writing, stderr=subprocess.PIPE
    ) as process:
        os.close(writing)
        assert os.read(reading, 2) == b"0\n"
        os.close(reading)
        assert process.communicate(timeout=60)[1] == b""
    assert process.returncode == 0


def test_progress_in_a_pipe_is_a_line_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    with counted("seeds", 5, lambda done: f"{done} of 5" if done % 2 == 0 else None) as advance:
        for _ in range(5):
            advance()
    assert capsys.readouterr().err.splitlines() == ["2 of 5", "4 of 5"]


def test_options_stand_in_a_help_text_as_they_are_declared() -> None:
    kept = options(
        kept_option("--place", "Where.", default="here"),
        flag("--quick", "At once."),
        option("--times", "number", "How often.", default=3),
        option("--quiet-default", "Its default is not told.", default=7, show_default=False),
    )

    @click.command()
    @kept
    def command(quick: bool, number: int, quiet_default: int) -> None:
        click.echo(f"{given('--place')} {given('--other')} {quick} {number} {quiet_default}")

    runner = CliRunner()
    assert runner.invoke(command, ["--place", "there"]).output == "there None False 3 7\n"
    told = runner.invoke(command, ["--help"]).output
    places = [told.index(name) for name in ("--place", "--quick", "--times", "--quiet-default")]
    assert places == sorted(places)
    assert "[default: here]" in told
    assert "[default: 7]" not in told
