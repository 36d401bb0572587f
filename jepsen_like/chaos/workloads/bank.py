"""Accounts between which money is moved."""

from __future__ import annotations

from typing import Any

from jepsen_like.chaos.service import Call, Caller, CallFailed
from jepsen_like.chaos.workloads.json_commands import JsonCommands

ACCOUNTS = 8
OPENING_BALANCE = 100
AMOUNT_MAX = 20


class Accounts:
    """The state: the balance of each account."""

    def __init__(self) -> None:
        self.balances = {str(account): OPENING_BALANCE for account in range(ACCOUNTS)}

    def carry_out(self, function: str, key: object, value: object) -> object:
        """See Commands. A transfer answers whether there was enough."""
        if function != "transfer" or not isinstance(value, dict):
            return None
        source, target, amount = str(value["from"]), str(value["to"]), int(value["amount"])
        if self.balances[source] < amount:
            return False
        self.balances[source] -= amount
        self.balances[target] += amount
        return True

    def dump(self) -> object:
        """See Commands."""
        return self.balances

    def load(self, dumped: object) -> None:
        """See Commands."""
        assert isinstance(dumped, dict)
        self.balances = {str(account): int(balance) for account, balance in dumped.items()}


def _machine() -> JsonCommands:
    return JsonCommands(Accounts())


class BankWorkload:
    """A bank: transfers move money, and each read finds all of it."""

    model = "bank"
    machine = staticmethod(_machine)
    settings = {"total": ACCOUNTS * OPENING_BALANCE}  # noqa: RUF012 # nobody changes it

    def generate(self, caller: Caller) -> Call:
        """Half reads, half transfers."""
        if caller.random.random() < 0.5:
            return Call("read", is_read=True)
        source, target = caller.random.sample(range(ACCOUNTS), 2)
        amount = caller.random.randint(1, AMOUNT_MAX)
        return Call("transfer", None, {"from": str(source), "to": str(target), "amount": amount})

    def query(self, machine: Any, call: Call) -> object:
        """All balances."""
        return dict(machine.commands.balances)

    def answered(self, call: Call, result: object) -> object:
        """Raises CallFailed if there was not enough in the account."""
        if result is not True:
            raise CallFailed("there is not enough in the account")
        return call.value

    def invariant(self, machine: Any) -> str | None:
        """No money appears or disappears."""
        total = sum(machine.commands.balances.values())
        if total == ACCOUNTS * OPENING_BALANCE:
            return None
        return f"the balances add up to {total}, not {ACCOUNTS * OPENING_BALANCE}"

    def state(self, machine: Any) -> object:
        """All balances."""
        return machine.commands.balances

    def final(self) -> list[Call]:
        """All balances."""
        return [Call("read", is_read=True)]
