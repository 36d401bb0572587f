"""The help of every command reads as it was written."""

from __future__ import annotations

import importlib
from collections.abc import Iterator

import click
import pytest

MODULES = (
    "dledger.__main__",
    "dledger_mq.__main__",
    "dledger_spark.commands.spark_commands",
    "jepsen_like.__main__",
)


def commands(parent: click.Command, context: click.Context) -> Iterator[tuple[str, str]]:
    """The path and the help of a command and of all below it."""
    yield context.command_path, parent.get_help(context)
    if isinstance(parent, click.Group):
        for name in parent.list_commands(context):
            below = parent.get_command(context, name)
            assert below is not None
            yield from commands(below, click.Context(below, parent=context, info_name=name))


@pytest.mark.parametrize("module", MODULES)
def test_no_help_shows_the_mark_that_keeps_lines_apart(module: str) -> None:
    # In a raw docstring the mark is no backspace, so click prints it and joins the lines.
    roots = [
        value
        for value in vars(importlib.import_module(module)).values()
        if isinstance(value, click.Group)
    ]
    assert roots
    shown = dict(found for root in roots for found in commands(root, click.Context(root)))
    assert len(shown) > 3
    assert not [path for path, text in shown.items() if "\\b" in text or "\b" in text]


def test_each_command_of_dledger_shows_an_example_in_its_help() -> None:
    root = importlib.import_module("dledger.commands.group_commands").commands
    shown = dict(commands(root, click.Context(root, info_name="dledger")))
    assert len(shown) > 10
    assert not [path for path, text in shown.items() if f"\n    {path} " not in text]


@pytest.mark.parametrize(
    ("module", "program"), [("dledger_mq", "dledger-mq"), ("jepsen_like", "jepsen-like")]
)
def test_a_program_of_several_commands_begins_its_help_with_examples(
    module: str, program: str
) -> None:
    root = importlib.import_module(f"{module}.__main__").main
    text = root.get_help(click.Context(root, info_name=program))
    assert text[: text.index("Options:")].count(f"\n    {program} ") >= 4
