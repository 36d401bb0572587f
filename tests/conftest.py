"""What all tests share: which of them run, and which may run at the same time."""

from __future__ import annotations

import pytest


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Order the tests, keep those of one Spark together, and leave out the long ones.

    The longest come first: one that began last would have the other process wait for it.
    """
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
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)
