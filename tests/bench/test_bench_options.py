"""The numbers that benchmarks take."""

from __future__ import annotations

import click
import pytest

from bench import client_rates, distance, groups, relayed
from bench.__main__ import main

COMMANDS = [
    *main.commands.values(),
    *(module.main for module in (client_rates, distance, groups, relayed)),
]
NUMBERS = [
    pytest.param(
        command, option, id=f"{getattr(command.callback, '__module__', '')} {option.opts[0]}"
    )
    for command in COMMANDS
    for option in command.params
    if isinstance(option.type, click.types.FloatParamType | click.types.IntParamType)
]


@pytest.mark.parametrize(("command", "option"), NUMBERS)
def test_a_number_that_nothing_can_be_measured_with_is_refused(
    command: click.Command, option: click.Parameter
) -> None:
    for number in ("nan", "inf", "-1"):
        with pytest.raises(click.BadParameter):
            option.type_cast_value(click.Context(command), number)
