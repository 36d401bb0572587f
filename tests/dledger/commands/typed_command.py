"""A `dledger` command, run in the test's own process.

Python and trio take longer to start than most commands take to run, and a test of a real group
types dozens of them. The members of a group stay processes of their own. The tests of the page for
operators, of the tutorial, of `status` and of `append` start the commands as processes too.
"""

from __future__ import annotations

import io
import json
import os
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from typing import NamedTuple
from unittest.mock import patch

from dledger.__main__ import main

# Far more than a heartbeat: the machine that runs the tests has other things to do.
TAILED_WITHIN_S = 60.0


class Ended(NamedTuple):
    """What became of a command, as subprocess.CompletedProcess names it."""

    returncode: int
    stdout: str
    stderr: str


def typed(*words: object, environment: Mapping[str, str] | None = None) -> Ended:
    """Run `dledger` with these words, and with these variables beside those of the test."""
    with ExitStack() as stack:
        # Bytes below: a command may write some that are no text.
        out, err = (stack.enter_context(_text_stream()) for _ in range(2))
        stack.enter_context(patch.dict(os.environ, environment or {}))
        stack.enter_context(patch.object(sys, "argv", ["dledger", *map(str, words)]))
        stack.enter_context(redirect_stdout(out))
        stack.enter_context(redirect_stderr(err))
        try:
            main()
            code: object = None
        except SystemExit as ended:
            code = ended.code
        assert code is None or isinstance(code, int), code
        return Ended(code or 0, _written(out), _written(err))


def dledger(*words: object, ok: bool = True, environment: Mapping[str, str] | None = None) -> Ended:
    """The same; it must succeed, or fail where `ok` is False."""
    ended = typed(*words, environment=environment)
    assert (ended.returncode == 0) == ok, ended.stdout + ended.stderr
    return ended


def tailed(*options: object, until: str) -> list[str]:
    """The bodies that `dledger tail` prints with these options, once this one is among them.

    Whichever member answers is asked, and it may learn a little later what is committed.
    """
    give_up = time.monotonic() + TAILED_WITHIN_S
    while True:
        rows = map(json.loads, dledger("tail", "--json", *options).stdout.splitlines())
        bodies = [row["body"] for row in rows if row["kind"] == "normal"]
        if until in bodies:
            return bodies
        assert time.monotonic() < give_up, bodies
        time.sleep(0.05)


def _text_stream() -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)


def _written(stream: io.TextIOWrapper) -> str:
    assert isinstance(stream.buffer, io.BytesIO)
    return stream.buffer.getvalue().decode()
