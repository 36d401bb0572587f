"""The groups that all web programs share: started once, since both take seconds to start."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.web.order_services import OrderServices, order_services
from tests.web.running_server import WEB_PYTHON


@pytest.fixture(scope="session")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OrderServices]:
    """Three brokers and three members of a log, each a process."""
    if not WEB_PYTHON.exists():
        pytest.skip(f"{WEB_PYTHON} is not there: run make setup-web")
    with order_services(tmp_path_factory.mktemp("services")) as running:
        yield running
