"""Each command that an error, a log line or a help text advises is one that works.

A new advice is missing in ADVICES, and its test has to be named there: one that gets into the
situation, does what is advised, and sees that it helps.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import click
import pytest

from dledger.commands.group_commands import commands
from dledger_mq.__main__ import main as dledger_mq
from tests.syntax_trees import nodes_of, tree_of

ROOT = Path(__file__).parents[2]
PROGRAMS = {"dledger": commands, "dledger-mq": dledger_mq}
PACKAGES = (
    *("broker", "command_entry", "dledger", "dledger_mq", "dledger_spark", "jepsen_like"),
    *("nameserver", "proxy", "remoting"),
)
ADVISED = re.compile(r"`((?:dledger|dledger-mq) [a-z-]+[^`]*)`")

# The test that obeys each advice.
ADVICES = {
    "dledger append": ("test_what_a_group_lost_by_a_late_mount_is_kept_told_of_and_appended_again"),
    "dledger --config FILE": "test_what_is_printed_can_be_used_as_a_file",
    "dledger group": "test_what_was_appended_can_be_read_and_verified",
    "dledger group --dir {}": "test_what_was_appended_can_be_read_and_verified",
    "dledger members": "test_a_node_joins_takes_over_and_the_first_one_leaves",
    "dledger members --add": "test_old_members_cannot_undo_a_recovery",
    "dledger recover": "test_old_members_cannot_undo_a_recovery",
    "dledger rejoin": "test_old_members_cannot_undo_a_recovery",
    "dledger repair": "test_the_node_starts_again_after_the_repair",
    "dledger serve": "test_old_members_cannot_undo_a_recovery",
    "dledger serve --print-config": "test_what_is_printed_can_be_used_as_a_file",
    "dledger verify": "test_what_was_appended_can_be_read_and_verified",
    "dledger-mq access": "test_the_command_makes_the_file_of_the_servers",
    "dledger-mq certificates": (
        "test_up_passes_certificates_to_all_processes_and_remembers_the_folder"
    ),
    "dledger-mq user create": "test_users_are_made_and_changed_by_commands",
    "dledger-mq user allow --from": "test_a_user_is_limited_to_networks",
    "dledger-mq proxy": "test_clients_of_grpc_reach_a_local_cluster_by_tls_and_without",
    "dledger-mq settings": "test_the_command_shows_and_changes_settings",
}

# What is dangerous says so where it is offered.
DANGEROUS = {
    ("dledger", "recover", "--without-check"),
    ("dledger", "restore", "--without-check"),
}


@cache
def texts(path: Path) -> tuple[str, ...]:
    """The strings of a module that are no docstrings; {} stands for what a run fills in."""
    return tuple(_texts_in(nodes_of(tree_of(path))))


def _texts_in(nodes: Sequence[ast.AST]) -> Iterator[str]:
    left_out = set()
    for node in nodes:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            left_out.add(node.value)
        if isinstance(node, ast.JoinedStr):
            left_out.update(child for child in ast.walk(node) if isinstance(child, ast.Constant))
            parts = [v.value if isinstance(v, ast.Constant) else "{}" for v in node.values]
            yield "".join(map(str, parts))
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in left_out:
            yield node.value


@cache
def advices() -> frozenset[str]:
    """All that the product advises."""
    return frozenset(
        advice
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
        for text in texts(path)
        for advice in ADVISED.findall(" ".join(text.split()))
    )


def test_each_advice_is_obeyed_by_a_test() -> None:
    assert advices() == ADVICES.keys()
    found = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    for advice, test in ADVICES.items():
        assert re.search(rf"def {test}\(", found), f"{advice}: there is no {test}"


@pytest.mark.parametrize("advice", sorted(ADVICES))
def test_each_advised_command_exists_with_its_options(advice: str) -> None:
    program, *words = advice.split()
    command: click.Command = PROGRAMS[program]
    for word in words:
        if word.startswith("--"):
            options = [name for option in command.params for name in option.opts]
            assert word in options, f"{command.name} has no {word}"
        elif isinstance(command, click.Group) and word in command.commands:
            command = command.commands[word]
        else:
            assert word in ("{}", "FILE"), f"{command.name} has no {word}"


def test_an_option_that_is_dangerous_names_its_danger() -> None:
    for program, name, option in DANGEROUS:
        group = PROGRAMS[program]
        assert isinstance(group, click.Group)
        (found,) = [one for one in group.commands[name].params if option in one.opts]
        assert isinstance(found, click.Option)
        assert (found.help or "").startswith("DANGEROUS: ")
