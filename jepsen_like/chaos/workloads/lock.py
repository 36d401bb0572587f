"""Locks that one client at a time may hold."""

from __future__ import annotations

import json
from typing import Any

from jepsen_like.chaos.service import Call, Caller, CallFailed
from jepsen_like.chaos.workloads.json_commands import JsonCommands
from jepsen_like.chaos.workloads.keys import rotating_key

# Short: a lock whose acquisition had no answer may be held for ever.
CALLS_A_LOCK = 40


class Locks:
    """The state: who holds each lock."""

    def __init__(self) -> None:
        self.holders: dict[str, object] = {}

    def carry_out(self, function: str, key: object, value: object) -> object:
        """See Commands. The value is the client; answers whether it got or gave back the lock."""
        name = str(key)
        if function == "acquire":
            if name in self.holders:
                return False
            self.holders[name] = value
            return True
        if function == "release" and name in self.holders and self.holders[name] == value:
            del self.holders[name]
            return True
        return False

    def dump(self) -> object:
        """See Commands."""
        return self.holders

    def load(self, dumped: object) -> None:
        """See Commands."""
        assert isinstance(dumped, dict)
        self.holders = dict(dumped)


def _machine() -> JsonCommands:
    return JsonCommands(Locks())


class LockWorkload:
    """Locks: no two clients hold one at the same time."""

    model = "mutex"
    machine = staticmethod(_machine)

    def __init__(self) -> None:
        self._held: dict[int, str] = {}

    def generate(self, caller: Caller) -> Call:
        """Acquire a lock, and release it with the next call."""
        held = self._held.pop(caller.process, None)
        if held is not None:
            return _call("release", held, caller.process)
        key = rotating_key(caller, calls_a_key=CALLS_A_LOCK)
        self._held[caller.process] = key
        return _call("acquire", key, caller.process)

    def answered(self, call: Call, result: object) -> object:
        """Raises CallFailed if another client held the lock, or this one did not."""
        if result is not True:
            raise CallFailed("another client holds the lock, or nobody does")
        return None

    def state(self, machine: Any) -> object:
        """All holders."""
        return machine.commands.holders


def _call(function: str, key: str, process: int) -> Call:
    return Call(function, key, body=json.dumps([function, key, process]).encode())
