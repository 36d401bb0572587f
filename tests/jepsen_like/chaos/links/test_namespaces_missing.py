"""What a run says on a machine without namespaces."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from jepsen_like.chaos.links import namespaces
from jepsen_like.chaos.links.namespaces import why_not


def write_tool(path: Path, does: str) -> None:
    path.write_text(f"#!/bin/sh\n{does}\n")
    path.chmod(0o755)


@pytest.mark.parametrize(
    ("ip", "said"),
    [
        ("exit 0", None),
        ('test "$1" = netns || { echo "not permitted" >&2; exit 2; }', "ip -n: not permitted"),
        ("echo not permitted >&2; exit 1", "ip netns: not permitted"),
        ("exit 1", "ip netns: it failed"),
    ],
)
def test_root_that_may_make_no_namespaces_says_so(
    ip: str, said: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_tool(tmp_path / "ip", ip)
    write_tool(tmp_path / "nsenter", "exit 0")
    (tmp_path / "tun").touch()
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(namespaces, "TUN", tmp_path / "tun")
    assert why_not() == said
