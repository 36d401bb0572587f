"""Too little memory while a command still loads what it needs."""

from __future__ import annotations

import subprocess
import sys
from itertools import zip_longest

import pytest

from command_entry import NO_MEMORY
from dledger.system_refusals import told
from tests.command_entry.test_early_interrupt import COMMANDS, MODULES, beginning_of

# Raises this when the module named first begins to load.
_SHORT = """
import sys


class Short:
    def find_spec(self, name, path=None, target=None):
        if name == {loaded!r}:
            raise {error}


sys.meta_path.insert(0, Short())
{begin}
"""
SHORT_OF_MEMORY = (
    "MemoryError",
    "OSError(12, 'Cannot allocate memory', 'a folder')",
    "SystemError('error return without exception set')",
    "ImportError('libssl.so.3: failed to map segment from shared object')",
    "ImportError('libpython3.so: cannot map zero-fill pages: Cannot allocate memory')",
)


def loaded_with(command: str, loaded: str, error: str) -> subprocess.CompletedProcess[str]:
    code = _SHORT.format(loaded=loaded, error=error, begin=beginning_of(command))
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )


# Each of the commands, and each of the errors.
CASES = list(zip_longest([*COMMANDS, *MODULES], SHORT_OF_MEMORY, fillvalue=SHORT_OF_MEMORY[0]))


@pytest.mark.parametrize(("command", "error"), CASES)
def test_too_little_memory_to_load_a_command_ends_it_with_one_line(
    command: str, error: str
) -> None:
    ended = loaded_with(command, "click", error)
    line = f"{command.replace('_', '-')}: {NO_MEMORY}\n"
    assert (ended.returncode, ended.stdout, ended.stderr) == (1, "", line)


def test_the_line_is_that_of_the_table() -> None:
    assert told(MemoryError()) == NO_MEMORY


def test_what_is_not_installed_is_told_as_before() -> None:
    for error in ("ImportError('No module named click')", "OSError(5, 'No module named click')"):
        ended = loaded_with("dledger", "click", error)
        assert "No module named click" in ended.stderr
        assert "memory" not in ended.stderr
