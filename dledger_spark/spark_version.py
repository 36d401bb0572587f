"""The versions of pyspark that this package needs. Batches work since 4.0, streams since 4.2."""

import re
from typing import Final

import pyspark

from dledger_spark.errors import SparkTooOld

# Data sources in Python, with Arrow batches.
FOR_BATCHES: Final = (4, 0)
# Limits and availableNow for streams of data sources.
FOR_STREAMS: Final = (4, 2)


def require_spark(least: tuple[int, int], what: str) -> None:
    """Raises SparkTooOld: pyspark is older than `least`; `what` is the subject of the error."""
    found = re.match(r"(\d+)\.(\d+)", pyspark.__version__)
    if found is None or (int(found[1]), int(found[2])) < least:
        raise SparkTooOld(what, ".".join(map(str, least)), pyspark.__version__)
