"""docs/secure-a-group.md works, word by word, from an empty folder."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dledger.free_ports import free_addresses
from tests.project.typed_page import Step, TypedCommand, steps_of
from tests.project.typing_reader import Reader

PAGE = (Path(__file__).parents[2] / "docs" / "secure-a-group.md").read_text(encoding="utf-8")
NAMESERVER = "127.0.0.1:9876"
# Commands that ask the name server, which stands at its default address on the page.
ASKS = re.compile(r"\bdledger-mq (?P<name>up|send|consume|user \w+)")


def at(nameserver: str, step: Step) -> Step:
    """The step with another name server, and time for a busy machine where nothing is refused."""
    if not isinstance(step, TypedCommand):
        return step
    command = ASKS.sub(rf"\g<0> --nameserver {nameserver}", step.command)
    if " send " in command and "||" not in command:
        command += " --timeout 60"
    return step._replace(command=command)


@pytest.mark.slow
@pytest.mark.long
def test_the_page_makes_a_group_that_speaks_tls_and_asks_who_it_is(tmp_path: Path) -> None:
    (nameserver,) = free_addresses(1)
    with Reader(tmp_path, {NAMESERVER: nameserver}, tmp_path) as reader:
        for step in steps_of(PAGE):
            reader.do(at(nameserver, step))


def test_the_page_sends_is_refused_renews_and_disables() -> None:
    typed = [step.command for step in steps_of(PAGE) if isinstance(step, TypedCommand)]
    for words in ("send orders", "consume orders", "send bills", "kill -HUP", "user disable"):
        assert any(words in command for command in typed), words
    shown = [
        line for step in steps_of(PAGE) if isinstance(step, TypedCommand) for line in step.shown
    ]
    assert shown.count("refused") == 2
