"""A page of the documentation as a reader would follow it: what to save, what to type, what shows.

A block of Python behind `<!-- file: NAME -->` is saved under that name. In a console block, lines
that begin with `$ ` are typed; the others are what the command prints. A console block behind
`<!-- another terminal -->` ends with a command that goes on; `<!-- Ctrl-C -->` ends it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_PART = re.compile(
    r"<!-- file: (?P<file>\S+) -->\n```python\n(?P<content>.*?)\n```\n"
    r"|(?P<other><!-- another terminal -->\n)?```console\n(?P<console>.*?)\n```\n"
    r"|(?P<stop><!-- Ctrl-C -->)",
    re.DOTALL,
)


class SaveFile(NamedTuple):
    """Save a file."""

    name: str
    content: str


class TypedCommand(NamedTuple):
    """Type a command; `shown` is what the page says it prints."""

    command: str
    shown: list[str]
    elsewhere: bool = False  # in another terminal


class Interrupt(NamedTuple):
    """Ctrl-C in the other terminal."""


Step = SaveFile | TypedCommand | Interrupt


def steps_of(page: str) -> Iterator[Step]:
    """What the page has its reader do, in order. Raises ValueError if a block types nothing."""
    for part in _PART.finditer(page):
        if part["file"]:
            yield SaveFile(part["file"], part["content"] + "\n")
        elif part["stop"]:
            yield Interrupt()
        else:
            yield from _typed(part["console"], elsewhere=part["other"] is not None)


def _typed(console: str, *, elsewhere: bool) -> Iterator[TypedCommand]:
    step: TypedCommand | None = None
    for line in console.splitlines():
        if line.startswith("$ "):
            if step is not None:
                yield step
            step = TypedCommand(line.removeprefix("$ "), [], elsewhere)
        elif step is None:
            raise ValueError(f"a console block begins with {line!r}, not with a command")
        else:
            step.shown.append(line)
    if step is not None:
        yield step


# What differs from run to run, and what stands for it: addresses, ids of messages and where they
# are, whose turn it is to lead, and the numbers of those who were elected before.
_VARYING = (
    (re.compile(r"^[0-9A-F]{32}(?= \S+ queue )"), "MESSAGE"),
    (re.compile(r"(?<=^MESSAGE )(\S+) queue \d+ offset \d+$"), r"\1 QUEUE OFFSET"),
    (re.compile(r"127\.0\.0\.1:\d+"), "ADDRESS"),
    (re.compile(r"\bn[0-9]\b(?= leads)"), "MEMBER"),
    (re.compile(r"^\d+\t\d+\t(?=\d+$)"), "INDEX\tTERM\t"),
    (re.compile(r"^INDEX\tTERM\t\d+$"), "INDEX\tTERM\tPOSITION"),
    (re.compile(r"^\d+\t\d+\t(?=normal)"), "INDEX\tTERM\t"),
    (re.compile(r"^(n\d)\t\d+\t\d+\t(.*/)\d{20}(?=\.snapshot$)"), r"\1\tINDEX\tBYTES\t\2INDEX"),
    (re.compile(r"\b(leader \(ready\)|follower)\s.*$"), "ROLE"),
    (re.compile(r"[─ ]{2,}"), " "),
)
# Entries that open a term; and what a full disk of the reader's has the status say.
_NOT_TOLD = re.compile(r"^\d+\t\d+\tnoop\t?$|^(WARNING|CRITICAL)  .*\bfull\b")


def masked(lines: list[str]) -> list[str]:
    """The lines as they are the same in each run: without elections, and without empty lines."""
    found = []
    for line in lines:
        if not line.strip() or _NOT_TOLD.match(line):
            continue
        text = line
        for varying, name in _VARYING:
            text = varying.sub(name, text)
        found.append(text.strip())
    return found
