"""Clients written by others, installed from their registries into the build folder."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

from jepsen_like.chaos.brokers.cpp.installed import PACKAGE

RemotingClient = Literal["cpp", "ali", "java4", "java5", "go"]
GrpcClient = Literal["python5", "python51", "node5", "java52", "java51", "go5", "rust5"]
Client: TypeAlias = RemotingClient | GrpcClient
Program = Literal["send", "consume", "scenarios", "losses", "mqadmin", "drive"]

ALI_PACKAGE = "ali-ons@3.12.0"
JAVA_VERSIONS: dict[Client, str] = {"java4": "4.9.8", "java5": "5.3.3"}

TITLES: dict[Client, str] = {
    "cpp": "C++",
    "ali": "ali-ons",
    "java4": f"Java {JAVA_VERSIONS['java4']}",
    "java5": f"Java {JAVA_VERSIONS['java5']}",
    "go": "Go",
}

HERE = Path(__file__).parent
JAVA = HERE / "java"
GO = HERE / "go"

# All come in seconds over a good line; a registry that hangs must not hang the run.
INSTALL_S = 300

# Maven colours its lines even when it writes to a pipe.
COLOUR = re.compile(r"\x1b\[[0-9;]*m")

# A process lives for minutes: no second compiler, one collector thread.
JAVA_OPTIONS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


class Unavailable(Exception):
    """A client cannot be installed here; the text says why, in one line."""


@dataclass(frozen=True)
class Installed:
    """A client that can run here.

    Attributes:
        programs: the commands that start its programs. All clients of remoting can send and
            consume; Java runs scenarios in one process, loads in another, and the commands of
            operators. Clients of gRPC are driven by questions.
        environment: what they need beside the environment of this process.
    """

    programs: dict[Program, tuple[str, ...]]
    environment: dict[str, str] = field(default_factory=dict)


Toolchains = dict[Client, Installed]


def _install_cpp(folder: Path) -> Installed:
    """The C++ client: its wheel holds the library, built for Linux on x86-64."""
    python = str(folder / "cpp" / "bin" / "python")
    if not works([python, "-c", "import rocketmq.client"]):
        do([sys.executable, "-m", "venv", "--clear", str(folder / "cpp")])
        do([python, "-m", "pip", "install", "--quiet", PACKAGE])
        do([python, "-c", "import rocketmq.client"])
    return Installed(
        {
            "send": (python, "-u", str(HERE / "cpp_send.py")),
            "consume": (python, "-u", str(HERE / "cpp_consume.py")),
        }
    )


def _install_ali(folder: Path) -> Installed:
    """The JavaScript client; its packages run no scripts when they are installed."""
    need("node", "npm")
    home = folder / "node"
    modules = home / "node_modules"
    if not (modules / "ali-ons").is_dir():
        home.mkdir(exist_ok=True)
        (home / "package.json").write_text('{"private": true}\n')
        do(["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", ALI_PACKAGE], cwd=home)
    return Installed(
        {
            "send": ("node", str(HERE / "ali_send.js")),
            "consume": ("node", str(HERE / "ali_consume.js")),
        },
        {"NODE_PATH": str(modules)},
    )


def _libraries(home: Path, version: str) -> Path:
    """RocketMQ's client and `mqadmin` with all they need, from Maven's cache if it is there."""
    libraries = home / "lib"
    if not (libraries / f"rocketmq-tools-{version}.jar").is_file():
        copy = [
            *("mvn", "--quiet", "--batch-mode", "--file", str(JAVA / "pom.xml")),
            *("dependency:copy-dependencies", f"-DoutputDirectory={libraries}"),
            f"-Drocketmq.version={version}",
        ]
        if not works([*copy, "--offline"]):
            do(copy)
    return libraries


def _install_java(folder: Path, version: str) -> Installed:
    """A version of the Java client, and our programs for it."""
    need("mvn", "javac", "java")
    home = folder / f"java-{version}"
    libraries, classes = _libraries(home, version), home / "classes"
    shutil.rmtree(classes, ignore_errors=True)
    classes.mkdir(parents=True)
    folders = (JAVA, JAVA / f"version{version[0]}")  # what only this version can do
    sources = [str(source) for one in folders for source in sorted(one.glob("*.java"))]
    do(["javac", "--release", "17", "-cp", f"{libraries}/*", "-d", str(classes), *sources])
    (home / "conf").mkdir(exist_ok=True)
    (home / "conf" / "logback_tools.xml").write_text("<configuration/>\n")  # mqadmin 4 asks for it
    class_path = ("-cp", os.pathsep.join((str(classes), f"{libraries}/*")))
    small = ("java", *JAVA_OPTIONS, "-Xmx192m", *class_path)
    large = ("java", *JAVA_OPTIONS, "-Xmx512m", *class_path)
    return Installed(
        {
            "send": (*small, "Send"),
            "consume": (*small, "Consume"),
            "scenarios": (*large, "Scenarios"),
            "losses": (*large, "Losses"),
            "mqadmin": (*small, f"-Drocketmq.home.dir={home}", "Mqadmin"),
        }
    )


def _install_go(folder: Path) -> Installed:
    """The Go client, from Go's own cache if it is there, built into our program."""
    need("go")
    program = str(folder / "go" / "client")
    # Without cgo the program finds its home folder by HOME.
    do(["go", "build", "-trimpath", "-o", program, "."], cwd=GO, environment={"CGO_ENABLED": "0"})
    return Installed({"send": (program, "send"), "consume": (program, "consume")})


INSTALLERS: dict[Client, Callable[[Path], Installed]] = {
    "cpp": _install_cpp,
    "ali": _install_ali,
    "java4": lambda folder: _install_java(folder, JAVA_VERSIONS["java4"]),
    "java5": lambda folder: _install_java(folder, JAVA_VERSIONS["java5"]),
    "go": _install_go,
}


def install(
    folder: Path, installers: Mapping[Client, Callable[[Path], Installed]] = INSTALLERS
) -> tuple[Toolchains, dict[Client, str]]:
    """Install what is missing; the clients that are there, and why others are not."""
    folder.mkdir(parents=True, exist_ok=True)
    found: Toolchains = {}
    missing: dict[Client, str] = {}
    for client, one in installers.items():
        try:
            found[client] = one(folder)
        except Unavailable as error:
            missing[client] = str(error)
    return found, missing


def need(*programs: str) -> None:
    """Ask for programs.

    Raises:
        Unavailable: one is missing.
    """
    missing = [name for name in programs if shutil.which(name) is None]
    if missing:
        raise Unavailable(f"{' and '.join(missing)} not found")


def works(command: list[str], environment: dict[str, str] | None = None) -> bool:
    """Whether a command succeeds."""
    try:
        do(command, environment=environment)
    except Unavailable:
        return False
    return True


def do(
    command: list[str],
    cwd: Path | None = None,
    environment: dict[str, str] | None = None,
    within_s: float = INSTALL_S,
) -> None:
    """Run a command.

    Raises:
        Unavailable: it failed; with its last line.
    """
    try:
        done = subprocess.run(
            command,
            cwd=cwd,
            env={**os.environ, **(environment or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=within_s,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"{command[0]}: {error}") from None
    if done.returncode:
        lines = COLOUR.sub("", done.stdout).strip().splitlines()
        said = next((line for line in lines if "ERROR" in line), lines[-1] if lines else "failed")
        raise Unavailable(f"{' '.join(command[:4])}: {said}")
