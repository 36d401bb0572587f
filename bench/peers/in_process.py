"""Systems whose leader makes the load in its own process, each member started in the same way."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

import dledger
from bench.place import Place, member_ids
from bench.plan import Contender
from bench.system import Command, Prepared, System, member_words, python_module
from bench.toolchain import Toolchain, Unavailable, go_version
from bench.workload import APPEND_MANY, MANY, SUBMIT, Workload

# A Java virtual machine compiles hot code in its first seconds.
JAVA_WARM_UP_S = 15.0


def members(program: Command, place: Place, workload: Workload) -> list[Command]:
    return [[*program, *member_words(place, each), workload.to_json()] for each in place.peers]


def _prepared(version: str, program: Command) -> Prepared:
    return Prepared(version, lambda place, workload: members(program, place, workload))


def _dledger(_: Toolchain) -> Prepared:
    return _prepared(f"dledger {dledger.__version__}", python_module("dledger_member"))


def _with_tls(toolchain: Toolchain) -> Prepared:
    folder, plain = toolchain.certificates(member_ids()), _dledger(toolchain)

    def commands(place: Place, workload: Workload) -> list[Command]:
        return [[*each, str(folder)] for each in plain.commands(place, workload)]

    return plain._replace(commands=commands)


def _pysyncobj(_: Toolchain) -> Prepared:
    try:
        found = version("pysyncobj")
    except PackageNotFoundError:
        raise Unavailable("PySyncObj is not installed: pip install pysyncobj") from None
    return _prepared(f"PySyncObj {found}", python_module("pysyncobj_member"))


def _dragonboat(toolchain: Toolchain) -> Prepared:
    program = toolchain.go_program("dragonboat", "./dragonboat")
    found = go_version("github.com/lni/dragonboat/v4")
    return _prepared(f"Dragonboat {found}", [str(program)])


def _java(toolchain: Toolchain) -> Prepared:
    return _prepared("Java DLedger 0.4.0", [*toolchain.java_command(), "Member"])


_APPEND = Contender("append", "dledger, append", ours=True)
_SUBMIT = Contender("submit", "dledger, submit", ours=True, call=SUBMIT)
_APPEND_MANY = Contender(
    *("append_many", f"dledger, append_many of {MANY}"),
    ours=True,
    call=APPEND_MANY,
    batch=MANY,
    least_in_flight=MANY,
)


def _apart(key: str, contender: Contender) -> Contender:
    """Return a contender with TLS, compared with the same without."""
    name = f"{contender.name}, with TLS"
    return contender._replace(key=key, name=name, ours=False, apart=True)


OURS = tuple(System(each, _dledger) for each in (_APPEND, _SUBMIT, _APPEND_MANY))
WITH_TLS = (
    System(_apart("tls", _APPEND), _with_tls),
    System(_apart("tls-many", _APPEND_MANY), _with_tls),
)
PYSYNCOBJ = System(Contender("pysyncobj", "PySyncObj", syncs=False), _pysyncobj)
DRAGONBOAT = System(Contender("dragonboat", "Dragonboat, tan"), _dragonboat)
JAVA_DLEDGER = System(
    Contender("java", "Java DLedger", syncs=False, warm_up_s=JAVA_WARM_UP_S), _java
)
