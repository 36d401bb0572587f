from dataclasses import replace

import pytest

from dledger.core.messages import Heartbeat, Message
from jepsen_like.chance import Chance
from jepsen_like.simulation.event_loop import EventLoop
from jepsen_like.simulation.swarm import NetworkStyle
from jepsen_like.simulation.virtual_network import VirtualNetwork

CALM = NetworkStyle(
    connections=False,
    ordered=False,
    least_delay_s=0.01,
    mean_delay_s=0.01,
    loss=0.0,
    duplication=0.0,
    one_way_cuts=0.0,
    cuts_hold=False,
    leader_cuts=0.0,
)


class Listener:
    """Notes the rounds of the heartbeats that arrive, and what becomes of its connections."""

    def __init__(self) -> None:
        self.is_up = True
        self.rounds: list[int] = []
        self.changes: list[str] = []
        self.follows: str | None = None

    def deliver(self, sender: str, message: Message) -> None:
        assert isinstance(message, Heartbeat)
        self.rounds.append(message.round)

    def peer_lost(self, peer: str) -> None:
        self.changes.append(f"lost {peer}")

    def peer_found(self, peer: str) -> None:
        self.changes.append(f"found {peer}")

    def peer_gone(self, peer: str) -> None:
        self.changes.append(f"gone {peer}")

    @property
    def leader(self) -> str | None:
        return self.follows


class Two:
    """Nodes a and b on a network of some style."""

    def __init__(self, **style: object) -> None:
        self.loop = EventLoop()
        self.network = VirtualNetwork(self.loop, replace(CALM, **style), Chance(1, "a test"))  # type: ignore[arg-type]
        self.a, self.b = Listener(), Listener()
        self.network.add("a", self.a)
        self.network.add("b", self.b)

    def send(self, *rounds: int) -> None:
        for number in rounds:
            self.network.send("a", "b", Heartbeat(1, 0, number))

    def settle(self) -> None:
        self.loop.run_until(self.loop.now + 10.0)


def test_messages_arrive_after_a_while_and_in_any_order() -> None:
    two = Two()
    two.send(*range(50))
    two.loop.run_until(0.01)
    assert two.b.rounds == []
    two.settle()
    assert sorted(two.b.rounds) == list(range(50))
    assert two.b.rounds != sorted(two.b.rounds)


@pytest.mark.parametrize("style", [{"ordered": True}, {"ordered": True, "connections": True}])
def test_ordered_messages_stay_in_order(style: dict[str, bool]) -> None:
    two = Two(**style)
    two.send(*range(50))
    two.settle()
    assert two.b.rounds == list(range(50))


def test_messages_are_lost_and_repeated_as_often_as_asked() -> None:
    two = Two(loss=0.3, duplication=0.3)
    two.send(*range(1000))
    two.settle()
    assert 600 < len(set(two.b.rounds)) < 800
    assert 120 < len(two.b.rounds) - len(set(two.b.rounds)) < 300
    assert two.network.lost == 1000 - len(set(two.b.rounds))


def test_a_cut_has_a_direction() -> None:
    two = Two()
    two.network.cut("a", "b")
    two.send(1)
    two.network.send("b", "a", Heartbeat(1, 0, 2))
    two.settle()
    assert (two.b.rounds, two.a.rounds) == ([], [2])


def test_what_a_cut_link_holds_arrives_when_it_is_healed() -> None:
    two = Two(cuts_hold=True, ordered=True)
    two.network.cut("a", "b")
    two.send(1, 2, 3)
    two.settle()
    assert two.b.rounds == []
    two.network.heal()
    two.settle()
    assert two.b.rounds == [1, 2, 3]


def test_a_cut_connection_is_lost_with_what_was_on_it_and_made_again() -> None:
    two = Two(connections=True, ordered=True)
    two.send(1)
    two.network.cut("a", "b")
    two.settle()
    assert two.a.changes == ["lost b"]
    two.send(2)
    two.network.heal()
    two.settle()
    assert two.a.changes == ["lost b", "found b"]
    two.send(3)
    two.settle()
    assert two.b.rounds == [3]


def test_the_end_of_a_process_breaks_its_connections_both_ways() -> None:
    two = Two(connections=True, ordered=True)
    two.send(1)
    two.b.is_up = False
    two.network.process_ended("b")
    assert (two.a.changes, two.b.changes) == (["lost b"], ["lost a"])
    two.settle()
    assert two.b.rounds == []
    two.b.is_up = True
    two.network.examine_all()
    two.settle()
    assert two.a.changes == ["lost b", "found b"]


def test_events_run_in_the_order_of_their_times_and_then_as_given() -> None:
    loop, order = EventLoop(), list[str]()
    loop.at(2.0, order.append, "c")
    loop.at(1.0, order.append, "a")
    loop.after(1.0, order.append, "b")
    loop.at(5.0, order.append, "later")
    loop.run_until(3.0)
    assert (order, loop.now, loop.count) == (["a", "b", "c"], 3.0, 3)
    loop.at(1.0, order.append, "past")
    loop.run_until(3.0)
    assert order[-1] == "past"


def test_a_stream_of_choices_depends_on_seed_and_purpose_and_on_nothing_else() -> None:
    def draws(seed: int, purpose: str) -> list[float]:
        chance = Chance(seed, purpose)
        return [chance.random() for _ in range(3)]

    assert draws(1, "crashes") == draws(1, "crashes")
    assert draws(1, "crashes") != draws(2, "crashes")
    assert draws(1, "crashes") != draws(1, "pauses")
    assert draws(1, "crashes")[0] == pytest.approx(0.5155560623600759)
