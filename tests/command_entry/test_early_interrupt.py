"""Ctrl-C while a command still loads what it needs."""

from __future__ import annotations

import subprocess
import sys

import pytest

# Sends this very process Ctrl-C when it begins to load the module named first.
_INTERRUPTED = """
import os, signal, sys

signal.signal(signal.SIGINT, signal.{before})


class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == {loaded!r}:
            os.kill(os.getpid(), signal.SIGINT)


sys.meta_path.insert(0, Interrupt())
import command_entry

sys.argv = [{command!r}, "--help"]
command_entry.{command}()
"""

COMMANDS = ["dledger", "dledger_mq", "dledger_spark", "jepsen_like"]


def interrupted(command: str, loaded: str, before: str) -> subprocess.CompletedProcess[str]:
    code = _INTERRUPTED.format(command=command, loaded=loaded, before=before)
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize("command", COMMANDS)
def test_ctrl_c_while_a_command_loads_ends_it_without_a_word(command: str) -> None:
    for loaded in (command, "click"):
        ended = interrupted(command, loaded, "default_int_handler")
        assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "")


def test_what_ignores_ctrl_c_goes_on_doing_so() -> None:
    ended = interrupted("dledger", "trio", "SIG_IGN")
    assert ended.returncode == 0, ended.stderr
    assert "Usage" in ended.stdout
