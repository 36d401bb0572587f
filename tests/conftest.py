"""What all tests share: which of them run, and which may run at the same time."""

from __future__ import annotations

import pytest


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests of one Spark in one process, and leave the long ones to `make test-long`."""
    for item in items:
        if item.get_closest_marker("spark"):
            # A Java virtual machine in each process would cost more than it brings.
            item.add_marker(pytest.mark.xdist_group("spark"))
    is_named = config.option.keyword or any("::" in argument for argument in config.args)
    if "long" not in config.option.markexpr and not is_named:
        left_out = [item for item in items if item.get_closest_marker("long")]
        if left_out:
            config.hook.pytest_deselected(items=left_out)
            items[:] = [item for item in items if not item.get_closest_marker("long")]
