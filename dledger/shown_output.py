"""What a command prints is shown by any terminal."""

from __future__ import annotations

import io
import sys
from typing import TextIO


def escape_what_cannot_be_shown() -> None:
    r"""Have standard output write "\u20ac" where its encoding lacks a character.

    Messages and names may hold any; the terminal may be one of latin-1. By default a print of such
    a text raises UnicodeEncodeError. Standard error writes it so already.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def shown_on(output: TextIO, text: str) -> str:
    r"""A text as it is written to `output`: a terminal is sent no control characters.

    Users' bytes could move its cursor, change its title, or hide text. It gets "\x1b" instead; line
    ends and tabs stay. A pipe or a file gets the text as it is.
    """
    return escaped(text, kept="\n\t") if output.isatty() else text


def escaped(text: str, kept: str = "") -> str:
    r"""A text in which escapes (`\n`, `\x1b`, `\u202e`) stand for what cannot be printed.

    So it begins no line, moves no cursor and turns no direction of writing. `kept` stays as it is.
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
