"""Text of others in a line of a log, or in a remark: short, on one line, and as it reads."""

from typing import Final

from dledger.shown_output import escaped

# A client's text in a line: enough to find it by.
MAX_QUOTED_CHARACTERS: Final = 120

# Clients print a remark on one line, and the C++ client copies it to its log.
MAX_REMARK_CHARACTERS: Final = 300


def remark_of(text: str) -> str:
    """A text as the remark of a reply: short, and on one line."""
    line = "".join([character if character.isprintable() else " " for character in text])
    return line[:MAX_REMARK_CHARACTERS]


def quoted(text: object, most_characters: int = MAX_QUOTED_CHARACTERS) -> str:
    r"""A text that others chose, such as a client's name or an error with what a client sent.

    What begins a line, moves a cursor or turns the direction of writing stands as its escape (`\n`,
    `\x1b`, `\u202e`), so that nobody writes lines of a log but this program.

    Args:
        text: the text, or what is made one.
        most_characters: what is behind so many is left out, and counted.
    """
    whole = str(text)
    shown = escaped(whole[:most_characters])
    left_out = len(whole) - most_characters
    return shown if left_out <= 0 else f"{shown}... ({left_out} characters more)"
