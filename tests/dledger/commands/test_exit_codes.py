"""The exit codes that the page and --help promise are those of the commands."""

from __future__ import annotations

import re
from pathlib import Path

from click.testing import CliRunner

from dledger.client.client_errors import AnswerOverdue, GroupUnreachable
from dledger.commands.exit_codes import ExitCode, exit_code_of
from dledger.commands.group_commands import commands
from dledger_mq.commands import command_line

PAGE = Path(__file__).parents[3] / "docs" / "exit-codes.md"


def test_the_page_has_the_codes_of_the_commands() -> None:
    codes = re.findall(r"^\| (\d+) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert [int(code) for code in codes] == sorted(ExitCode)


def test_the_help_has_them_too() -> None:
    shown = CliRunner().invoke(commands, ["--help"]).stdout
    codes = re.findall(r"\b(\d+)\b", shown.partition("Exit codes:")[2].partition("\n\n")[0])
    assert [int(code) for code in codes] == sorted(ExitCode)


def test_one_error_whose_outcome_is_unknown_is_enough() -> None:
    assert exit_code_of([GroupUnreachable("x")]) is ExitCode.FAILED
    assert exit_code_of([GroupUnreachable("x"), AnswerOverdue(1.0)]) is ExitCode.OUTCOME_UNKNOWN


def test_the_commands_of_the_broker_have_the_same() -> None:
    theirs = (command_line.FAILED, command_line.OUTCOME_UNKNOWN, command_line.INTERRUPTED)
    ours = (ExitCode.FAILED, ExitCode.OUTCOME_UNKNOWN, ExitCode.INTERRUPTED)
    assert theirs == tuple(map(int, ours))
