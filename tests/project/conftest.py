"""The wheel, built once: tests that use it run in one process (TOGETHER in tests/conftest.py)."""

from pathlib import Path

import pytest

from tests.built_wheel import build_wheel


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built offline from this checkout, in a folder with nothing else."""
    return build_wheel(tmp_path_factory.mktemp("wheel"))
