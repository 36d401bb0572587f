"""The format of a server's log: one line for one event, whatever a client has sent."""

import logging
from typing import Final

from remoting.wire.quoted import quoted

# The longest event. Texts from clients are quoted where they are inserted, and much shorter.
MAX_EVENT_CHARACTERS: Final = 2000

# The longest line of a traceback: an error's text may contain all that a client has sent.
_MAX_TRACEBACK_CHARACTERS: Final = 500
_MAX_TRACEBACK_LINES: Final = 200
_INDENT: Final = "    "


class LogLines(logging.Formatter):
    """Formats an event as its time, its level and its text; a traceback follows, indented.

    So a line that begins with a time is one of this program. This is the last guard: where events
    are logged, texts of clients are `quoted` one by one.
    """

    def format(self, record: logging.LogRecord) -> str:
        text = quoted(record.getMessage(), MAX_EVENT_CHARACTERS)
        line = f"{self.formatTime(record)} {record.levelname} {text}"
        if record.exc_info:
            lines = self.formatException(record.exc_info).split("\n")
            if len(lines) > _MAX_TRACEBACK_LINES:
                lines[_MAX_TRACEBACK_LINES // 2 : -_MAX_TRACEBACK_LINES // 2] = ["..."]
            shown = [_INDENT + quoted(one, _MAX_TRACEBACK_CHARACTERS) for one in lines]
            line = "\n".join([line, *shown])
        return line
