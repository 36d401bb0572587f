"""Notifies the supervisor of a process of its state, by systemd's protocol.

Each message is a datagram of lines NAME=value to the socket that NOTIFY_SOCKET names. Source:
sd_notify(3), systemd.service(5).
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

import trio

from dledger.shown_output import escaped

logger = logging.getLogger(__name__)

# A status is one line in the output of `systemctl status`.
_MAX_STATUS_CHARACTERS: Final = 200


class Supervisor:
    """The program that started this process and watches it; without one, nothing is told.

    The socket stays open, so that a process without free descriptors goes on to answer the
    watchdog. A supervisor that cannot be reached is logged once.
    """

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        self._socket: socket.socket | None = None
        self._address = environment.get("NOTIFY_SOCKET", "")
        self._is_failure_told = False
        self._watchdog_s = _watchdog_s(environment)
        if self._address:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._socket.setblocking(False)

    def ready(self) -> None:
        self._tell("READY=1")

    def stopping(self) -> None:
        self._tell("STOPPING=1")

    def status(self, text: str) -> None:
        self._tell(f"STATUS={escaped(text[:_MAX_STATUS_CHARACTERS])}")

    @contextmanager
    def reloading(self) -> Iterator[None]:
        """Tell of a reload while the block runs."""
        self._tell(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")
        try:
            yield
        finally:
            self._tell("READY=1")

    async def answer_watchdog(self) -> None:
        """Tell twice within the watchdog's time that this event loop runs, if there is one."""
        while self._watchdog_s is not None:
            self._tell("WATCHDOG=1")
            await trio.sleep(self._watchdog_s / 2)

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()

    def _tell(self, message: str) -> None:
        if self._socket is None:
            return
        # An address that begins with @ is abstract: no file in a folder.
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        try:
            self._socket.sendto(message.encode(), address)
        except (OSError, ValueError) as error:
            if not self._is_failure_told:
                self._is_failure_told = True
                logger.warning("NOTIFY_SOCKET %s cannot be told: %s", self._address, error)


def _watchdog_s(environment: Mapping[str, str]) -> float | None:
    """Return how long the watchdog of this process waits; None without one."""
    if environment.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    time_us = environment.get("WATCHDOG_USEC", "")
    return int(time_us) / 1e6 if time_us.isascii() and time_us.isdigit() and int(time_us) else None
