"""How long to wait before asking again."""

from typing import Final

# A new leader serves about a second after the old one died; asking ten times in it finds it soon
# and costs a name server little.
FIRST_PAUSE_SECONDS: Final = 0.1

# Where an outage lasts, a request a second and client is enough.
LONGEST_PAUSE_SECONDS: Final = 1.0

_GROWTH: Final = 1.3


def pause_seconds(failures: int) -> float:
    """The pause after `failures` failures in a row: 0.1 s at first, growing to 1 s.

    Args:
        failures: at least 1.
    """
    # 1.3 ** 9 is over 10, so that a larger power need not be computed.
    return min(FIRST_PAUSE_SECONDS * _GROWTH ** min(failures - 1, 9), LONGEST_PAUSE_SECONDS)
