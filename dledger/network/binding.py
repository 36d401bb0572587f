"""Binds an address."""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable
from typing import TypeVar

from dledger.config import Address
from dledger.errors import AddressInUse, ConfigInvalid

Made = TypeVar("Made")


async def bind(
    setting: str, address: Address, listen: Callable[[Address], Awaitable[Made]]
) -> Made:
    """Listen at `address`.

    Raises AddressInUse, or ConfigInvalid naming `setting` if this machine has no such address.
    """
    try:
        return await listen(address)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise AddressInUse(str(address)) from error
        problem = f"cannot listen on {address}: {error}"
        if setting == "peers" and error.errno == errno.EADDRNOTAVAIL:
            problem += "; give `listen` where others reach this machine by another address"
        raise ConfigInvalid(setting, problem) from error
