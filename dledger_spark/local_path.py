"""Paths of folders on this machine, as users write them."""

from __future__ import annotations

import os
import re
import stat
from typing import Final
from urllib.parse import unquote, urlsplit

from dledger_spark.errors import LogFolderInvalid, OptionInvalid

_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
_ELSEWHERE: Final = (
    "only folders of this machine can be used: mount it here, and give its path; a log can also be "
    "read from its running group (bootstrap)"
)


def require_folder(path: str, remedy: str) -> None:
    """Check that there is a folder.

    Args:
        path: where it should be.
        remedy: what to do otherwise.

    Raises:
        LogFolderInvalid: there is none.
        OSError: it cannot be looked at.
    """
    try:
        mode = os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        raise LogFolderInvalid(path, f"does not exist: {remedy}") from None
    if not stat.S_ISDIR(mode):
        raise LogFolderInvalid(path, f"is a file: {remedy}")


def local_path(option: str, text: str) -> str:
    """The absolute path that an option names; `file:///path` is taken, too.

    Raises:
        OptionInvalid: it is a URL of something else, or no path.
    """
    if "\0" in text:
        raise OptionInvalid(option, text, "a path holds no zero byte")
    if not _URL.match(text):
        return os.path.abspath(text)
    url = urlsplit(text)
    if url.scheme.lower() != "file" or url.netloc not in ("", "localhost"):
        raise OptionInvalid(option, text, _ELSEWHERE)
    return os.path.abspath(unquote(url.path))
