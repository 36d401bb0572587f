from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from dledger.core.hard_state import HardState
from dledger.entry import Body
from dledger.store.disk import OsDisk
from dledger.store.open_store import open_store
from dledger.store.store_config import StoreConfig
from dledger_spark.commands.spark_commands import dledger_spark
from dledger_spark.errors import JavaMissing
from dledger_spark.session import QUERY_LOGGERS, local_session
from tests.dledger_spark.entry_writer import write_entries
from tests.dledger_spark.incident_log import IncidentLog


@pytest.fixture
def write_log(tmp_path: Path) -> Callable[..., Path]:
    """Writes a node's log with the project's own store; gives the folder of the node."""

    def write(
        bodies: Sequence[Body],
        *,
        segment_bytes: int = 4096,
        term: int = 1,
        magic: int = 1,
        committed: int | None = None,
        base: Path = tmp_path / "log",
        group: str = "g",
    ) -> Path:
        config = StoreConfig(
            segment_bytes=segment_bytes,
            index_segment_bytes=1024,
            max_body_bytes=segment_bytes - 56,
            spare_segments=0,
        )
        store = open_store(OsDisk(), str(base), config, group, "n0")
        try:
            if bodies:
                store.append(term, magic, bodies)
            known = store.last_index if committed is None else committed
            store.begin_sync(HardState(term, None, known)).run()
            store.note_committed(known)
            store.save_committed()
        finally:
            store.close()
        return base / "dledger-n0"

    return write


@pytest.fixture(autouse=True)
def loggers_of_spark(request: pytest.FixtureRequest) -> Iterator[None]:
    """Undo what Spark's loggers of wrong queries do to pytest's handlers.

    They do not propagate, so pytest adds its handlers to them; and they give each handler a format
    of their own, for all later tests of the process.
    """
    yield
    for name in QUERY_LOGGERS:
        logger = logging.Logger.manager.loggerDict.get(name)
        if isinstance(logger, logging.Logger):
            logger.propagate = True
    plugin: Any = request.config.pluginmanager.get_plugin("logging-plugin")
    for handler in (plugin.caplog_handler, plugin.report_handler):
        handler.setFormatter(plugin.formatter)


@pytest.fixture(scope="session")
def incident_tables(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder OUT with the tables of the log that docs/tables.md asks about."""
    base = tmp_path_factory.mktemp("incident")
    entries = IncidentLog().entries
    config = StoreConfig(1 << 20, 1 << 16, max_body_bytes=1 << 18, spare_segments=0)
    write_entries(base / "log", entries, config, "broker-a")
    out = str(base / "OUT")
    made = CliRunner().invoke(dledger_spark, ["tables", "--path", str(base / "log"), "--out", out])
    assert made.exit_code == 0, made.output
    return out


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """One Spark for all tests that need it."""
    pytest.importorskip("pyspark", reason="pyspark is not installed: run make setup-spark")
    try:
        with local_session("tests", cores=2) as session:
            yield session
    except JavaMissing as missing:
        pytest.skip(str(missing))
