"""Every command prints any text on a terminal of any encoding."""

from __future__ import annotations

import io
import os
import subprocess
import sys

import click
import pytest

from dledger.command_line.ending import Commands
from dledger.command_line.rows import print_table, say
from dledger.commands.group_commands import _print_entry
from dledger.entry import Entry, Magic
from dledger.shown_output import shown_on
from dledger_mq.commands.consume_command import message_line
from dledger_mq.received_message import ReceivedMessage
from remoting.bodies.message_queue import MessageQueue

# What a body of a stranger's could do to a terminal: its title, its colours, a line written anew.
HOSTILE = "\x1b]0;title\x07\x1b[31mred\x9b2J\r\u202etxt\tgr\u00fcn\n"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_is_sent_no_control_characters_and_a_pipe_all() -> None:
    shown = shown_on(Terminal(), HOSTILE)
    assert shown == "\\x1b]0;title\\x07\\x1b[31mred\\x9b2J\\r\\u202etxt\tgr\u00fcn\n"
    assert shown_on(io.StringIO(), HOSTILE) == HOSTILE


def test_commands_print_bodies_so(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    message = ReceivedMessage(MessageQueue("T", "a", 0), 0, HOSTILE.encode())
    assert say(message_line(message, False))
    assert say(message_line(message, True))
    entry = Entry(1, 1, 0, Magic.NORMAL, HOSTILE.encode())
    _print_entry(entry, False)
    _print_entry(entry, True)
    assert all(one.isprintable() or one in "\n\t" for one in terminal.getvalue())
    assert terminal.getvalue().count("red") == 4


def test_a_command_whose_outputs_are_closed_does_its_work(monkeypatch: pytest.MonkeyPatch) -> None:
    done = []

    @click.group(cls=Commands, program="trial")
    def main() -> None: ...

    @main.command("show")
    def show() -> None:
        assert say("x")
        print_table(("a",), [(1,)])
        done.append(sys.stderr.isatty())

    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, None)
    with pytest.raises(SystemExit) as ended:
        main(["show"])
    for output in (sys.stdout, sys.stderr):
        output.close()
    assert (ended.value.code, done) == (0, [False])


# A module, and arguments with which its command ends soon.
COMMANDS = {
    "dledger": ("verify", "/nowhere"),
    "dledger_mq": ("topic", "list", "--nameserver", "127.0.0.1:1"),
    "dledger_spark": ("show", "--path", "/nowhere"),
    "jepsen_like": ("list",),
}
PRINTS_MORE = """
import runpy, sys
try:
    runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)
except SystemExit:
    pass
print("grün €")
"""


def test_what_an_encoding_lacks_is_printed_as_an_escape() -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    for module, arguments in COMMANDS.items():
        ended = subprocess.run(
            [sys.executable, "-c", PRINTS_MORE, module, *arguments],
            capture_output=True,
            env=environment,
            check=False,
            timeout=60,
        )
        assert ended.stdout.endswith(b"gr\xfcn \\u20ac\n"), (module, ended.stderr)
