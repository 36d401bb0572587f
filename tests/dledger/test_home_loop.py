"""The loop that an object belongs to."""

from __future__ import annotations

import os
import warnings

import pytest
import trio

from dledger.home_loop import HomeLoop


class Elsewhere(Exception):
    """The call is made elsewhere."""


async def made() -> HomeLoop:
    home = HomeLoop(Elsewhere)
    home.check()
    return home


def test_a_later_loop_of_the_same_thread_is_another_one_and_so_is_none() -> None:
    async def made_and_ended() -> HomeLoop:
        home = await made()
        home.end()
        home.check()
        return home

    home = trio.run(made_and_ended)

    async def check() -> None:
        with pytest.raises(Elsewhere):
            home.check()

    trio.run(check)
    with pytest.raises(Elsewhere):
        home.check()


def test_a_loop_that_a_fork_has_copied_is_another_one() -> None:
    async def fork() -> int:
        home = await made()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of a fork beside threads
            process = os.fork()
        if process == 0:
            try:
                home.check()
            except Elsewhere:
                os._exit(7)
            finally:
                os._exit(1)
        home.check()
        _, status = os.waitpid(process, 0)  # noqa: ASYNC222 - it has ended
        return os.waitstatus_to_exitcode(status)

    assert trio.run(fork) == 7
