"""Every command prints any text on a terminal of any encoding."""

from __future__ import annotations

import os
import subprocess
import sys

# A module, and arguments with which its command ends soon.
COMMANDS = {
    "dledger": ("verify", "/nowhere"),
    "dledger_mq": ("topic", "list", "--nameserver", "127.0.0.1:1"),
    "dledger_spark": ("show", "--path", "/nowhere"),
    "jepsen_like": ("list",),
}
PRINTS_MORE = """
import runpy, sys
try:
    runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)
except SystemExit:
    pass
print("grün €")
"""


def test_what_an_encoding_lacks_is_printed_as_an_escape() -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    for module, arguments in COMMANDS.items():
        ended = subprocess.run(
            [sys.executable, "-c", PRINTS_MORE, module, *arguments],
            capture_output=True,
            env=environment,
            check=False,
            timeout=60,
        )
        assert ended.stdout.endswith(b"gr\xfcn \\u20ac\n"), (module, ended.stderr)
