"""The name server as a process."""

from __future__ import annotations

import signal
import subprocess
import sys

from dledger.free_ports import free_ports


def test_a_name_server_tells_of_a_hangup_and_goes_on() -> None:
    (port,) = free_ports(1)
    process = subprocess.Popen(
        [sys.executable, "-m", "nameserver", "--listen", f"127.0.0.1:{port}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    with process.stdout, process.stderr:
        assert "listening" in process.stdout.readline()
        for _ in range(2):
            process.send_signal(signal.SIGHUP)
            assert "SIGHUP: there is no file to read again" in process.stderr.readline()
        process.terminate()
        assert process.wait(10) == 0
