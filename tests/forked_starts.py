"""Starts the project's commands by a fork of a process that has loaded them already.

To load a broker takes a second of the processor, and the tests start hundreds. `Starts` has
`subprocess.Popen` ask a waiting process for those it knows: `python -m broker` and so on, and in a
test that is marked `forked_programs` other programs in Python as well. What runs is a process like
any other: it has its own number, arguments, folder, environment, files, process group and ending,
and whoever started it is its parent. A start of another kind, or with options that are not carried
out here, is a real one. So is each of a test that is marked `real_starts`.
"""

from __future__ import annotations

import ctypes
import gc
import inspect
import io
import json
import os
import resource
import runpy
import signal
import socket
import struct
import subprocess
import sys
import threading
import types
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

# Each module that can be started, and what it has loaded by the time at which it works.
LOADED = {
    "broker": ("broker.broker_command",),
    "nameserver": ("nameserver.nameserver_command",),
    "dledger": ("dledger.commands.group_commands", "rich.live", "rich.table"),
    "dledger_mq": ("dledger_mq.__main__",),
    "proxy": ("proxy.proxy_command",),
}
# They start members themselves, by a waiting process of their own; so may other programs.
_START_OTHERS = (["-m", "dledger", "group"], ["-m", "dledger_mq", "up"])
# Variables that Python reads once, when it starts: those that are carried out here.
_CARRIED_OUT = {
    "PYTHONPATH",
    "PYTHONUNBUFFERED",
    "PYTHONDONTWRITEBYTECODE",
    "PYTHONPYCACHEPREFIX",
}
_UTF8 = {"", "C", "POSIX", "C.UTF-8", "C.utf8"}  # Python makes one of all
_WARNINGS = ["-W", "error"]
_ARGUMENT_BYTES = 8192  # room for the arguments that /proc shows
_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER
_WAITING = (sys.executable, "-m", "tests.forked_starts")
_ROOT = Path(__file__).parent.parent


@dataclass(frozen=True)
class _Start:
    arguments: list[str]
    folder: str
    environment: dict[str, str]
    process_group: int | None
    new_session: bool
    ignores_interrupts: bool


def _read_at_start(environment: Mapping[str, str]) -> dict[str, str]:
    names = ("LC_ALL", "LC_CTYPE", "LANG")
    locale = next((environment[name] for name in names if environment.get(name)), "")
    return {
        "locale": "" if locale in _UTF8 else locale,
        **{
            name: value
            for name, value in environment.items()
            if name.startswith("PYTHON") and name not in _CARRIED_OUT
        },
    }


def _limits() -> list[tuple[int, int]]:
    names = sorted(name for name in dir(resource) if name.startswith("RLIMIT_"))
    return [resource.getrlimit(getattr(resource, name)) for name in names]


class Starts:
    """Asks the waiting process to start what it can; `Popen` starts the rest."""

    def __init__(self) -> None:
        self.none = False
        self.programs = False
        self._asking = threading.Lock()
        self._server: subprocess.Popen[bytes] | None = None
        self._waiting: socket.socket | None = None
        self._may_have = _read_at_start(os.environ), _limits(), os.getuid(), os.umask(0o022)
        os.umask(self._may_have[-1])
        self._prctl = ctypes.CDLL(None, use_errno=True).prctl
        self._start_really: Callable[..., None] = subprocess.Popen._execute_child  # type: ignore[attr-defined]
        self._parameters = inspect.signature(self._start_really)

    def install(self, waiting: socket.socket | None = None) -> None:
        """Have every `Popen` of this process ask here."""
        self._waiting = waiting

        def execute_child(process: Any, *given: Any) -> None:
            self._execute_child(process, *given)

        subprocess.Popen._execute_child = execute_child  # type: ignore[attr-defined]

    def close(self) -> None:
        """End the waiting process, if there is one."""
        if self._server is not None and self._waiting is not None:
            self._waiting.close()
            self._server.wait()

    def _execute_child(self, process: Any, *given: Any) -> None:
        bound = self._parameters.bind(process, *given).arguments
        start = self._start(bound)
        if start is None:
            self._start_really(process, *given)
            return
        ends = (bound["p2cread"], bound["c2pwrite"], bound["errwrite"])
        process.pid = self._ask(start, [own if end == -1 else end for own, end in enumerate(ends)])
        process._child_created = True
        pipes = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        process._close_pipe_fds(*(bound[name] for name in pipes))

    def _start(self, bound: Mapping[str, Any]) -> _Start | None:
        """What is to be started; None if only a real start will do."""
        words = bound["args"]
        if self.none or not isinstance(words, (list, tuple)):
            return None
        arguments = [os.fsdecode(word) for word in words]
        environment = dict(os.environ if bound["env"] is None else bound["env"])
        folder = os.fspath(bound["cwd"] or os.getcwd())
        unusual = ("executable", "preexec_fn", "pass_fds", "shell", "gid", "gids", "uid")
        if (
            arguments[0] != sys.executable
            or not self._is_loaded(_without_warnings(arguments))
            or any(bound[name] for name in unusual)
            or bound["umask"] != -1
            or not bound["close_fds"]
            or not os.path.isdir(folder)
            or len(_shown(arguments)) > _ARGUMENT_BYTES
            or (_read_at_start(environment), _limits(), os.getuid()) != self._may_have[:-1]
        ):
            return None
        group = bound["process_group"]
        return _Start(
            arguments,
            folder,
            {os.fsdecode(name): os.fsdecode(value) for name, value in environment.items()},
            None if group in (None, -1) else group,
            bool(bound["start_new_session"]),
            signal.getsignal(signal.SIGINT) is signal.SIG_IGN,
        )

    def _is_loaded(self, words: list[str]) -> bool:
        if words[0] == "-m" and words[1] in LOADED:
            return True
        return self.programs and (words[0] in ("-c", "-m") or words[0].endswith(".py"))

    def _ask(self, start: _Start, files: list[int]) -> int:
        with self._asking:
            if self._waiting is None:
                self._waiting = self._begin()
            request = json.dumps(asdict(start)).encode()
            # What the waiting process starts loses its parent at once, and gets this one instead.
            self._prctl(_SUBREAPER, 1, 0, 0, 0)
            try:
                socket.send_fds(self._waiting, [struct.pack("!I", len(request))], files)
                self._waiting.sendall(request)
                answer = self._waiting.recv(4, socket.MSG_WAITALL)
            finally:
                self._prctl(_SUBREAPER, 0, 0, 0, 0)
        assert len(answer) == 4, "the process that starts others has ended"
        (number,) = struct.unpack("!I", answer)
        return int(number)

    def _begin(self) -> socket.socket:
        here, there = socket.socketpair()
        command = [*_WAITING, str(there.fileno()), "-" * _ARGUMENT_BYTES]
        with there:
            self._server = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, cwd=_ROOT, pass_fds=[there.fileno()]
            )
        return here


