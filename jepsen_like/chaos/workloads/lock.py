"""Locks that one client at a time may hold."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

from jepsen_like.chaos.service import Call, Caller, CallFailed
from jepsen_like.chaos.workloads.json_commands import JsonCommands, State, state_of
from jepsen_like.chaos.workloads.keys import rotating_key

# Short: a lock whose acquisition had no answer may be held for ever.
CALLS_A_LOCK = 40


def _carry_out(holders: State, function: str, key: Any, value: Any) -> object:
    """Acquire or release a lock for a client, the value; return whether that was possible."""
    name = str(key)
    if function == "acquire":
        if name in holders:
            return False
        holders[name] = value
        return True
    if function == "release" and name in holders and holders[name] == value:
        del holders[name]
        return True
    return False


class LockWorkload:
    """Locks: no two clients hold one at the same time."""

    model = "mutex"
    machine = staticmethod(partial(JsonCommands, _carry_out))
    state = staticmethod(state_of)

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
        """Raise CallFailed if another client held the lock, or this one did not."""
        if result is not True:
            raise CallFailed("another client holds the lock, or nobody does")
        return None


def _call(function: str, key: str, process: int) -> Call:
    return Call(function, key, body=json.dumps([function, key, process]).encode())
