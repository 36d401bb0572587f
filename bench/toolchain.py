"""Programs of other projects: found on this machine, or built once into a folder."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

SOURCES = Path(__file__).parent / "peers"
GO_MODULE = SOURCES / "go"
JAVA = SOURCES / "java"
ROCKETMQ = SOURCES / "rocketmq"

# The default folder of built programs and of the data of runs; git ignores it.
BUILD = Path("build/bench")

# Fetching and compiling everything takes two or three minutes; a hanging download must not hang us.
BUILD_TIMEOUT_S = 1200

# The certificates are kept as long as the built programs.
CERTIFICATE_DAYS = "3650"

_JAVA_ADVICE = "install a JDK, 11 or later"


class Unavailable(Exception):
    """A peer cannot be measured here; the text says why and what to do, in one line."""


class Toolchain:
    """Finds or builds programs.

    Args:
        folder: for built programs, which are kept.
        which: finds a program, as shutil.which does.
        building: called with the name of a program before it is built, since that takes a while.
    """

    def __init__(
        self,
        folder: Path,
        which: Callable[[str], str | None] = shutil.which,
        building: Callable[[str], object] = lambda _: None,
    ) -> None:
        self._folder = folder.absolute()
        self._which = which
        self._building = building

    def find(self, name: str, advice: str) -> str:
        """Return the path of a program. Raises Unavailable with the advice."""
        found = self._which(name)
        if found is None:
            raise Unavailable(f"{name} is not found: {advice}")
        return found

    def go_program(self, name: str, package: str) -> Path:
        """Build a program of the Go module beside this file. Raises Unavailable."""
        go = self.find("go", "install Go (go.mod says which version)")
        target = self._folder / "go" / _digest(GO_MODULE) / name
        if not target.exists():
            self._building(f"{name} (Go)")
            target.parent.mkdir(parents=True, exist_ok=True)
            unfinished = target.with_suffix(".unfinished")
            command = [*(go, "build", "-C", str(GO_MODULE), "-mod=readonly", "-buildvcs=false")]
            run([*command, "-o", str(unfinished), package])
            unfinished.rename(target)
        return target

    def certificates(self, names: Iterable[str]) -> Path:
        """Make an authority, and a certificate and a key for each name, as in docs/security.md.

        Raises Unavailable.
        """
        openssl = self.find("openssl", "install OpenSSL 3")
        folder = self._folder / "certificates"
        if folder.exists():
            return folder
        unfinished = folder.with_suffix(".unfinished")
        unfinished.mkdir(parents=True, exist_ok=True)
        new = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
        authority, its_key = unfinished / "authority.pem", unfinished / "authority-key.pem"
        usage = ("-subj", "/CN=bench", "-addext", "keyUsage=critical,keyCertSign,cRLSign")
        files = ("-keyout", str(its_key), "-out", str(authority))
        run([openssl, "req", "-x509", "-days", CERTIFICATE_DAYS, *new, *usage, *files])
        for name in names:
            request = unfinished / f"{name}.csr"
            identity = ("-subj", f"/CN={name}", "-addext", f"subjectAltName=DNS:{name}")
            files = ("-keyout", str(unfinished / f"{name}-key.pem"), "-out", str(request))
            run([openssl, "req", "-new", *new, *identity, *files])
            by = ("-CA", str(authority), "-CAkey", str(its_key), "-days", CERTIFICATE_DAYS)
            files = ("-in", str(request), "-out", str(unfinished / f"{name}.pem"))
            run([openssl, "x509", "-req", "-copy_extensions", "copy", *by, *files])
        unfinished.rename(folder)
        return folder

    def java_command(self) -> list[str]:
        """Return a Java command with the classes of the folder `java`. Raises Unavailable."""
        # Without these, DLedger wedges on Java 16 and later when it deletes a file.
        opens = [f"--add-opens=java.base/{each}=ALL-UNNAMED" for each in ("java.nio", "sun.nio.ch")]
        class_path = self.class_path(JAVA, "Java DLedger")
        return [self._java(), "-Xms512m", "-Xmx512m", *opens, "-cp", class_path]

    def python_with(self, package: str, version: str) -> str:
        """Return a Python that has a package, in a virtual environment. Raises Unavailable."""
        folder = self._folder / "python" / f"{package}-{version}"
        if not folder.exists():
            self._building(f"{package} (pip)")
            unfinished = folder.with_suffix(".unfinished")
            run([sys.executable, "-m", "venv", "--clear", str(unfinished)])
            python = str(unfinished / "bin" / "python")
            run([python, "-m", "pip", "install", "--quiet", f"{package}=={version}"])
            unfinished.rename(folder)
        return str(folder / "bin" / "python")

    def class_path(self, sources: Path, what: str) -> str:
        """Fetch the libraries of a folder's pom.xml, and compile its classes, once.

        Raises Unavailable.
        """
        self._java()
        javac = self.find("javac", _JAVA_ADVICE)
        maven = self.find("mvn", "install Maven")
        folder = self._folder / sources.name / _digest(sources)
        libraries, classes = folder / "lib", folder / "classes"
        if not classes.exists():
            self._building(f"{what} (Maven)")
            copy = [
                *(maven, "--quiet", "--batch-mode", "--file", str(sources / "pom.xml")),
                *("dependency:copy-dependencies", f"-DoutputDirectory={libraries}"),
                "-DincludeScope=runtime",
            ]
            try:
                run([*copy, "--offline"])  # from the user's cache, if all is there
            except Unavailable:
                run(copy)
            unfinished = folder / "classes.unfinished"
            unfinished.mkdir(parents=True, exist_ok=True)
            if found := sorted(str(source) for source in sources.glob("*.java")):
                run([javac, "-cp", str(libraries / "*"), "-d", str(unfinished), *found])
            unfinished.rename(classes)
        return os.pathsep.join((str(classes), str(libraries / "*")))

    def shared_library(self, source: Path) -> Path:
        """Compile a file of C to a library for LD_PRELOAD. Raises Unavailable."""
        return self._compiled(source, f"{source.stem}.so", ["-shared", "-fPIC"], ["-ldl"])

    def c_program(self, source: Path) -> Path:
        """Compile a file of C to a program. Raises Unavailable."""
        return self._compiled(source, source.stem, [], [])

    def _compiled(self, source: Path, name: str, before: list[str], after: list[str]) -> Path:
        compiler = self.find("cc", "install a C compiler")
        target = self._folder / "c" / _digest(source.parent) / name
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            unfinished = target.with_suffix(".unfinished")
            run([compiler, "-O2", *before, "-o", str(unfinished), str(source), *after])
            unfinished.rename(target)
        return target

    def _java(self) -> str:
        return self.find("java", _JAVA_ADVICE)


def run(command: list[str]) -> str:
    """Run a program to its end; return its output. Raises Unavailable."""
    name = Path(command[0]).name
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=BUILD_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"{name}: {error}") from None
    if done.returncode:
        lines = [line.strip() for line in done.stdout.splitlines() if line.strip()]
        said = next((line for line in lines if "error" in line.lower()), (lines or ["failed"])[-1])
        raise Unavailable(f"{name}: {said}")
    return done.stdout


def go_version(module: str) -> str:
    found = re.search(rf"{re.escape(module)} v(\S+)", (GO_MODULE / "go.mod").read_text())
    return found[1] if found else "?"


def _digest(folder: Path) -> str:
    """Return a digest of a folder of sources: changed sources are built again."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            digest.update(f"{path.relative_to(folder)}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]
