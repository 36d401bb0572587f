"""A system that can be measured: how its programs are found and started."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from bench.place import Place
from bench.plan import Contender
from bench.toolchain import Toolchain
from bench.workload import Workload

Command = list[str]


class Prepared(NamedTuple):
    """A system whose programs are there. `commands` start a run; one of them prints the result."""

    version: str
    commands: Callable[[Place, Workload], list[Command]]


class System(NamedTuple):
    """A contender, and how to get its programs. `prepare` raises Unavailable."""

    contender: Contender
    prepare: Callable[[Toolchain], Prepared]
