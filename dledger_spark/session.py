"""A local Spark for jobs over one log: quiet, in UTC, and without files left behind."""

import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from traceback import walk_tb
from typing import Any, Final

from dledger_spark.errors import OptionInvalid, PackageMissing, SessionRuns, SparkFailed
from dledger_spark.java import Java, find_java, make_java_home
from dledger_spark.scratch_folder import scratch_folder

# Spark's default of 200 costs seconds for each query on a laptop; jobs here group by a few topics.
SHUFFLE_PARTITIONS: Final = 2
# Java usually ends in well under a second; after this time it is killed.
JAVA_EXIT_S: Final = 20

# Where Spark logs queries that it cannot analyse.
QUERY_LOGGERS: Final = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")

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
# The same holds for streams and writes: the exception of the query has their error.
logger.stream.name = org.apache.spark.sql.execution.streaming
logger.stream.level = fatal
logger.writes.name = org.apache.spark.sql.execution.datasources.v2
logger.writes.level = fatal
logger.utils.name = org.apache.spark.util.Utils
logger.utils.level = fatal
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
"""


@contextmanager
def local_session(
    name: str = "dledger-spark",
    *,
    cores: int | None = None,
    java: str | None = None,
    python_warnings: str | None = None,
) -> Iterator[Any]:
    """Yield a Spark session with the source "dledger" registered; stop it with its Java at the end.

    Only one can exist in a process at a time. Its temporary files are in a folder of its own. What
    the caller's handler of Ctrl-C or SIGTERM raises ends the session; the block sees it as
    KeyboardInterrupt, and the caller as it is.

    Args:
        name: Spark's name of the application.
        cores: the number of tasks that run at once; by default all cores.
        java: see `dledger_spark.java.find_java`.
        python_warnings: PYTHONWARNINGS of Spark's Python processes; by default this process's.

    Raises:
        OptionInvalid: the folder of temporary files has a comma in its path.
        JavaMissing: no Java 17 or later was found.
        PackageMissing: pyspark is not installed.
        SessionRuns: this process has a session, of this function or of another program.
        SparkFailed: Spark did not start with this Java.
        SparkTooOld: pyspark is older than 4.0.
    """
    try:
        from pyspark import SparkContext  # noqa: PLC0415  # heavy, and optional
        from pyspark.sql import SparkSession  # noqa: PLC0415

        from dledger_spark.spark_version import FOR_BATCHES, require_spark  # noqa: PLC0415

        require_spark(FOR_BATCHES, "this package")
        from dledger_spark.source import register  # noqa: PLC0415  # needs pyspark
    except ModuleNotFoundError as missing:
        raise PackageMissing(missing.name or "pyspark") from None
    if SparkContext._active_spark_context is not None:  # Spark would return that one
        raise SessionRuns(SparkContext._active_spark_context.appName)
    found = find_java(os.environ, java)
    with scratch_folder() as folder:
        if "," in folder:
            raise OptionInvalid("TMPDIR", folder, "Spark reads a comma as the end of a path")
        home = make_java_home(found, f"{folder}/java")
        with (
            _variables(JAVA_HOME=home, PYSPARK_PYTHON=sys.executable),
            _plain_interrupts() as signals,
        ):
            builder = SparkSession.builder.master(f"local[{cores or '*'}]").appName(name)
            for key, value in _settings(folder).items():
                builder = builder.config(key, value)
            if python_warnings is not None:
                builder = builder.config("spark.executorEnv.PYTHONWARNINGS", python_warnings)
            signals.take()  # while Spark begins
            session = _begun(builder, found)
            signals.take()  # instead of Spark's, which are there now
            process = session.sparkContext._gateway.proc
            try:
                session.sparkContext.setLogLevel("ERROR")
                register(session)
                _silence_query_errors()
                yield session
            except BaseException as error:
                if signals.raised is not None:  # Spark may have replaced the error of the signal
                    _kill(process)
                    raise signals.raised from (None if error is signals.raised else error)
                if isinstance(error, KeyboardInterrupt):  # of no signal
                    _kill(process)
                else:
                    _stop(session)
                raise
            else:
                _stop(session)


def _begun(builder: Any, java: Java) -> Any:
    """Start the session. Raises SparkFailed."""
    from py4j.protocol import Py4JError  # noqa: PLC0415  # it is loaded by now
    from pyspark.errors import PySparkException  # noqa: PLC0415

    try:
        return builder.getOrCreate()
    except BaseException as error:
        # A Java that is left would run on for ever, or a later session would use it.
        for process in _started_in(error):
            _kill(process)
        if not isinstance(error, (PySparkException, Py4JError)):
            raise
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        # Py4J's first line names its call; Java's error begins with ": ".
        reason = next((line[2:] for line in lines if line.startswith(": ")), *lines[:1])
        raise SparkFailed(f"Java {java.version} at {java.executable}", reason) from None


def _started_in(error: BaseException) -> set[subprocess.Popen[bytes]]:
    """Return Spark's Java, if it runs. Until its start is over, only the calls that an error has
    ended know it.
    """
    from pyspark import SparkContext  # noqa: PLC0415  # it is loaded by now

    if SparkContext._gateway is not None:
        return {SparkContext._gateway.proc}
    return {
        value
        for frame, _line in walk_tb(error.__traceback__)
        for value in frame.f_locals.values()
        if isinstance(value, subprocess.Popen)
    }


@contextmanager
def _variables(**values: str) -> Iterator[None]:
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


class _Signals:
    """Handles Ctrl-C and SIGTERM while a session runs: as before it, and without output of Spark's.

    `before` are the handlers before the session; `raised` is the error of one of them.
    """

    def __init__(self, before: Mapping[int, Any]) -> None:
        self.raised: BaseException | None = None
        self._before = before

    def take(self) -> None:
        """Handle signals from now on, instead of Spark."""
        if threading.current_thread() is threading.main_thread():  # else Spark handles none
            for number, handler in self._before.items():
                signal.signal(number, self._interrupt if callable(handler) else handler)

    def _interrupt(self, number: int, frame: object) -> None:
        logged = logging.root.manager.disable
        logging.disable(logging.CRITICAL)
        try:
            self._before[number](number, frame)
        except BaseException as raised:
            self.raised = raised
            if isinstance(raised, KeyboardInterrupt):
                raise
            # At any other error Py4J goes on with a connection that waits for an answer.
            raise KeyboardInterrupt from None
        logging.disable(logged)  # no error: the session goes on


@contextmanager
def _plain_interrupts() -> Iterator[_Signals]:
    """Let Ctrl-C and SIGTERM only raise their errors, once `take` is called.

    Spark's own handler makes another call through the connection that waits for an answer. That
    fails, and py4j logs two tracebacks. An ignored signal stays ignored.
    """
    # None is a handler that is not Python's: it cannot be set again, and stays.
    found = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    before: dict[int, Any] = {
        number: handler for number, handler in found.items() if handler is not None
    }
    logged = logging.root.manager.disable
    try:
        yield _Signals(before)
    finally:
        if threading.current_thread() is threading.main_thread():
            for number, handler in before.items():
                signal.signal(number, handler)
        logging.disable(logged)


def _silence_query_errors() -> None:
    """Keep Spark from printing, as JSON, the error of a wrong query, which the exception has."""
    from pyspark.logger import PySparkLogger  # noqa: PLC0415  # it is loaded by now

    for name in QUERY_LOGGERS:
        PySparkLogger.getLogger(name).disabled = True


def _settings(folder: str) -> dict[str, str]:
    log_file = f"{folder}/log4j2.properties"
    with open(log_file, "w", encoding="utf-8") as file:
        file.write(_LOGGING)
    os.makedirs(f"{folder}/tmp")
    # Workers are other Python processes; PYTHONPATH lets them import this package.
    home = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    search = os.pathsep.join(filter(None, (home, os.environ.get("PYTHONPATH"))))
    return {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": " ".join(
            map(
                _quoted,
                (
                    f"-Dlog4j2.configurationFile={Path(log_file).as_uri()}",
                    f"-Djava.io.tmpdir={folder}/tmp",
                ),
            )
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


def _quoted(option: str) -> str:
    """Quote an option of Java's for Spark, which splits a text of several."""
    escaped = option.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _stop(session: Any) -> None:
    """Stop Spark and its Java, which would otherwise run until this process ends."""
    gateway = session.sparkContext._gateway
    session.stop()
    gateway.shutdown()
    _forget(gateway.proc)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End Spark's Java at once: the connection to it may be in the middle of an answer."""
    from pyspark import SparkContext  # noqa: PLC0415  # it is loaded by now

    process.kill()
    context = SparkContext._active_spark_context
    if context is not None:
        # The server of the workers' counters would print that they are gone.
        context._accumulatorServer.handle_error = lambda _request, _address: None
        context._jsc = None  # nothing is asked of the Java that is gone
        context.stop()
    _forget(process)


def _forget(process: subprocess.Popen[bytes]) -> None:
    """Wait for Spark's Java to end, and let another session begin."""
    from pyspark import SparkContext  # noqa: PLC0415  # it is loaded by now

    SparkContext._gateway = None
    SparkContext._jvm = None
    assert process.stdin is not None
    process.stdin.close()  # Spark's Java ends when this closes
    try:
        process.wait(JAVA_EXIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
