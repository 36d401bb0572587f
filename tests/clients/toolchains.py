"""Clients written by others, installed from their registries into the build folder."""

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

CPP_PACKAGE = "rocketmq==0.4.4"
ALI_PACKAGE = "ali-ons@3.12.0"

# Both come in seconds over a good line; a registry that hangs must not hang the run.
INSTALL_SECONDS = 300


class Unavailable(Exception):
    """A client cannot be installed here; the text says why, in one line."""


@dataclass(frozen=True)
class Toolchains:
    """Where the clients are.

    Attributes:
        cpp_python: an interpreter that has the C++ client, or None.
        node_path: the folder of node's modules with the JavaScript client, or None.
    """

    cpp_python: Path | None
    node_path: Path | None


def install(folder: Path) -> Toolchains:
    """Install what is missing; say what cannot be, and go on without it."""
    folder.mkdir(parents=True, exist_ok=True)
    found: list[Path | None] = []
    for name, one in (("C++ client", _install_cpp), ("ali-ons", _install_ali)):
        try:
            found.append(one(folder))
        except Unavailable as error:
            print(f"skipped: {name}: {error}")
            found.append(None)
    return Toolchains(*found)


def _install_cpp(folder: Path) -> Path:
    """The C++ client: its wheel holds the library, built for Linux on x86-64."""
    python = folder / "cpp" / "bin" / "python"
    if not _works([str(python), "-c", "import rocketmq.client"]):
        _do([sys.executable, "-m", "venv", "--clear", str(folder / "cpp")])
        _do([str(python), "-m", "pip", "install", "--quiet", CPP_PACKAGE])
        _do([str(python), "-c", "import rocketmq.client"])
    return python


def _install_ali(folder: Path) -> Path:
    """The JavaScript client; its packages run no scripts when they are installed."""
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            raise Unavailable(f"{program} is not installed")
    home = folder / "node"
    modules = home / "node_modules"
    if not (modules / "ali-ons").is_dir():
        home.mkdir(exist_ok=True)
        (home / "package.json").write_text('{"private": true}\n')
        _do(
            ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", ALI_PACKAGE], cwd=home
        )
    return modules


def _works(command: list[str]) -> bool:
    try:
        _do(command)
    except Unavailable:
        return False
    return True


def _do(command: list[str], cwd: Path | None = None) -> None:
    """Run a command.

    Raises:
        Unavailable: it failed; with its last line.
    """
    try:
        done = subprocess.run(
            command,
            cwd=cwd,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=INSTALL_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"{command[0]}: {error}") from None
    if done.returncode:
        lines = done.stdout.strip().splitlines()
        raise Unavailable(f"{' '.join(command[:5])}: {lines[-1] if lines else 'failed'}")
