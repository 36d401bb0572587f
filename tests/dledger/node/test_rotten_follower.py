"""A group over real stores: one follower's disk rots while the leader is away for a moment."""

from __future__ import annotations

from dledger.core.admission.standing import Standing
from dledger.core.member_state import Role
from dledger.core.replica import Outgoing
from dledger.entry import HEADER_BYTES
from tests.dledger.node.stored_member import StoredMember

NAMES = ["n0", "n1", "n2"]
STEP_S = 0.01


class StoredGroup:
    """Three members, one leader at first: `n0`. Time passes in steps, and syncs are quick."""

    def __init__(self) -> None:
        self.members = {name: StoredMember(name, NAMES) for name in NAMES}
        self.down: set[str] = set()
        self.calm = {"n1", "n2"}  # whose election timer does not run
        self.now = 0.0
        self._on_their_way: list[tuple[str, Outgoing]] = []
        self.run(200)
        assert self.leader == "n0"

    @property
    def leader(self) -> str | None:
        """Who leads in the highest term, of those that are up."""
        leaders = [
            (member.replica.state.term, name)
            for name, member in self.members.items()
            if name not in self.down and member.replica.state.role is Role.LEADER
        ]
        return max(leaders)[1] if leaders else None

    def run(self, steps: int) -> None:
        """Let time pass."""
        for _ in range(steps):
            self.now += STEP_S
            arriving, self._on_their_way = self._on_their_way, []
            for sender, (receiver, message) in arriving:
                if not {sender, receiver} & self.down:
                    self.members[receiver].receive(sender, message, self.now)
            for name, member in self.members.items():
                if name not in self.down:
                    self._turn(name, member)

    def _turn(self, name: str, member: StoredMember) -> None:
        if name not in self.calm:
            member.replica.tick(self.now)
        leaving = member.leaving(self.now)
        member.sync(self.now)
        leaving += member.leaving(self.now)
        self._on_their_way += [(name, outgoing) for outgoing in leaving]

    def append(self, body: bytes) -> int:
        """Append an entry through the leader, and wait for it."""
        assert self.leader is not None
        index = self.members[self.leader].propose([body])
        self.run(20)
        assert self.members[self.leader].replica.state.committed >= index
        return index

    def body_at(self, name: str, index: int) -> bytes:
        """The body of an entry that a member holds; empty without one."""
        store = self.members[name].store
        return store.read(index, index, 0)[HEADER_BYTES:] if store.last_index >= index else b""


def test_an_acknowledged_entry_outlives_rot_on_one_member_and_a_pause_of_another() -> None:
    group = StoredGroup()
    group.down.add("n2")
    first = group.append(bytes(450))
    second = group.append(b"acknowledged as well")
    rotten, n1 = group.members["n1"], group.members["n1"].disk
    pos = rotten.store.header_at(first).pos
    assert rotten.store.hard_state.committed < first, "the record covers it: another test's case"
    n1.end_process()
    file = n1.open(f"/base/dledger-n1/data/{0:020d}")
    [byte] = file.read(1, pos + 60)
    file.write(bytes((byte ^ 1,)), pos + 60)
    rotten.start(group.now)
    assert rotten.store.last_index < first
    assert rotten.store.standing is Standing.LOST

    group.down = {"n0"}
    group.calm = {"n1"}
    group.run(400)
    assert group.leader is None, "n2 has never had the entries, and n1 has lost them"

    group.down.clear()
    group.calm = {"n1", "n2"}
    group.run(400)
    assert group.leader == "n0"
    for name in NAMES:
        assert group.body_at(name, first) == bytes(450)
        assert group.body_at(name, second) == b"acknowledged as well"
