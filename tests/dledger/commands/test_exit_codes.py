"""The exit codes that the page and --help promise are those of the commands."""

from __future__ import annotations

import errno
import re
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from dledger.client.client_errors import AnswerOverdue, GroupUnreachable
from dledger.client.group_client import GroupClient
from dledger.command_line.ending import CommandFailed, Commands, ExitCode
from dledger.commands.group_commands import commands
from dledger.errors import DLedgerError, OutcomeUnknown
from dledger_mq import errors as mq_errors
from dledger_mq.commands.command_line import may_be_stored

PAGE = Path(__file__).parents[3] / "docs" / "exit-codes.md"


def test_the_page_has_the_codes_of_the_commands() -> None:
    codes = re.findall(r"^\| (\d+) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert [int(code) for code in codes] == sorted(ExitCode)


def test_the_help_has_them_too() -> None:
    shown = CliRunner().invoke(commands, ["--help"]).stdout
    codes = re.findall(r"\b(\d+)\b", shown.partition("Exit codes:")[2].partition("\n\n")[0])
    assert [int(code) for code in codes] == sorted(ExitCode)


def ended(expected: type[Exception], error: Exception) -> tuple[int, str]:
    """The exit code and the words of a command that raises this."""

    @click.group(cls=Commands, program="words", expected=(expected,), is_unknown=is_unknown)
    def program() -> None:
        """Nothing."""

    @program.command()
    def fail() -> None:
        raise error

    result = CliRunner().invoke(program, ["fail"])
    assert isinstance(result.exception, SystemExit)
    return result.exit_code, result.output


def is_unknown(error: BaseException) -> bool:
    return isinstance(error, OutcomeUnknown) or may_be_stored(error)


def test_one_error_whose_outcome_is_unknown_is_enough() -> None:
    certain, uncertain = GroupUnreachable("x"), AnswerOverdue(1.0)
    assert ended(DLedgerError, certain) == (ExitCode.FAILED, f"words: {certain}\n")
    code, told = ended(DLedgerError, ExceptionGroup("both", [certain, uncertain]))
    assert code == ExitCode.OUTCOME_UNKNOWN
    assert told.splitlines() == [f"words: {certain}", f"words: {uncertain}"]


def test_a_message_that_may_be_stored_is_such_an_error() -> None:
    stored = mq_errors.OutcomeUnknown("T", "lost", 1)
    assert ended(mq_errors.MessagingError, stored)[0] == ExitCode.OUTCOME_UNKNOWN
    rejected = mq_errors.Rejected("T", "refused", 1)
    assert ended(mq_errors.MessagingError, rejected)[0] == ExitCode.FAILED


def test_a_command_says_how_it_ends_where_nothing_was_raised() -> None:
    assert ended(DLedgerError, CommandFailed("too few", code=2)) == (2, "words: too few\n")


def test_an_error_that_nobody_expects_keeps_its_traceback() -> None:
    @click.group(cls=Commands, program="words", invoke_without_command=True)
    def program() -> None:
        raise ValueError("a mistake")

    result = CliRunner().invoke(program, [])
    assert isinstance(result.exception, ValueError)


def test_ctrl_c_ends_a_command_without_a_word() -> None:
    @click.group(cls=Commands, program="words", invoke_without_command=True)
    def program() -> None:
        raise KeyboardInterrupt

    result = CliRunner().invoke(program, [])
    assert (result.exit_code, result.output) == (ExitCode.INTERRUPTED, "")


@pytest.mark.parametrize(
    ("typed", "replaced", "words"),
    [
        (["rejoin", "."], "set_aside", "moved everything"),
        (["repair", ".", "--from", "."], "repair_folder", ". is repaired"),
    ],
)
def test_a_change_that_is_done_and_cannot_be_printed_has_not_failed(
    monkeypatch: pytest.MonkeyPatch, typed: list[str], replaced: str, words: str
) -> None:
    def full(*_arguments: object, **_more: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(f"dledger.commands.repair_command.{replaced}", lambda *_arguments: None)
    monkeypatch.setattr("click.echo", full)
    result = CliRunner().invoke(commands, typed)
    assert (result.exit_code, words in result.stderr) == (ExitCode.OUTCOME_UNKNOWN, True)


def test_members_that_are_changed_and_cannot_be_shown_are_not_said_to_be_as_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def changed(*_arguments: object) -> None: ...

    async def lost(*_arguments: object) -> None:
        raise GroupUnreachable("x")

    monkeypatch.setattr(GroupClient, "change", changed)
    monkeypatch.setattr(GroupClient, "leader_status", lost)
    typed = ["members", "--peers", "n0=127.0.0.1:1", "--remove", "n0"]
    result = CliRunner().invoke(commands, typed)
    assert result.exit_code == ExitCode.OUTCOME_UNKNOWN
    assert "the members are changed, but not shown" in result.stderr
