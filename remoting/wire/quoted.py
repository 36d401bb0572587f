"""Makes texts of clients safe for a line of a log, or for a remark: short, and on one line."""

from typing import Final

from dledger.shown_output import escaped

# The quoted part of a client's text: enough to identify it.
MAX_QUOTED_CHARACTERS: Final = 120

# Clients print a remark on one line, and the C++ client copies it to its log.
MAX_REMARK_CHARACTERS: Final = 300


def remark_of(text: str) -> str:
    """Return a text as the remark of a reply: short, and on one line."""
    line = "".join([character if character.isprintable() else " " for character in text])
    return line[:MAX_REMARK_CHARACTERS]


def quoted(text: object, most_characters: int = MAX_QUOTED_CHARACTERS) -> str:
    r"""Quote a text from outside, such as a client's name or an error with data of a client.

    Characters that begin a line, move a cursor or reverse the direction of text become escapes
    (`\n`, `\x1b`, `\u202e`), so that only this program writes lines of its log.

    Args:
        text: is converted by `str`.
        most_characters: the rest is left out, and counted.
    """
    whole = str(text)
    shown = escaped(whole[:most_characters])
    left_out = len(whole) - most_characters
    return shown if left_out <= 0 else f"{shown}... ({left_out} characters more)"
