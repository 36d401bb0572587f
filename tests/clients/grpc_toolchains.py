"""Clients of RocketMQ 5's gRPC protocol, installed from their registries."""

import os
import shutil
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.clients.toolchains import (
    HERE,
    JAVA_OPTIONS,
    Client,
    GrpcClient,
    Installed,
    do,
    need,
    works,
)

DRIVERS = HERE / "drivers"

# The newest that the registries give, and an older one of two.
PYTHON_VERSIONS: dict[GrpcClient, str] = {"python5": "5.1.2", "python51": "5.1.1"}
NODE_PACKAGE = "rocketmq-client-nodejs@1.0.8"
GRPC_JAVA_VERSIONS: dict[GrpcClient, str] = {"java52": "5.2.0", "java51": "5.1.0"}

# Rust compiles some 300 packages the first time.
BUILD_S = 1800

GRPC_CLIENTS: tuple[GrpcClient, ...] = (
    *PYTHON_VERSIONS,
    "node5",
    *GRPC_JAVA_VERSIONS,
    "go5",
    "rust5",
)

GRPC_TITLES: dict[Client, str] = {
    **{client: f"gRPC Python {version}" for client, version in PYTHON_VERSIONS.items()},
    "node5": "gRPC Node",
    **{client: f"gRPC Java {version}" for client, version in GRPC_JAVA_VERSIONS.items()},
    "go5": "gRPC Go",
    "rust5": "gRPC Rust",
}


def _install_python(version: str, folder: Path) -> Installed:
    home = folder / f"python-{version}"
    python = str(home / "bin" / "python")
    check = [python, "-c", "import rocketmq"]
    # The client makes a folder for its log below HOME when it is imported.
    environment = {"HOME": str(folder)}
    if not works(check, environment):
        do([sys.executable, "-m", "venv", "--clear", str(home)])
        do([python, "-m", "pip", "install", "--quiet", f"rocketmq-python-client=={version}"])
        do(check, environment=environment)
    return Installed({"drive": (python, "-u", str(DRIVERS / "python" / "driver.py"))})


def _install_node(folder: Path) -> Installed:
    need("node", "npm")
    home = folder / "node-5"
    modules = home / "node_modules"
    if not (modules / "rocketmq-client-nodejs").is_dir():
        home.mkdir(exist_ok=True)
        (home / "package.json").write_text('{"private": true}\n')
        options = ("--no-audit", "--no-fund", "--ignore-scripts")
        do(["npm", "install", *options, NODE_PACKAGE], cwd=home)
    return Installed(
        {"drive": ("node", str(DRIVERS / "node" / "driver.js"))}, {"NODE_PATH": str(modules)}
    )


def _install_java(version: str, folder: Path) -> Installed:
    need("mvn", "javac", "java")
    home = folder / f"java-grpc-{version}"
    libraries, classes = home / "lib", home / "classes"
    if not (libraries / f"rocketmq-client-java-{version}.jar").is_file():
        copy = [
            *("mvn", "--quiet", "--batch-mode", "--file", str(DRIVERS / "java" / "pom.xml")),
            *("dependency:copy-dependencies", f"-DoutputDirectory={libraries}"),
            f"-Drocketmq.version={version}",
        ]
        if not works([*copy, "--offline"]):
            do(copy)
    shutil.rmtree(classes, ignore_errors=True)
    classes.mkdir(parents=True)
    sources = [str(DRIVERS / "java" / "Driver.java")]
    do(["javac", "--release", "17", "-cp", f"{libraries}/*", "-d", str(classes), *sources])
    path = os.pathsep.join((str(classes), f"{libraries}/*"))
    return Installed({"drive": ("java", *JAVA_OPTIONS, "-Xmx256m", "-cp", path, "Driver")})


def _install_go(folder: Path) -> Installed:
    need("go")
    program = str(folder / "go-5" / "driver")
    build = ["go", "build", "-trimpath", "-o", program, "."]
    do(build, cwd=DRIVERS / "go", environment={"CGO_ENABLED": "0"}, within_s=BUILD_S)
    # Its log would be in a folder at the root.
    return Installed({"drive": (program,)}, {"rocketmq.client.logRoot": "logs"})


def _install_rust(folder: Path) -> Installed:
    need("cargo")
    target = folder / "rust-5"
    manifest = str(DRIVERS / "rust" / "Cargo.toml")
    build = ["cargo", "build", "--quiet", "--locked", "--manifest-path", manifest]
    do(build, environment={"CARGO_TARGET_DIR": str(target)}, within_s=BUILD_S)
    return Installed({"drive": (str(target / "debug" / "driver"),)})


GRPC_INSTALLERS: dict[Client, Callable[[Path], Installed]] = {
    **{client: partial(_install_python, version) for client, version in PYTHON_VERSIONS.items()},
    "node5": _install_node,
    **{client: partial(_install_java, version) for client, version in GRPC_JAVA_VERSIONS.items()},
    "go5": _install_go,
    "rust5": _install_rust,
}
