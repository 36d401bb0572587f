"""Clients written by others, installed from their registries into the build folder."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

Client = Literal["cpp", "ali", "java4", "java5", "go", "admin4", "admin5"]

CPP_PACKAGE = "rocketmq==0.4.4"
ALI_PACKAGE = "ali-ons@3.12.0"
JAVA_VERSIONS: dict[Client, str] = {"java4": "4.9.8", "java5": "5.3.3"}

TITLES: dict[Client, str] = {
    "cpp": "C++",
    "ali": "ali-ons",
    "java4": f"Java {JAVA_VERSIONS['java4']}",
    "java5": f"Java {JAVA_VERSIONS['java5']}",
    "go": "Go",
    "admin4": f"mqadmin {JAVA_VERSIONS['java4']}",
    "admin5": f"mqadmin {JAVA_VERSIONS['java5']}",
}

HERE = Path(__file__).parent
JAVA = HERE / "java"
GO = HERE / "go"

# All come in seconds over a good line; a registry that hangs must not hang the run.
INSTALL_SECONDS = 300

# Maven colours its lines even when it writes to a pipe.
COLOUR = re.compile(r"\x1b\[[0-9;]*m")

# A client needs little memory, and its process lives for a minute: no second compiler, one
# collector thread. Netty reserves as much again outside the heap.
JAVA_OPTIONS = ("-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


class Unavailable(Exception):
    """A client cannot be installed here; the text says why, in one line."""


@dataclass(frozen=True)
class Installed:
    """A client that can run here.

    Attributes:
        send: the command that sends.
        consume: the command that consumes.
        environment: what both need beside the environment of this process.
    """

    send: tuple[str, ...]
    consume: tuple[str, ...]
    environment: dict[str, str] = field(default_factory=dict)


Toolchains = dict[Client, Installed]


def install(folder: Path) -> Toolchains:
    """Install what is missing; say what cannot be, and go on without it."""
    folder.mkdir(parents=True, exist_ok=True)
    installers: dict[Client, Callable[[Path], Installed]] = {
        "cpp": _install_cpp,
        "ali": _install_ali,
        "java4": lambda folder: _install_java(folder, JAVA_VERSIONS["java4"]),
        "java5": lambda folder: _install_java(folder, JAVA_VERSIONS["java5"]),
        "go": _install_go,
        "admin4": lambda folder: _install_mqadmin(folder, JAVA_VERSIONS["java4"]),
        "admin5": lambda folder: _install_mqadmin(folder, JAVA_VERSIONS["java5"]),
    }
    found: Toolchains = {}
    for client, one in installers.items():
        try:
            found[client] = one(folder)
        except Unavailable as error:
            print(f"skipped: {TITLES[client]}: {error}")
    return found


def _install_cpp(folder: Path) -> Installed:
    """The C++ client: its wheel holds the library, built for Linux on x86-64."""
    python = str(folder / "cpp" / "bin" / "python")
    if not _works([python, "-c", "import rocketmq.client"]):
        _do([sys.executable, "-m", "venv", "--clear", str(folder / "cpp")])
        _do([python, "-m", "pip", "install", "--quiet", CPP_PACKAGE])
        _do([python, "-c", "import rocketmq.client"])
    return Installed(
        (python, "-u", str(HERE / "cpp_send.py")), (python, "-u", str(HERE / "cpp_consume.py"))
    )


def _install_ali(folder: Path) -> Installed:
    """The JavaScript client; its packages run no scripts when they are installed."""
    _need("node", "npm")
    home = folder / "node"
    modules = home / "node_modules"
    if not (modules / "ali-ons").is_dir():
        home.mkdir(exist_ok=True)
        (home / "package.json").write_text('{"private": true}\n')
        _do(
            ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", ALI_PACKAGE], cwd=home
        )
    return Installed(
        ("node", str(HERE / "ali_send.js")),
        ("node", str(HERE / "ali_consume.js")),
        {"NODE_PATH": str(modules)},
    )


def _libraries(home: Path, artifact: str, version: str) -> Path:
    """A library of RocketMQ with all that it needs, from Maven's cache if it is there."""
    libraries = home / "lib"
    if not (libraries / f"{artifact}-{version}.jar").is_file():
        copy = [
            *("mvn", "--quiet", "--batch-mode", "--file", str(JAVA / "pom.xml")),
            *("dependency:copy-dependencies", f"-DoutputDirectory={libraries}"),
            *(f"-Drocketmq.version={version}", f"-Drocketmq.artifact={artifact}"),
        ]
        if not _works([*copy, "--offline"]):
            _do(copy)
    return libraries


def _install_mqadmin(folder: Path, version: str) -> Installed:
    """A version of the command of RocketMQ's operators."""
    _need("mvn", "java")
    home = folder / f"mqadmin-{version}"
    libraries = _libraries(home, "rocketmq-tools", version)
    (home / "conf").mkdir(exist_ok=True)
    (home / "conf" / "logback_tools.xml").write_text("<configuration/>\n")  # it asks for one
    main = "org.apache.rocketmq.tools.command.MQAdminStartup"
    java = (*("java", *JAVA_OPTIONS, f"-Drocketmq.home.dir={home}"), "-cp", f"{libraries}/*", main)
    return Installed(java, java)


def _install_java(folder: Path, version: str) -> Installed:
    """A version of the Java client, and our programs for it."""
    _need("mvn", "javac", "java")
    home = folder / f"java-{version}"
    libraries, classes = _libraries(home, "rocketmq-client", version), home / "classes"
    classes.mkdir(parents=True, exist_ok=True)
    sources = [str(source) for source in sorted(JAVA.glob("*.java"))]
    _do(["javac", "--release", "17", "-cp", f"{libraries}/*", "-d", str(classes), *sources])
    class_path = os.pathsep.join((str(classes), f"{libraries}/*"))
    java = ("java", *JAVA_OPTIONS, "-cp", class_path)
    return Installed((*java, "Send"), (*java, "Consume"))


def _install_go(folder: Path) -> Installed:
    """The Go client, from Go's own cache if it is there, built into our program."""
    _need("go")
    program = str(folder / "go" / "client")
    # Without cgo the program finds its home folder by HOME.
    _do(["go", "build", "-trimpath", "-o", program, "."], cwd=GO, environment={"CGO_ENABLED": "0"})
    return Installed((program, "send"), (program, "consume"))


def _need(*programs: str) -> None:
    """Ask for programs.

    Raises:
        Unavailable: one is missing.
    """
    missing = [name for name in programs if shutil.which(name) is None]
    if missing:
        raise Unavailable(f"{' and '.join(missing)} not found")


def _works(command: list[str]) -> bool:
    try:
        _do(command)
    except Unavailable:
        return False
    return True


def _do(
    command: list[str], cwd: Path | None = None, environment: dict[str, str] | None = None
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
            timeout=INSTALL_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"{command[0]}: {error}") from None
    if done.returncode:
        lines = COLOUR.sub("", done.stdout).strip().splitlines()
        said = next((line for line in lines if "ERROR" in line), lines[-1] if lines else "failed")
        raise Unavailable(f"{' '.join(command[:4])}: {said}")
