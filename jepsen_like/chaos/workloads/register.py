"""Registers that are read and written, and compared and set."""

from __future__ import annotations

from functools import partial
from typing import Any

from jepsen_like.chaos.service import Call, Caller, CallFailed
from jepsen_like.chaos.workloads.json_commands import JsonCommands, State, state_of
from jepsen_like.chaos.workloads.keys import rotating_key

# Few values are in use, so that a comparison succeeds now and then.
CAS_VALUES = 5
# The share of the reads that go through the log, as entries.
READS_THROUGH_LOG = 0.2


def _carry_out(values: State, function: str, key: Any, value: Any) -> object:
    """Carry out a command; a `cas` returns whether it found the expected value."""
    name = str(key)
    match function:
        case "read":
            return values.get(name)
        case "write":
            values[name] = value
            return True
        case "cas" if isinstance(value, list) and len(value) == 2:
            if values.get(name) != value[0]:
                return False
            values[name] = value[1]
            return True
        case _:
            return None


class RegisterWorkload:
    """Registers: writes and linearizable reads, from members and through the log."""

    model = "register"
    machine = staticmethod(partial(JsonCommands, _carry_out))
    state = staticmethod(state_of)

    def generate(self, caller: Caller) -> Call:
        """Draw as many reads as writes of values that differ."""
        key = rotating_key(caller)
        if caller.random.random() < 0.5:
            is_read = caller.random.random() >= READS_THROUGH_LOG
            return Call("read", key, is_read=is_read)
        return Call("write", key, caller.number)

    def query(self, machine: JsonCommands, call: Call) -> object:
        return machine.state.get(str(call.key))

    def answered(self, call: Call, result: object) -> object:
        """Return the value of a read through the log, or the value that was written."""
        return result if call.function == "read" else call.value


class CasWorkload(RegisterWorkload):
    """Registers: compare-and-set beside writes and linearizable reads."""

    model = "cas-register"

    def generate(self, caller: Caller) -> Call:
        """Draw reads, writes, and comparisons of few values."""
        key = rotating_key(caller)
        choice = caller.random.random()
        if choice < 0.4:
            is_read = caller.random.random() >= READS_THROUGH_LOG
            return Call("read", key, is_read=is_read)
        value = caller.random.randrange(CAS_VALUES)
        if choice < 0.6:
            return Call("write", key, value)
        return Call("cas", key, (value, caller.random.randrange(CAS_VALUES)))

    def answered(self, call: Call, result: object) -> object:
        """Raise CallFailed if a comparison failed."""
        if call.function == "cas" and result is not True:
            raise CallFailed("the register held another value")
        return super().answered(call, result)
