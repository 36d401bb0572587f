"""Ctrl-C while a command still loads what it needs."""

from __future__ import annotations

import gc
import subprocess
import sys

import pytest

import command_entry

# Sends this very process Ctrl-C when it begins to load the module named first.
_INTERRUPTED = """
import os, signal, sys

signal.signal(signal.SIGINT, signal.{before})


class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == {loaded!r}:
            os.kill(os.getpid(), signal.SIGINT)


sys.meta_path.insert(0, Interrupt())
{begin}
"""
BEGIN = """
import command_entry

sys.argv = [{command!r}, "--help"]
command_entry.{command}()
"""
BEGIN_MODULE = """
import runpy

sys.argv = [{command!r}, "--help"]
runpy.run_module({command!r}, run_name="__main__", alter_sys=True)
"""

COMMANDS = ["dledger", "dledger_mq", "dledger_spark", "jepsen_like"]
# Their packages load nothing, so these are told as readably when they run by `python -m`.
MODULES = ["broker", "nameserver"]


def beginning_of(command: str) -> str:
    """The code that begins a command as its users do."""
    return (BEGIN_MODULE if command in MODULES else BEGIN).format(command=command)


def interrupted(command: str, loaded: str, before: str) -> subprocess.CompletedProcess[str]:
    code = _INTERRUPTED.format(loaded=loaded, before=before, begin=beginning_of(command))
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize("command", [*COMMANDS, *MODULES])
def test_ctrl_c_while_a_command_loads_ends_it_without_a_word(command: str) -> None:
    own = f"{command}.{command}_command" if command in MODULES else command
    for loaded in (own, "click"):
        ended = interrupted(command, loaded, "default_int_handler")
        assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "")


def test_a_command_looks_for_garbage_only_once_it_has_loaded() -> None:
    with command_entry._loading("dledger"):
        assert not gc.isenabled()
    assert gc.isenabled()


def test_what_ignores_ctrl_c_goes_on_doing_so() -> None:
    ended = interrupted("dledger", "trio", "SIG_IGN")
    assert ended.returncode == 0, ended.stderr
    assert "Usage" in ended.stdout
