"""Refuses calls outside trio with an error that says what to use instead; trio's does not."""

from __future__ import annotations

import trio

from dledger.errors import NotInTrio

BRIDGED = (
    "under asyncio, as in a notebook, use {package}.for_asyncio.{call}, "
    "without a loop {package}.blocking.{call}"
)


def require_trio(call: str, package: str = "dledger", form: str = "") -> None:
    """Raise NotInTrio unless a trio task makes this call.

    Args:
        call: the name of the call in `package`.
        package: where it is, and has its other forms.
        form: how they are called there, if otherwise; may name what to do instead, with blanks.
    """
    if not trio.lowlevel.in_trio_task():
        instead = BRIDGED.format(package=package, call=form or call)
        raise NotInTrio(f"{package}.{call}", form if " " in form else instead)
