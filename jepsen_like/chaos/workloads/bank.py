"""Accounts between which money is moved."""

from __future__ import annotations

from functools import partial
from typing import Any

from jepsen_like.chaos.service import Call, Caller, CallFailed
from jepsen_like.chaos.workloads.json_commands import JsonCommands, State, state_of

ACCOUNTS = 8
OPENING_BALANCE = 100
AMOUNT_MAX = 20

_OPENED = {str(account): OPENING_BALANCE for account in range(ACCOUNTS)}


def _carry_out(balances: State, function: str, key: Any, value: Any) -> object:
    """Carry out a transfer; return whether there was enough."""
    if function != "transfer" or not isinstance(value, dict):
        return None
    source, target, amount = str(value["from"]), str(value["to"]), int(value["amount"])
    if balances[source] < amount:
        return False
    balances[source] -= amount
    balances[target] += amount
    return True


class BankWorkload:
    """A bank: transfers move money, and each read finds all of it."""

    model = "bank"
    machine = staticmethod(partial(JsonCommands, _carry_out, _OPENED))
    state = staticmethod(state_of)
    settings = {"total": ACCOUNTS * OPENING_BALANCE}  # noqa: RUF012 # it never changes

    def generate(self, caller: Caller) -> Call:
        """Draw as many reads as transfers."""
        if caller.random.random() < 0.5:
            return Call("read", is_read=True)
        source, target = caller.random.sample(range(ACCOUNTS), 2)
        amount = caller.random.randint(1, AMOUNT_MAX)
        return Call("transfer", None, {"from": str(source), "to": str(target), "amount": amount})

    def query(self, machine: JsonCommands, call: Call) -> object:
        return dict(machine.state)

    def answered(self, call: Call, result: object) -> object:
        """Raise CallFailed if there was not enough in the account."""
        if result is not True:
            raise CallFailed("there is not enough in the account")
        return call.value

    def invariant(self, machine: JsonCommands) -> str | None:
        """Return by how much money has appeared or disappeared."""
        total = sum(machine.state.values())
        if total == ACCOUNTS * OPENING_BALANCE:
            return None
        return f"the balances add up to {total}, not {ACCOUNTS * OPENING_BALANCE}"

    def final(self) -> list[Call]:
        return [Call("read", is_read=True)]
