"""The end of a process that reads its standard input, whatever becomes of the run."""

from __future__ import annotations

import trio


async def end_process(process: trio.Process, wait_s: float = 0.0) -> None:
    """Close its pipes, give it so many seconds to end by itself, then kill it. Not cancelled."""
    with trio.CancelScope(shield=True):
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                await trio.aclose_forcefully(pipe)
        with trio.move_on_after(wait_s):
            await process.wait()
        if process.returncode is None:
            process.kill()
            await process.wait()
