"""Where a user's modules are found: services, state machines, workloads and models."""

from __future__ import annotations

import os
import sys


def find_users_modules() -> None:
    """Find modules in the current folder, after all that is installed.

    In front, as `python -m` puts the folder, a module with the name of a package would hide it from
    the processes that are started next: a `broker.py` the broker of this project.
    """
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
