"""What all tests share: which of them run, and which may run at the same time."""

from __future__ import annotations

import pytest
from hypothesis import settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

# Deadlines are by the wall clock: where others use the processor, too, right code misses them.
settings.register_profile("dledger", settings(), deadline=None)
settings.load_profile("dledger")

# Files whose tests share what takes long to start; the others are dealt out test by test.
TOGETHER = {
    "tests/dledger/commands/test_status_command.py": "a group of processes",
    "tests/dledger_spark/test_spark_session.py": "a Java virtual machine",
    "tests/project/test_tutorial.py": "the wheel",
    "tests/project/test_wheel.py": "the wheel",
}


class Together(LoadScopeScheduling):  # type: ignore[misc]  # xdist says nothing of types
    """Gives all tests of one name in TOGETHER to one process, the largest such group first.

    With pytest 9.2, pytest-xdist 3.8 no longer sees the marker `xdist_group`: it writes the group
    into an attribute of the test that pytest does not read any more.
    """

    def _split_scope(self, nodeid: str) -> str:
        return TOGETHER.get(nodeid.partition("::")[0], nodeid)


@pytest.hookimpl(optionalhook=True)  # a run without xdist has no such hook
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling | None:
    """Deal out the tests of `make test` as TOGETHER says."""
    return Together(config, log) if config.getvalue("dist") == "loadgroup" else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the long tests to `make test-long`, and begin with the slow ones.

    A slow one that began last would have the other processes wait for it.
    """
    is_named = config.option.keyword or any("::" in argument for argument in config.args)
    if "long" not in config.option.markexpr and not is_named:
        left_out = [item for item in items if item.get_closest_marker("long")]
        if left_out:
            config.hook.pytest_deselected(items=left_out)
            items[:] = [item for item in items if not item.get_closest_marker("long")]
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)
