"""Starts members again when they end, and follows the advice of their last words."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import trio

from jepsen_like.chaos.fault_log import FaultLog
from jepsen_like.chaos.members.advice import Remedy, is_bug, last_words, remedies
from jepsen_like.chaos.members.member import Member

# Before a member is started again: one that ends at once must not keep the machine busy.
RESTART_AFTER_S = 0.3
LOOK_S = 0.05
# A member that has run for this long was brought back by the last remedy.
STEADY_S = 3.0
# Remedies in a row for one member; then it is given up, which is a finding.
REMEDIES_MAX = 4


@dataclass
class Supervisor:
    """Watches over the members of a run.

    Findings are errors that must not occur, and advice that does not help.
    """

    members: Mapping[str, Member]
    faults: FaultLog
    finding: Callable[[str], None]
    free_disk: Callable[[Member], None]

    async def watch(self, member: Member) -> None:
        """Run a member until it is retired; if cancelled, stop it."""
        tried: list[Remedy] = []
        while not member.retired:
            began_s = trio.current_time()
            self.faults.note("start", member=member.name)
            code = await member.run_once()
            expected = member.end_expected
            steady = trio.current_time() - began_s >= STEADY_S
            if expected or steady or member.broken_anew:
                tried.clear()
                member.broken_anew = False
            words = last_words(member.log_end())
            if expected or code == 0:
                self.faults.note("down", member=member.name, exit_code=code, expected=expected)
            elif not await self._mend(member, code, words, tried):
                return
            while member.holds and not member.retired:
                await trio.sleep(LOOK_S)
            await trio.sleep(RESTART_AFTER_S)

    async def _mend(self, member: Member, code: int, words: str, tried: list[Remedy]) -> bool:
        """Follow the advice of the words; return whether the member is to be started again."""
        if is_bug(member.log_end()) and code != 0:
            self.finding(f"{member.name} ended by an error that must never be: {words}")
        advised = remedies(words)
        left = [remedy for remedy in advised if remedy not in tried]
        remedy = left[0] if left else None
        done = remedy.value if remedy is not None else "given up: all that is advised was tried"
        self.faults.note(
            "down",
            member=member.name,
            exit_code=code,
            expected=False,
            last_words=words,
            done=done,
        )
        if remedy in (None, Remedy.NONE) or len(tried) >= REMEDIES_MAX:
            self.finding(
                f"{member.name} does not come back, and its message has no advice that helps "
                f"(tried: {', '.join(each.value for each in tried) or 'nothing'}): {words}"
            )
            return False
        assert remedy is not None
        tried.append(remedy)
        await self._carry_out(remedy, member)
        return True

    async def _carry_out(self, remedy: Remedy, member: Member) -> None:
        match remedy:
            case Remedy.REPAIR:
                for other in self.members.values():
                    if other is not member and other.folder.exists():
                        words = ("repair", "--from", str(other.folder), str(member.folder))
                        if await self._dledger(member, words):
                            return
            case Remedy.REJOIN:
                await self._dledger(member, ("rejoin", str(member.folder)))
            case Remedy.EMPTY_FOLDER:
                shutil.move(member.folder, Path(f"{member.folder}-aside-{member.incarnations}"))
            case Remedy.JOIN:
                self.finding(f"{member.name} says that it joined; it is started as before")
            case Remedy.FREE_DISK:
                self.free_disk(member)
            case Remedy.START | Remedy.NONE:
                pass

    async def _dledger(self, member: Member, words: tuple[str, ...]) -> bool:
        """Run a command as an operator does; return whether it succeeded."""
        ended = await trio.run_process(
            [sys.executable, "-m", "dledger", *words],
            capture_stdout=True,
            capture_stderr=True,
            check=False,
        )
        told = (ended.stdout + ended.stderr).decode(errors="replace").strip()
        with member.log.open("a") as log:
            log.write(f"$ dledger {' '.join(words)}\n{told}\nexit code {ended.returncode}\n")
        self.faults.note(
            "command", member=member.name, command=["dledger", *words], exit_code=ended.returncode
        )
        return ended.returncode == 0
