"""Refuses calls outside trio, with an error that names the form to use instead."""

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
        package: the package of the call and of its other forms.
        form: the name of the call's other forms, if it differs; or, with blanks, what to do
            instead.
    """
    if not trio.lowlevel.in_trio_task():
        instead = BRIDGED.format(package=package, call=form or call)
        raise NotInTrio(f"{package}.{call}", form if " " in form else instead)
