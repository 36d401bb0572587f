"""What a run of the tests tells at once: each failure when it happens, and how the machine is.

The first failure of a test that runs again is told whole, because pytest only counts it.

What pytest tells of failures stands behind the last test. A run that is cut off never gets there.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

_MIB = 1 << 20
# Of the log of a test, this much is printed: its end, where the failure is.
_LOG_CHARACTERS = 4_000


def machine() -> str:
    """How busy this machine is, in one line."""
    told = [f"{os.cpu_count()} processors"]
    if hasattr(os, "getloadavg"):
        told.append(f"load {os.getloadavg()[0]:.1f}")
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        sizes = dict(line.split(":", 1) for line in lines)
        told.append(f"{int(sizes['MemAvailable'].split()[0]) // 1024} MiB of memory available")
    except (OSError, LookupError, ValueError):
        pass  # not a Linux
    told.append(f"{shutil.disk_usage('.').free // _MIB} MiB of disk free")
    return ", ".join(told)


class FailuresAtOnce:
    """A plugin of pytest's process that prints.

    Args:
        terminal: prints the lines.
    """

    def __init__(self, terminal: pytest.TerminalReporter) -> None:
        self._terminal = terminal

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.outcome == "rerun":  # type: ignore[comparison-overlap]  # of pytest-rerunfailures
            self._terminal.write_line(
                f"\n{report.nodeid} failed after {report.duration:.1f} s ({machine()}), "
                f"and runs again:\n{report.longreprtext}\n{report.caplog[-_LOG_CHARACTERS:]}"
            )
        elif report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            first_line = (crash.message if crash else report.longreprtext).partition("\n")[0]
            self._terminal.write_line(
                f"\n{report.when} of {report.nodeid} failed after {report.duration:.1f} s "
                f"({machine()}): {first_line[:300]}"
            )
