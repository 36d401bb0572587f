"""What the reference says by itself: the errors by outcome, and how docstrings read.

A page names a class or a function by an autodoc directive. The errors of `dledger` need no line on
any page: each public one is placed by its class.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType

from dledger.errors import Discarded, DLedgerError, Fatal, OutcomeUnknown, Rejected

DOCS = Path(__file__).parent.parent
_DIRECTIVE = re.compile(r"^\.\. auto\w+:: ([\w.]+)(?:\(\))?$", re.MULTILINE)

# The modules whose names are promised; a name is shown under the first module that has it.
PUBLIC_MODULES = (
    "dledger",
    "dledger.machines",
    "dledger.blocking",
    "dledger.for_asyncio",
    "dledger_mq",
    "dledger_mq.blocking",
    "dledger_mq.for_asyncio",
    "dledger_mq.prometheus_metrics",
    "dledger_mq.testing",
    "jepsen_like",
)

# Outcomes, in the order in which the page has them, and what each says about the append.
OUTCOMES: dict[type[DLedgerError] | None, tuple[str, str]] = {
    Rejected: (
        "Rejected: it never happened",
        "It changed nothing, and will change nothing later. Trying again is always safe "
        "(`retry_safe` is true); the class says whether it is useful.",
    ),
    Discarded: (
        "Discarded: it is certainly lost",
        "The entry was in a log, and a newer leader's entry took its place. Trying again is safe.",
    ),
    OutcomeUnknown: (
        "OutcomeUnknown: this process cannot know",
        "The entry may be committed, now or later. Trying again may append it twice; read the "
        "state first, or use a session, which finds out by itself.",
    ),
    Fatal: (
        "Fatal: this node stops",
        "Acknowledged entries are safe on the other members. Unanswered appends end with "
        "`NodeClosed`, which is an unknown outcome.",
    ),
    None: (
        "The others",
        "They say nothing about whether an entry is in the log; their own words say what happened.",
    ),
}


def public_names(module: str) -> list[str]:
    """The names that a public module promises."""
    found = importlib.import_module(module)
    return sorted(
        getattr(found, "__all__", None)
        or [
            name
            for name, value in vars(found).items()
            if not name.startswith("_")
            and isinstance(value, type | FunctionType)
            and value.__module__ == module
        ]
    )


def public_errors() -> Iterator[tuple[str, type[DLedgerError]]]:
    """Where each public error is imported from, and its class; each once."""
    seen: set[type] = set()
    for module in PUBLIC_MODULES:
        for name in public_names(module):
            value = getattr(importlib.import_module(module), name)
            if isinstance(value, type) and issubclass(value, DLedgerError) and value not in seen:
                seen.add(value)
                yield f"{module}.{name}", value


def documented(pages: str) -> set[str]:
    """The names that directives on these pages document."""
    return set(_DIRECTIVE.findall(pages))


def further() -> str:
    """What is public and stands on no page yet, so that nothing is missing; nothing if all do."""
    pages = "\n".join(
        page.read_text(encoding="utf-8") for page in (DOCS / "reference").glob("*.md")
    )
    there, parts = documented(pages), []
    for module in PUBLIC_MODULES:
        for name in public_names(module):
            path, value = f"{module}.{name}", getattr(importlib.import_module(module), name)
            if path in there or f"`{path}`" in pages:
                continue
            if isinstance(value, FunctionType):
                parts += [f".. autofunction:: {path}", ""]
            elif isinstance(value, type) and not issubclass(value, DLedgerError):
                parts += [f".. autoclass:: {path}", "   :members:", ""]
    if not parts:
        return ""
    return "\n".join(["## Further names\n", "```{eval-rst}", *parts, "```\n"])


def outcome_of(error: type[DLedgerError]) -> type[DLedgerError] | None:
    """Which of the outcomes an error tells; None: no word about any append."""
    return next((root for root in OUTCOMES if root and issubclass(error, root)), None)


def errors() -> str:
    """All public errors, by outcome."""
    found = sorted(public_errors(), key=lambda pair: pair[0].rpartition(".")[2])
    parts: list[str] = []
    for root, (title, words) in OUTCOMES.items():
        parts += [f"## {title}\n", f"{words}\n", "```{eval-rst}"]
        of_it = [pair for pair in found if outcome_of(pair[1]) is root]
        # The root of each part stands first.
        for path, _ in sorted(of_it, key=lambda pair: pair[1] is not (root or DLedgerError)):
            parts += [f".. autoexception:: {path}", "   :show-inheritance:", ""]
        parts.append("```\n")
    return "\n".join(parts)


# --- docstrings -----------------------------------------------------------------------------------

_CODE = re.compile(r"(?<!`)`([^`\n]+)`(?!`|_)")
_SECTION = re.compile(r"\s*(Args|Attributes|Returns|Yields|Raises):$")


def read_as_rest(lines: list[str]) -> None:
    """Change the lines of a docstring in place: our words in code marks, indented lines as code."""
    lines[:] = [_CODE.sub(r"``\1``", line) for line in lines]
    at = 0
    while at < len(lines):
        if _begins_code(lines, at):
            lines[at:at] = ["::", ""]
            at += 2
            while at < len(lines) and (not lines[at].strip() or lines[at].startswith("    ")):
                at += 1
        at += 1


def _begins_code(lines: list[str], at: int) -> bool:
    if not lines[at].startswith("    ") or at == 0 or lines[at - 1].strip():
        return False
    before = next((line for line in reversed(lines[:at]) if line.strip()), "")
    inside = before.startswith(" ") or _SECTION.match(before) or before.rstrip().endswith("::")
    return not inside and not before.startswith("..")
