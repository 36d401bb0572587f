"""How long to wait before asking again."""

from typing import Final

# A new leader serves about a second after the old one died; asking ten times in it finds it soon
# and costs a name server little.
FIRST_PAUSE_SECONDS: Final = 0.1

# A group whose members are all started again serves after one to three seconds: this is what a
# client adds to that at most.
RESTART_PAUSE_SECONDS: Final = 0.3

# After so many failures, about ten seconds, the outage is none of these.
LASTING_FAILURES: Final = 36

# Where an outage lasts, a request a second and client is enough.
LONGEST_PAUSE_SECONDS: Final = 1.0

_GROWTH: Final = 1.3


def pause_seconds(failures: int) -> float:
    """The pause after `failures` failures in a row: 0.1 s at first, growing to 0.3 s, and 1 s once
    the outage lasts.

    Args:
        failures: at least 1.
    """
    if failures > LASTING_FAILURES:
        return LONGEST_PAUSE_SECONDS
    # 1.3 ** 5 is over 3, so that a larger power need not be computed.
    return min(FIRST_PAUSE_SECONDS * _GROWTH ** min(failures - 1, 5), RESTART_PAUSE_SECONDS)
