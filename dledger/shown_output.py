"""What a command prints is shown by any terminal."""

from __future__ import annotations

import io
import sys


def escape_what_cannot_be_shown() -> None:
    r"""Have standard output write "\u20ac" where its encoding lacks a character.

    Messages and names may hold any; the terminal may be one of latin-1. By default a print of such
    a text raises UnicodeEncodeError. Standard error writes it so already.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
