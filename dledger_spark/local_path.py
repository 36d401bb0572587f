"""Paths of folders on this machine: as users write them, and as Delta, DuckDB and Spark want them.

A path may hold any character that the file system accepts. DuckDB and Spark expect patterns, with
special characters; Delta's library returns URLs, and cannot use some folders.
"""

import os
import re
import stat
from collections.abc import Iterable
from typing import Final
from urllib.parse import unquote, urlsplit

from dledger_spark.errors import LogFolderInvalid, OptionInvalid

# Folders at the root of a file system, which may be an output.
OF_FILE_SYSTEM: Final = frozenset({"lost+found"})
_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
# Delta's library (1.6) reads a percent sign with two digits as the character of that number, a
# backslash as a slash, and aborts or fails at the others.
_NOT_FOR_DELTA: Final = re.compile(r"[\x00-\x1f\x7f\[\]^|\\]|%[0-9A-Fa-f]{2}")
_MEANS_MORE_TO_DUCKDB: Final = re.compile(r"([*?\[])")
# An option of Spark's readers: paths are no patterns. (Escapes do not help: in a pattern, Spark
# takes the part before a colon for the scheme of a URL.)
SPARK_PATHS: Final = {"__globPaths__": "false"}
_ELSEWHERE: Final = (
    "only folders of this machine can be used: mount it here, and give its path; a log can also be "
    "read from its running group (bootstrap)"
)


def require_folder(path: str, remedy: str) -> None:
    """Check that there is a folder; `remedy` is the advice if there is none.

    Raises:
        LogFolderInvalid: there is none.
        OSError: it cannot be accessed.
    """
    try:
        mode = os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        raise LogFolderInvalid(path, f"does not exist: {remedy}") from None
    if not stat.S_ISDIR(mode):
        raise LogFolderInvalid(path, f"is a file: {remedy}")


def local_path(option: str, text: str) -> str:
    """Return the absolute path that an option names, perhaps as `file:///path`.

    Raises:
        OptionInvalid: it is another URL, or no path.
    """
    if "\0" in text:
        raise OptionInvalid(option, text, "a path holds no zero byte")
    if not _URL.match(text):
        return os.path.abspath(text)
    url = urlsplit(text)
    if url.scheme.lower() != "file" or url.netloc not in ("", "localhost"):
        raise OptionInvalid(option, text, _ELSEWHERE)
    return os.path.abspath(unquote(url.path))


def tables_path(option: str, text: str) -> str:
    """Return the absolute path of a folder for Delta tables, which an option names.

    Raises:
        OptionInvalid: see `local_path`, or Delta's library cannot use a folder of this name.
    """
    path = local_path(option, text)
    real = os.path.realpath(path)  # Delta's library follows links
    try:
        real.encode()
    except UnicodeEncodeError:
        raise OptionInvalid(option, text, "Delta tables need a path in UTF-8") from None
    if found := _NOT_FOR_DELTA.search(real):
        problem = f"Delta tables cannot be in a folder with {found[0]!r} in its path: name another"
        raise OptionInvalid(option, text, problem)
    return path


def files_of_delta(folder: str, uris: Iterable[str]) -> list[str]:
    """Return the paths of a table's files, from their URLs.

    The tables have no partitions, so all files are in the table's folder. The names of files need
    no quoting in a URL; those of the folders above may.
    """
    return [f"{folder}/{uri.rpartition('/')[2]}" for uri in uris]


def pattern_for_duckdb(path: str) -> str:
    """Return a pattern of DuckDB's that matches only this path."""
    return _MEANS_MORE_TO_DUCKDB.sub(r"[\1]", path)
