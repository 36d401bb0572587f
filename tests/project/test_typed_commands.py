"""Each command line of ours that a page, a help text, an error or a log line shows can be typed.

`test_advice` sees that advice helps in its situation. This test sees for all of them that command,
subcommand, options, their values and the number of arguments are right.
"""

from __future__ import annotations

import contextlib
import importlib
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import click
import pytest

from tests.project.test_advice import PACKAGES, texts

ROOT = Path(__file__).parents[2]
MODULES = {
    "dledger": ("dledger.commands.group_commands", "commands"),
    "dledger-mq": ("dledger_mq.__main__", "main"),
    "dledger-spark": ("dledger_spark.commands.spark_commands", "dledger_spark"),
    "jepsen-like": ("jepsen_like.__main__", "main"),
    "dledger-mq broker": ("broker.broker_command", "broker"),  # passes its arguments on
    "dledger-mq nameserver": ("nameserver.nameserver_command", "main"),
    "dledger-mq proxy": ("proxy.proxy_command", "main"),
    "python -m broker": ("broker.broker_command", "broker"),
    "python -m nameserver": ("nameserver.nameserver_command", "main"),
}
PAGES = (*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md")

PROGRAM = "|".join(map(re.escape, sorted(MODULES, key=len, reverse=True)))
# A line of its own, in a block or a help text.
LINE = re.compile(rf"^[ \t]*(?:\$ |> )?(?:\.venv/bin/)?(?P<program>{PROGRAM})(?P<rest> .*)$", re.M)
# What an example of a help text does stands behind it.
EXPLAINED = re.compile(r" {3,}(?! |--).*$")
# Within a sentence.
QUOTED = re.compile(rf"`(?P<program>{PROGRAM})(?P<rest>(?: [^`]*)?)`")
PROSE = re.compile(rf"(?<![\w`/-])(?P<program>{PROGRAM})(?P<rest> [a-z][a-z-]*)(?![\w-])")
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*[a-z](?![\w-])")

# What a shell understands, and no program is given.
SHELL = re.compile(r"(?:\d?>>?|\|\|?|&&?|;|2>&1)")
# Words behind a program's name that are no commands.
WORDS = {
    *("dledger client", "dledger peer", "dledger and", "dledger group", "dledger log"),
    *("dledger-mq offsets",),  # the first line of a file
}
# Options of other programs.
FOREIGN_OPTIONS = {
    *("--help", "--add-modules", "--add-opens", "--lazy", "--net", "--py-files"),
    "--messages",  # of the demonstration
}
# Pages on programs of bench/ and tests/clients.
OF_OTHER_PROGRAMS = ("in-your-web-application", "performance", "real-clients")


class Typed(NamedTuple):
    """A command line, and where it stands. `is_whole`: it can be typed as it stands."""

    where: str
    program: str
    rest: str
    is_whole: bool


@cache
def command_of(program: str) -> click.Command:
    module, name = MODULES[program]
    found = getattr(importlib.import_module(module), name)
    assert isinstance(found, click.Command)
    return found


def walk(command: click.Command) -> Iterator[click.Command]:
    """A command and all below it."""
    yield command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from walk(below)


def joined(text: str) -> str:
    """The text without breaks within a command line."""
    return re.sub(r" *\\\n\s*", " ", text)


def in_pages() -> Iterator[Typed]:
    for page in PAGES:
        text, name = joined(page.read_text()), str(page.relative_to(ROOT))
        for match in LINE.finditer(text):
            yield Typed(name, match["program"], match["rest"], is_whole=True)
        for match in QUOTED.finditer(" ".join(text.split())):
            yield Typed(name, match["program"], match["rest"], is_whole=False)


def in_help() -> Iterator[Typed]:
    for program in MODULES:
        for command in walk(command_of(program)):
            text = joined(command.get_help(click.Context(command, info_name="x")))
            for match in LINE.finditer(text):
                rest = EXPLAINED.sub("", match["rest"])
                yield Typed(f"{program} --help", match["program"], rest, is_whole=True)


def in_code() -> Iterator[Typed]:
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            name = str(path.relative_to(ROOT))
            for text in texts(path):
                line = " ".join(text.split())
                for match in QUOTED.finditer(line):
                    yield Typed(name, match["program"], match["rest"], is_whole=False)
                for match in PROSE.finditer(line):
                    if match["program"] + match["rest"] not in WORDS:
                        yield Typed(name, match["program"], match["rest"], is_whole=False)


def words_of(typed: Typed) -> list[str]:
    """What the program is given."""
    lexer = shlex.shlex(typed.rest, posix=True, punctuation_chars=False)
    lexer.whitespace_split = True
    if not typed.is_whole:
        lexer.commenters = ""
    words: list[str] = []
    for word in lexer:
        if SHELL.match(word):
            break
        words.append(word)
    return words


def is_filled_in(value: str) -> bool:
    """Whether a value is none yet: FILE, {}, $PEERS or `...`."""
    return value.isupper() or value.startswith(("{", "$", "..."))


def problem_with(command: click.Command, words: list[str], is_whole: bool) -> str | None:
    """What is wrong with a command line; None if nothing is."""
    context = click.Context(command, info_name=command.name)
    try:
        values, rest, _order = command.make_parser(context).parse_args(list(words))
    except click.BadOptionUsage as error:  # a value is missing
        return error.format_message() if is_whole else None
    except click.UsageError as error:
        return error.format_message()
    if "--help" in words or "--version" in words:
        return None
    for param in command.params:
        value = values.get(param.name or "")
        if value is None:
            if is_whole and param.required and "--config" not in words:
                return f"{param.name} is missing"
            continue
        judged = isinstance(param.type, click.Choice | click.types.IntParamType | click.FloatRange)
        if judged and isinstance(value, str) and not is_filled_in(value):
            try:
                param.type.convert(value, param, context)
            except click.UsageError as error:
                return error.format_message()
    if not isinstance(command, click.Group):
        return f"{rest} is too much" if rest and is_whole else None
    if not rest:
        return f"which command of {command.name}?" if is_whole and not values else None
    if is_filled_in(rest[0]):
        return None
    below = command.get_command(context, rest[0])
    if below is None:
        return f"{command.name} has no {rest[0]}"
    return problem_with(below, rest[1:], is_whole and "--config" not in words)


def test_each_command_line_that_is_shown_can_be_typed() -> None:
    found = [*in_pages(), *in_help(), *in_code()]
    wrong: list[str] = []
    for typed in found:
        try:
            words = words_of(typed)
        except ValueError as error:
            wrong.append(f"{typed.where}: {typed.program}{typed.rest}: {error}")
            continue
        problem = problem_with(command_of(typed.program), words, typed.is_whole)
        if problem is not None:
            wrong.append(f"{typed.where}: {typed.program}{typed.rest}: {problem}")
    assert not wrong, "\n".join(wrong)
    places = {typed.where for typed in found}
    assert {"README.md", "docs/operations.md", "dledger --help", "dledger/errors.py"} <= places
    assert {typed.program for typed in found} == MODULES.keys()


def test_each_option_that_is_named_is_one_of_ours() -> None:
    known = {
        name
        for program in MODULES
        for command in walk(command_of(program))
        for param in command.params
        for name in (*param.opts, *param.secondary_opts)
    }
    named = [
        (str(path.relative_to(ROOT)), name)
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
        if not {"report", "pages"} & {*path.parts}  # the colours of pages are written so, too
        for text in texts(path)
        for name in OPTION.findall(text)
    ]
    for page in PAGES:
        if page.stem in OF_OTHER_PROGRAMS:
            continue
        for quoted in re.findall(r"`(--[^`]+)`", page.read_text()):
            named += [(str(page.relative_to(ROOT)), name) for name in OPTION.findall(quoted)]
    known |= FOREIGN_OPTIONS
    assert not [f"{where}: {name}" for where, name in named if name not in known]


@pytest.mark.parametrize("program", MODULES)
def test_no_option_takes_a_number_that_is_none(program: str) -> None:
    # A limit that nothing is above or below never counts.
    taking = []
    for command in walk(command_of(program)):
        for option in command.params if command.name != "serve" else ():  # NodeConfig checks these
            if isinstance(option.type, click.types.FloatParamType):
                with contextlib.suppress(click.UsageError):
                    option.type_cast_value(click.Context(command), "nan")
                    taking.append(f"{command.name} {option.opts[0]}")
    assert taking == []
