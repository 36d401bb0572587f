"""What was measured and read of Java DLedger 0.4 and surprised: here it does not happen.

docs/divergence.md has the whole list, with the tests in other files.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from dledger.core.entry_handler import Truncation
from dledger.core.hard_state import HardState
from dledger.core.ledger_view import TermRun
from dledger.core.member_state import Role
from dledger.core.messages import Heartbeat, HeartbeatResponse, Phase, PushRequest, VoteRequest
from dledger.entry import Entry, Magic, decode_entries
from dledger.errors import HardStateLost
from dledger.store.batch import verify_batch
from dledger.store.disk import OsDisk
from dledger.store.index_unit import UNIT, IndexUnit
from dledger.store.open_store import open_store
from dledger.store.segment import file_name
from dledger.store.segment_store import SegmentStore
from dledger.store.store_config import StoreConfig
from tests.dledger.core.core_group import TIMEOUT_S, Group, Member

GOLDEN = Path(__file__).parent / "data" / "golden"
SMALL = StoreConfig(segment_bytes=256, index_segment_bytes=96, max_body_bytes=200)
THREE = ["n0", "n1", "n2"]
LATER = 2 * TIMEOUT_S


def reopen(base: Path, node: str = "n0") -> SegmentStore:
    return open_store(OsDisk(), str(base), SMALL, "g", node)


def everything(store: SegmentStore) -> list[Entry]:
    found: list[Entry] = []
    while len(found) <= store.last_index:
        found += decode_entries(store.read(len(found), store.last_index, 1 << 20))
    return found


def file_content(base: Path, part: str, start: int) -> bytes:
    return (base / "dledger-n0" / part / file_name(start)).read_bytes()


# --- measured -------------------------------------------------------------------------------------


def test_a_new_leader_neither_cuts_nor_sends_again_what_its_followers_have() -> None:
    # Java's dispatcher starts from where the log ended when its process started: a first
    # leadership compares there and has the followers drop all that was committed since.
    group = Group([[], [], []])
    group.elect("n0")
    last = group.propose("n0", 500)
    group.pass_time(0.5)
    assert {group[name].committed for name in THREE} == {last}
    group.silent = {"n0"}
    group.sent.clear()
    shortest = len(group["n2"].log)

    def watch(sender: str, receiver: str, message: object) -> bool:
        nonlocal shortest
        shortest = min(shortest, len(group["n2"].log))
        return False

    group.stand("n1")
    group.run(dropped=watch)
    assert group["n1"].role is Role.LEADER
    assert shortest == last + 1
    assert not [write for write in group["n2"].written if isinstance(write, Truncation)]
    sent_again = [
        message
        for _, _, message in group.sent
        if isinstance(message, PushRequest) and message.runs and message.prev_index < last
    ]
    assert sent_again == []
    assert group["n2"].log == group["n1"].log


def test_a_follower_takes_entries_again_after_a_cut_over_many_files(tmp_path: Path) -> None:
    # On Java 16 and later, Java fails to delete the files of such a cut: the follower answers
    # every push with an error until it is restarted.
    leader, follower = reopen(tmp_path / "leader"), reopen(tmp_path / "follower")
    for store in (leader, follower):
        store.append(1, Magic.NORMAL, [b"%d" % store.last_index * 50 for _ in range(40)])
    files = len(list((tmp_path / "follower/dledger-n0/data").iterdir()))
    for round_number in range(3):
        for store in (leader, follower):
            store.truncate_after(3)
        assert len(list((tmp_path / "follower/dledger-n0/data").iterdir())) < files - 5
        leader.append(2 + round_number, Magic.NORMAL, [b"new" * 20] * 40)
        while follower.last_index < leader.last_index:
            first = follower.last_index + 1
            raw = leader.read(first, leader.last_index, 500)
            chain = follower.chain_at(first - 1)
            follower.write_batch(raw, verify_batch(raw, first, chain, follower.last_term))
        follower.begin_sync(None).run()
        assert everything(follower) == everything(leader)
    leader.close()
    follower.close()


def test_an_answer_carries_the_term_of_whoever_gives_it() -> None:
    # Java answers heartbeats with term -1, so a late answer cannot be told from a present one.
    member = Member("n0", THREE, hard_state=HardState(7))
    member.replica.receive("n1", Heartbeat(7, -1, 3), 0.0)
    member.replica.receive("n2", VoteRequest(8, -1, -1, pre=True), 0.0)
    terms = [message.term for _, message in member.leaving(0.0)]
    assert terms == [7, 7]
    assert HeartbeatResponse._fields[0] == "term"


def test_every_leader_opens_its_term_with_a_no_op_also_when_all_is_committed() -> None:
    # Java appends one only as an option, and then only if its commit index is behind.
    group = Group([[], [], []])
    for number, name in enumerate(["n0", "n1", "n2"]):
        group.elect(name)
        group.pass_time(1.0)
        assert group[name].log == list(range(1, number + 2))
        assert group[name].committed == number


def test_the_index_calls_a_no_op_a_no_op_on_the_node_that_made_it(tmp_path: Path) -> None:
    store = reopen(tmp_path)
    store.append(1, Magic.NORMAL, [b"a"])
    store.append(1, Magic.NOOP, [b""])
    store.close()
    unit = IndexUnit._make(UNIT.unpack_from(file_content(tmp_path, "index", 0), 32))
    assert (unit.magic, unit.index) == (Magic.NOOP, 1)


def test_terms_that_skip_are_followed() -> None:
    member = Member("n0", THREE)
    runs = (TermRun(1, 0), TermRun(4, 2), TermRun(9, 3))
    push = PushRequest(9, Phase.APPEND, -1, -1, 4, -1, runs=runs)
    member.replica.receive("n1", push, 0.0)
    assert member.log == [1, 1, 4, 9, 9]


def test_what_was_cut_does_not_come_back_when_an_equal_term_ends_where_it_began(
    tmp_path: Path,
) -> None:
    # The hardest case: new entries of the same term end exactly where an old record begins, and
    # the old one's index follows. Java would read on.
    store = reopen(tmp_path)
    store.append(1, Magic.NORMAL, [b"old %2d" % number for number in range(20)])
    store.begin_sync(HardState(1, "n0")).run()
    store.truncate_after(9)
    store.append(1, Magic.NORMAL, [b"new %2d" % number for number in range(10, 13)])
    wanted = everything(store)
    killed = tmp_path / "killed"
    shutil.copytree(tmp_path / "dledger-n0", killed / "dledger-n0")
    store.close()
    for base in (tmp_path, killed):
        again = reopen(base)
        assert everything(again) == wanted
        assert again.last_index == 12
        again.close()


@pytest.mark.parametrize(("left", "blank", "same_file"), [(56, 8, True), (55, 55, False)])
def test_an_empty_body_fits_into_56_bytes_and_not_into_55(
    left: int, blank: int, same_file: bool, tmp_path: Path
) -> None:
    store = reopen(tmp_path)
    store.append(1, Magic.NORMAL, [b"x" * (256 - 48 - left), b"", b"next"])
    places = [store.header_at(index).pos for index in range(3)]
    assert places == [0, 256 - left, 256] if same_file else [0, 256, 304]
    store.close()
    first = file_content(tmp_path, "data", 0)
    assert first[-blank:] == bytes.fromhex(f"ffffffff{blank:08x}") + bytes(blank - 8)


def test_a_folder_holds_one_record_of_the_vote_and_no_other_that_could_lag(tmp_path: Path) -> None:
    store = reopen(tmp_path)
    store.append(1, Magic.NORMAL, [b"a"])
    for term in (1, 2, 3):
        store.begin_sync(HardState(term, "n0")).run()
    store.close()
    names = {path.name for path in (tmp_path / "dledger-n0").iterdir()}
    # "unproven" holds no vote: it says that the folder was empty, until the group was asked.
    assert names == {"data", "index", "hard-state", "lock", "spare", "unproven"}


def test_javas_backup_of_its_term_file_is_not_believed(tmp_path: Path) -> None:
    # It lags by one write: the term in it may be one in which the node has voted since.
    shutil.copytree(GOLDEN / "tiny" / "n0", tmp_path, dirs_exist_ok=True)
    (tmp_path / "dledger-n0" / "currterm").unlink()
    assert (tmp_path / "dledger-n0" / "currterm.bak").exists()
    with pytest.raises(HardStateLost):
        reopen(tmp_path)


# --- read in its source ---------------------------------------------------------------------------


@pytest.mark.parametrize("phase", Phase)
def test_a_leader_of_an_older_term_moves_nothing(phase: Phase) -> None:
    # Java's follower obeys COMPARE, TRUNCATE and COMMIT of any sender and any term.
    member = Member("n0", THREE, [1] * 10, HardState(5, None, 4))
    member.replica.receive("n1", Heartbeat(5, 4, 1), 0.0)
    member.leaving(0.0)
    late = PushRequest(1, phase, 5, 1, 5, 9, next_term=2)
    member.replica.receive("n2", late, 0.0)
    assert member.leaving(0.0) == [("n2", HeartbeatResponse(5, 0))]
    assert member.log == [1] * 10
    assert member.committed == 4
    assert member.replica.state.leader == "n1"
    assert member.written == []


def test_a_restarted_leader_leads_again_only_in_a_new_term() -> None:
    # In Java it may be elected again in the same term: having lost what was not synced, it writes
    # other entries under equal indexes and terms, and no comparison finds them.
    group = Group([[], [], []])
    group.elect("n0")
    group.propose("n0", 5)
    group.run()
    term, log = group["n0"].term, group["n0"].log
    group.members["n0"] = Member("n0", THREE, log, HardState(term, "n0"), now=group.now)
    assert group["n0"].role is Role.FOLLOWER
    group.elect("n0")
    assert group["n0"].term == term + 1
    assert group["n0"].log == [*log, term + 1]


def test_what_was_cut_counts_no_more_in_elections() -> None:
    # Java goes on comparing with the end that the log had before.
    member = Member("n0", THREE, [1, 1, 2, 2, 2], HardState(5))
    cut = PushRequest(5, Phase.TRUNCATE, 1, 1, 1, -1, next_term=5)
    member.replica.receive("n1", cut, 0.0)
    member.sync(0.0)
    member.leaving(0.0)
    member.replica.receive("n2", VoteRequest(6, 1, 1, pre=True), LATER)
    [(_, answer)] = member.leaving(LATER)
    assert getattr(answer, "granted", None) is True
    stands_at = member.replica.next_deadline()  # the candidate that it granted goes first
    member.replica.tick(stands_at)
    asked = [message for _, message in member.leaving(stands_at)]
    assert asked == [VoteRequest(6, 1, 1, pre=True)] * 2


def test_a_member_with_a_higher_term_and_a_shorter_log_gets_back_in() -> None:
    # Java before 0.4 keeps it out for ever: its log loses every vote, its term refuses the leader.
    group = Group([[], [], []])
    group.elect("n1")
    group.propose("n1", 20)
    group.run()
    group.members["n0"] = Member("n0", THREE, [], HardState(30), now=group.now)
    group.pass_time(8 * TIMEOUT_S)
    [leader] = [name for name in THREE if group[name].role is Role.LEADER]
    assert leader != "n0"
    assert group["n0"].log == group[leader].log
    assert group["n0"].committed == group[leader].committed >= 20


def test_one_member_that_still_hears_the_old_leader_vetoes_no_election() -> None:
    # One such answer costs Java's candidate more than six seconds, however many voted for it.
    group = Group([[], [], [], [], []])
    group.elect("n0")
    group.silent = {"n0"}
    group.stand("n1")
    group["n2"].replica.receive("n0", Heartbeat(1, 0, 99), group.now)  # it answers first
    group.run()
    assert group["n1"].role is Role.LEADER
    assert group["n1"].term == 2
