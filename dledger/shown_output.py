"""Makes texts safe to print on any terminal."""

from __future__ import annotations

import io
import sys
from typing import TextIO


def escape_what_cannot_be_shown() -> None:
    r"""Have standard output write "\u20ac" where its encoding lacks a character.

    Messages and names may hold any character; the terminal may be one of latin-1. By default a
    print of such a text raises UnicodeEncodeError. Standard error escapes it already.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def shown_on(output: TextIO, text: str) -> str:
    r"""Return a text for `output`: control characters are escaped if it is a terminal.

    Users' bytes could move its cursor, change its title, or hide text. The terminal gets "\x1b"
    instead; line ends and tabs stay. A pipe or a file gets the text as it is.
    """
    return escaped(text, kept="\n\t") if output.isatty() else text


def escaped(text: str, kept: str = "") -> str:
    r"""Replace unprintable characters by escapes (`\n`, `\x1b`, `\u202e`), except those in `kept`.

    So the text begins no line, moves no cursor and turns no direction of writing.
    """
    if text.isprintable():
        return text
    return "".join(
        [
            one
            if one.isprintable() or one in kept
            else one.encode("unicode_escape").decode("ascii")
            for one in text
        ]
    )
