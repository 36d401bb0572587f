"""A local Spark for jobs over one log: quiet, in UTC, and without files left behind."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from dledger_spark.errors import PackageMissing
from dledger_spark.java import find_java, make_java_home
from dledger_spark.scratch_folder import scratch_folder

# Spark's default of 200 costs seconds a query on a laptop; jobs here group by a few topics.
SHUFFLE_PARTITIONS: Final = 2
# Java usually ends in well under a second; after this time it is killed.
JAVA_EXIT_SECONDS: Final = 20

_LOGGING: Final = """\
status = error
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
# Spark announces a change of this logger's level on stderr unless it is the root's.
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
# A failed task raises an exception; stack traces on stderr would only repeat it.
logger.executor.name = org.apache.spark.executor.Executor
logger.executor.level = fatal
logger.tasks.name = org.apache.spark.scheduler.TaskSetManager
logger.tasks.level = fatal
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
"""


@contextmanager
def local_session(
    name: str = "dledger-spark", *, cores: int | None = None, java: str | None = None
) -> Iterator[Any]:
    """A Spark session with the source "dledger" registered; stopped with its Java at the end.

    Only one can exist in a process at a time. Its temporary files are in a folder of its own.

    Args:
        name: Spark's name of the application.
        cores: number of tasks that run at once; by default all cores.
        java: see `dledger_spark.java.find_java`.

    Raises:
        JavaMissing: no Java 17 or later was found.
        PackageMissing: pyspark is not installed.
    """
    try:
        from pyspark.sql import SparkSession  # noqa: PLC0415  # heavy, and optional

        from dledger_spark.source import DledgerDataSource  # noqa: PLC0415  # needs pyspark
    except ModuleNotFoundError as missing:
        raise PackageMissing(missing.name or "pyspark") from None
    found = find_java(os.environ, java)
    with scratch_folder() as folder:
        home = make_java_home(found, f"{folder}/java")
        with _variables(JAVA_HOME=home, PYSPARK_PYTHON=sys.executable):
            builder = SparkSession.builder.master(f"local[{cores or '*'}]").appName(name)
            for key, value in _settings(folder).items():
                builder = builder.config(key, value)
            session = builder.getOrCreate()
            try:
                session.sparkContext.setLogLevel("ERROR")
                session.dataSource.register(DledgerDataSource)
                yield session
            finally:
                _stop(session)


@contextmanager
def _variables(**values: str) -> Iterator[None]:
    """Set variables of the environment, which Spark reads, during the block."""
    saved = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, before in saved.items():
            if before is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = before


def _settings(folder: str) -> dict[str, str]:
    logging = f"{folder}/log4j2.properties"
    with open(logging, "w", encoding="utf-8") as file:
        file.write(_LOGGING)
    os.makedirs(f"{folder}/tmp")
    # Workers are other Python processes; PYTHONPATH lets them import this package.
    home = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    search = os.pathsep.join(filter(None, (home, os.environ.get("PYTHONPATH"))))
    return {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": (
            f"-Dlog4j2.configurationFile={logging} -Djava.io.tmpdir={folder}/tmp"
        ),
        "spark.executorEnv.PYTHONPATH": search,
        "spark.local.dir": f"{folder}/local",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(SHUFFLE_PARTITIONS),
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }


def _stop(session: Any) -> None:
    """Stop Spark and its Java, which would otherwise live until this process ends."""
    from pyspark import SparkContext  # noqa: PLC0415  # it is loaded by now

    gateway = session.sparkContext._gateway
    session.stop()
    process = gateway.proc
    gateway.shutdown()
    SparkContext._gateway = None
    SparkContext._jvm = None
    process.stdin.close()  # Spark's Java ends when this closes
    try:
        process.wait(JAVA_EXIT_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
