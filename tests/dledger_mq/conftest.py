"""What tests of the client share."""

import pytest
from trio.testing import MockClock


@pytest.fixture
def clock() -> MockClock:
    """A clock that jumps when all tasks wait, but not before sockets have been read."""
    return MockClock(autojump_threshold=0.02)
