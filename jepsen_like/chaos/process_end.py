"""Ends a process that reads its standard input."""

from __future__ import annotations

import trio


async def end_process(process: trio.Process, wait_s: float = 0.0) -> None:
    """Close its pipes, wait so many seconds for its end, then kill it. Cannot be cancelled."""
    with trio.CancelScope(shield=True):
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                await trio.aclose_forcefully(pipe)
        with trio.move_on_after(wait_s):
            await process.wait()
        if process.returncode is None:
            process.kill()
            await process.wait()
