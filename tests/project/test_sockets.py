"""All TCP connections are made in one place, which gives them their limits for silence."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.syntax_trees import nodes_of, tree_of

ROOT = Path(__file__).parents[2]
PRODUCT = ("broker", "dledger", "dledger_mq", "dledger_spark", "nameserver", "proxy", "remoting")
MAKER = "dledger/sockets.py"

# What makes a connection, or takes some.
MAKES = frozenset(
    {
        "create_connection",
        "create_server",
        "open_connection",
        "open_ssl_over_tcp_listeners",
        "open_ssl_over_tcp_stream",
        "open_tcp_listeners",
        "open_tcp_stream",
        "serve_ssl_over_tcp",
        "serve_tcp",
        "socketpair",
        "start_server",
        "urlopen",
    }
)

# These look for an address or a free port with a socket that is never connected, or tell the
# supervisor of this process by datagrams.
PROBES = frozenset(
    {
        "broker/broker_command.py",
        "dledger/command_line/supervisor.py",
        "dledger/free_ports.py",
        "dledger_mq/connection/this_process.py",
    }
)


def makes_connections(path: Path) -> bool:
    """Whether a module names a function that makes connections, or makes a plain socket."""
    for node in nodes_of(tree_of(path)):
        match node:
            case ast.Attribute(attr=name) if name in MAKES:
                return True
            case ast.ImportFrom(names=names) if MAKES & {one.name for one in names}:
                return True
            case ast.Call(func=ast.Attribute(attr="socket" | "from_stdlib_socket")):
                return True
            case _:
                continue
    return False


def test_only_one_module_makes_connections() -> None:
    makers = {
        str(path.relative_to(ROOT))
        for package in PRODUCT
        for path in (ROOT / package).rglob("*.py")
        if makes_connections(path)
    }
    assert makers - PROBES == {MAKER}
    assert makers >= PROBES, "take those out of the list that make no socket any more"
