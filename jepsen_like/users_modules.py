"""Finds a user's modules: services, state machines, workloads and models."""

from __future__ import annotations

import os
import sys


def find_users_modules() -> None:
    """Find modules in the current folder, after all that is installed.

    If it came first, as `python -m` has it, a module with the name of a package would hide that
    package from the processes that are started next: a `broker.py` would hide this project's
    broker.
    """
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