def _next_start(asked: socket.socket) -> _Start:
    """Wait for starts, each of which returns in a process of its own, with its files in place."""
    while True:
        head, files, _, _ = socket.recv_fds(asked, 4, 3)
        if not head:
            os._exit(0)
        request = asked.recv(struct.unpack("!I", head)[0], socket.MSG_WAITALL)
        reading, writing = os.pipe()
        between = os.fork()
        if between == 0:
            parent = os.getpid()
            number = os.fork()
            if number:
                os.write(writing, struct.pack("!I", number))
                os._exit(0)
            while os.getppid() == parent:  # until the process that asked has adopted it
                os.sched_yield()
            for own, end in enumerate(files):
                os.dup2(end, own)
            os.closerange(3, os.sysconf("SC_OPEN_MAX"))
            return _Start(**json.loads(request))
        os.waitpid(between, 0)
        asked.sendall(os.read(reading, 4))
        for end in (*files, reading, writing):
            os.close(end)


def _without_warnings(arguments: list[str]) -> list[str]:
    """The words behind Python and its options."""
    return arguments[3:] if arguments[1:3] == _WARNINGS else arguments[1:]


def _become(start: _Start) -> None:
    """Be as a process that has just begun with these arguments."""
    if start.new_session:
        os.setsid()
    elif start.process_group is not None:
        os.setpgid(0, start.process_group)
    if not start.ignores_interrupts:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(start.folder)
    os.environ.clear()
    os.environ.update(start.environment)
    sys.orig_argv = start.arguments
    sys.dont_write_bytecode = bool(start.environment.get("PYTHONDONTWRITEBYTECODE"))
    sys.pycache_prefix = start.environment.get("PYTHONPYCACHEPREFIX") or None
    if start.arguments[1:3] == _WARNINGS:
        sys.warnoptions[:] = ["error"]
        warnings.simplefilter("error")
    at_once = "PYTHONUNBUFFERED" in start.environment
    for name, own, mode in (("stdin", 0, "rb"), ("stdout", 1, "wb"), ("stderr", 2, "wb")):
        kept = getattr(sys, name)
        stream = io.TextIOWrapper(
            open(own, mode, closefd=False),  # noqa: SIM115
            encoding=kept.encoding,
            errors=kept.errors,
            line_buffering=own == 2 or os.isatty(own),
            write_through=at_once,
        )
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    _show(start.arguments)
    gc.enable()


def _shown(arguments: Sequence[str]) -> bytes:
    return b"".join(os.fsencode(word) + b"\0" for word in arguments)


def _show(arguments: Sequence[str]) -> None:
    """Have /proc show these arguments: they are written over the first ones."""
    begins, ends = map(int, Path("/proc/self/stat").read_text().rpartition(")")[2].split()[45:47])
    line = _shown(arguments)
    ctypes.memset(begins, 0, ends - begins)
    ctypes.memmove(begins, line, len(line))


def _run(words: list[str]) -> None:
    """Do what Python does with these words."""
    if words[0] == "-m":
        sys.path[0] = os.getcwd()
        sys.argv = ["-m", *words[2:]]
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    elif words[0] == "-c":
        sys.path[0] = ""
        sys.argv = ["-c", *words[2:]]
        sys.modules["__main__"] = program = types.ModuleType("__main__")
        exec(compile(words[1], "<string>", "exec"), vars(program))
    else:
        sys.path[0] = str(Path(words[0]).resolve().parent)
        sys.argv = words
        runpy.run_path(words[0], run_name="__main__")


def main() -> None:
    """Load all commands, then start them as asked."""
    starts = Starts()
    for names in LOADED.values():
        for name in names:
            import_module(name)
            if name.endswith(".__main__"):
                del sys.modules[name]  # it is run once more, as the first module of a process
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _show(_WAITING)
    gc.disable()
    gc.freeze()
    asked = socket.socket(fileno=int(sys.argv[1]))
    while True:
        start = _next_start(asked)
        asked.detach()
        _become(start)
        words = _without_warnings(start.arguments)
        if words[0] == "-m" and words[1] in LOADED and words[:3] not in _START_OTHERS:
            break
        here, there = socket.socketpair()
        if os.fork():
            there.close()
            starts.install(here)
            break
        # Its ends of pipes, and its arguments, are those of what it waits for.
        here.close()
        nowhere = os.open(os.devnull, os.O_RDWR)
        for own in range(3):
            os.dup2(nowhere, own)
        _show(_WAITING)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        gc.disable()
        asked = there
    _run(words)


if __name__ == "__main__":
    main()
