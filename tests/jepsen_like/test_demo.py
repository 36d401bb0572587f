"""The whole project in one run, smaller than `make demo` and otherwise the same.

The default suite leaves out Spark: a Java virtual machine of its own takes most of the time.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

pytest.importorskip("pyspark", reason="pyspark is not installed: run make setup-spark")

import jepsen_like.demo.__main__ as demo  # it needs pyarrow
from jepsen_like.demo.__main__ import Result

# About 25 s on two cores, most of it Spark; a group that finds no leader says so much sooner.
DEMO_MAX_S = 180

CLOSING_LINE = re.compile(
    r"demo: sent=(?P<sent>\d+) acknowledged=(?P<acknowledged>\d+) consumed=(?P<consumed>\d+) "
    r"lost=(?P<lost>\d+) duplicated=\d+ failover_ms=(?P<failover_ms>\d+) "
    r"logs_identical=(?P<logs_identical>\w+) spark_rows=(?P<spark_rows>\d+)"
)


@pytest.mark.long
@pytest.mark.slow
def test_the_demo_kills_the_leader_and_loses_nothing(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "jepsen_like.demo", "--messages", "400", "--dir", tmp_path / "demo"],
        capture_output=True,
        text=True,
        timeout=DEMO_MAX_S,
        cwd=tmp_path,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert_nothing_is_lost(ended.stdout)


@pytest.mark.slow
def test_the_demo_without_spark_kills_the_leader_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def replay(_log: Path, _tables: Path, result: Result) -> None:
        result.spark_rows, result.spark_missing = len(result.tally.acknowledged), 0

    monkeypatch.setattr(demo, "_replay", replay)
    ended = CliRunner().invoke(
        demo.main, ["--messages", "400", "--dir", str(tmp_path / "demo")], catch_exceptions=False
    )
    assert ended.exit_code == 0, ended.output
    assert_nothing_is_lost(ended.stdout)


def assert_nothing_is_lost(printed: str) -> None:
    closing = CLOSING_LINE.fullmatch(printed.strip().splitlines()[-1])
    assert closing is not None, printed
    assert closing["sent"] == closing["acknowledged"] == "400"
    assert closing["lost"] == "0"
    assert closing["logs_identical"] == "yes"
    assert int(closing["failover_ms"]) > 0
    assert int(closing["spark_rows"]) >= int(closing["acknowledged"])
