"""docs/silence.md names every pause between attempts, as long as the code makes it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from dledger.sockets import ACCEPTED, DIALLED
from tests.syntax_trees import tree_of

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "silence.md").read_text(encoding="utf-8")
PACKAGES = ("broker", "dledger", "dledger_mq", "dledger_spark", "nameserver", "proxy", "remoting")

# How late clients may be served after packets get through again.
PROMISED_S = 5.0

PAUSE = re.compile(r"_?[A-Z_]*(PAUSE|RETRY|AGAIN)[A-Z_]*_(S|MS)")
ROW = re.compile(r"^\| `([\w.]+)` \| ([\d.]+) \|", re.MULTILINE)


def section(title: str) -> dict[str, float]:
    """The constants of one table and their seconds."""
    (text,) = re.findall(rf"^### {title}\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL)
    return {name: float(length_s) for name, length_s in ROW.findall(text)}


def constants() -> dict[str, float]:
    """All constants of the product that are plain numbers, by their dotted names."""
    found: dict[str, float] = {}
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            for node in tree_of(path).body:
                match node:
                    case (
                        ast.AnnAssign(
                            target=ast.Name(name), value=ast.Constant(int() | float() as value)
                        )
                        | ast.Assign(
                            targets=[ast.Name(name)], value=ast.Constant(int() | float() as value)
                        )
                    ):
                        found[f"{module}.{name}"] = float(value)
                    case _:
                        continue
    return found


NETWORK = section("Between attempts over the network")
ATTEMPTS = section("One attempt")
OTHERS = section("Not about the network")


def test_every_pause_between_attempts_is_on_the_page() -> None:
    pauses = {name for name in constants() if PAUSE.fullmatch(name.rpartition(".")[2])}
    assert len(pauses) > 15
    assert pauses - NETWORK.keys() - OTHERS.keys() == set()


def test_what_the_page_says_of_a_constant_is_what_the_code_has() -> None:
    have = constants()
    told = NETWORK | ATTEMPTS | OTHERS
    assert {name: have.get(name) for name in told} == told


def test_no_pause_and_no_attempt_is_longer_than_clients_may_be_late() -> None:
    longer = {name for name, s in (NETWORK | ATTEMPTS).items() if s > PROMISED_S}
    assert longer == set()


def test_the_page_tells_the_limits_of_sockets() -> None:
    for limits, row in ((DIALLED, "where it was dialled"), (ACCEPTED, "where it was accepted")):
        assert f"{limits.unacknowledged_ms // 1000} s {row}" in PAGE
