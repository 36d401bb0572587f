"""A command leaves out what libraries in Rust print of a panic: its error is one line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROGRAM = r"""
import os, sys
from dledger_spark.native_stderr import set_python_apart, without_panics
PANIC = (b"\nthread 'tokio-rt-worker' (12) panicked at /home/a/buffered.rs:369:41:\n"
         b"Already shut down\nnote: run with `RUST_BACKTRACE=1`\n\n")
with without_panics():
    os.write(2, PANIC)  # a program that uses the package decides for itself
set_python_apart()
with without_panics():
    os.write(2, b"native\n" + PANIC + b"more\n")
    print("python", file=sys.stderr)
    with without_panics():
        os.write(2, b"within\n")
os.write(2, b"behind\n")
"""


def test_a_panic_is_left_out_in_a_command_and_everything_else_comes() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, check=True, cwd=ROOT, text=True
    )
    before, _, after = ended.stderr.partition("note: run with `RUST_BACKTRACE=1`\n")
    assert "panicked" in before
    assert [line for line in after.splitlines() if line] == [
        "python",
        "native",
        "more",
        "within",
        "behind",
    ]
