"""The number of cores of a session, which Spark does not tell where it plans a query.

That is a Python process of its own, which has the environment of the session's executors.
"""

import os
from typing import Any, Final

VARIABLE: Final = "DLEDGER_SPARK_CORES"


def tell_cores(session: Any) -> None:
    """Tell the sources that are registered from now on how many tasks the session runs at once.

    On a cluster that is what it has so far.
    """
    context = session.sparkContext
    context.environment[VARIABLE] = str(context.defaultParallelism)


def session_cores() -> int:
    """Return what `tell_cores` has told; else the number of cores of this machine."""
    told = os.environ.get(VARIABLE, "")
    return max(1, int(told)) if told.isdecimal() else os.cpu_count() or 1
