"""Random histories of clients and elections: what a proxy keeps of its clients, in virtual time.

The leaders are a model: each knows what it was told, and a new one knows nothing. Whatever happens
meanwhile, a leader knows what a client wants when that client asks it for messages, and nothing is
left of clients that are gone.
"""

from __future__ import annotations

import json
from random import Random

import pytest
import trio
from trio.testing import MockClock

from dledger_mq.connection.topic_route import ClientRoute
from proxy.clients.sessions import EXPIRE_S
from proxy.wire.messages_pb2 import (
    Code,
    HeartbeatRequest,
    NotifyClientTerminationRequest,
)
from remoting.bodies.message_queue import MessageQueue
from remoting.wire.codes import RequestCode, ResponseCode
from remoting.wire.command import Command
from tests.examples import seeds
from tests.proxy.grpc_client import GrpcClient
from tests.proxy.real_proxy import receiving
from tests.proxy.scripted_brokers import ScriptedBrokers, ScriptedProxy, scripted_proxy
from tests.proxy.test_proxy_lite import ADD, SET, subscribing

PARENT = "sessions"
NAMES = ("a", "b", "c", "d")
_STEPS = 40
_CLIENTS = 3

# Longer than the silence after which a client is forgotten, with the proxy's pause between looks.
_GONE_S = EXPIRE_S + 10


class ModelLeaders:
    """The leaders of one broker, one after the other.

    Attributes:
        leader: the address of that which leads.
        known: what it was told of each client.
        popped: what was known of a client at each pop.
    """

    def __init__(self, brokers: ScriptedBrokers) -> None:
        self._brokers = brokers
        self._number = 0
        self.leader = ""
        self.known: dict[str, set[str]] = {}
        self.popped: list[tuple[str, set[str]]] = []
        brokers.types = {PARENT: "LITE"}
        brokers.answers[RequestCode.LITE_SUBSCRIPTION_CTL] = self._subscribe
        brokers.answers[RequestCode.POP_LITE_MESSAGE] = self._pop
        self.elect()

    def elect(self) -> None:
        """Let another member lead, which was told nothing."""
        self._number += 1
        self.leader, self.known = f"broker:{self._number}", {}
        queues = (MessageQueue(PARENT, "broker-a", 0),)
        self._brokers.route(ClientRoute(PARENT, queues, queues, {"broker-a": self.leader}))

    def _refusal(self, command: Command) -> Command | None:
        if self._brokers.address == self.leader:
            return None
        return command.reply(ResponseCode.SLAVE_NOT_AVAILABLE, remark="another one leads")

    def _subscribe(self, command: Command) -> Command:
        refusal = self._refusal(command)
        if refusal is not None:
            return refusal
        (told,) = json.loads(command.body)["subscriptionSet"]
        names, client_id = set(told["liteTopicSet"]), told["clientId"]
        known = self.known.get(client_id, set())
        match told["action"]:
            case "PARTIAL_ADD":
                known = known | names
            case "PARTIAL_REMOVE":
                known = known - names
            case "COMPLETE_ADD":
                known = names
            case _:
                known = set()
        self.known[client_id] = known
        return command.reply()

    def _pop(self, command: Command) -> Command:
        client_id = command.fields["clientId"]
        self.popped.append((client_id, self.known.get(client_id, set())))
        return self._refusal(command) or command.reply(ResponseCode.POLLING_TIMEOUT)


class Agent:
    """A consumer of lite topics.

    Attributes:
        wants: what it was answered that it has subscribed to.
    """

    def __init__(self, client: GrpcClient, client_id: str) -> None:
        self.client, self.client_id = client, client_id
        self.wants: set[str] = set()


async def _subscribes(random: Random, agent: Agent) -> None:
    action = random.choice((ADD, SET))
    names = set(random.sample(NAMES, random.randint(1, 3)))
    done = await agent.client.unary(subscribing(*names, action=action))
    assert done.status.code == Code.OK, done
    agent.wants = names if action == SET else agent.wants | names


async def _receives(leaders: ModelLeaders, agent: Agent) -> None:
    leaders.popped.clear()
    await agent.client.receive(receiving(PARENT, "agents"))
    assert leaders.popped
    client_id, known = leaders.popped[-1]
    assert (client_id, known) == (agent.client_id, agent.wants)


async def _leaves_while_it_subscribes(
    random: Random, leaders: ModelLeaders, brokers: ScriptedBrokers, agent: Agent
) -> None:
    """The answers of the leader are late: the client is gone before they come."""
    brokers.slow_s[RequestCode.LITE_SUBSCRIPTION_CTL] = 1.0
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_subscribes, random, agent)
        await trio.sleep(0.5)
        await agent.client.unary(NotifyClientTerminationRequest())
    del brokers.slow_s[RequestCode.LITE_SUBSCRIPTION_CTL]
    agent.wants = set()
    await trio.sleep(3)
    assert not leaders.known.get(agent.client_id)


async def _step(random: Random, leaders: ModelLeaders, here: ScriptedProxy, agent: Agent) -> None:
    brokers = here.brokers
    match random.choice(("subscribe", "receive", "receive", "elect", "change", "leave", "wait")):
        case "subscribe":
            await _subscribes(random, agent)
        case "receive" if agent.wants:
            await _receives(leaders, agent)
        case "elect":
            leaders.elect()
        case "change":
            # The old leader takes a change, and its answer comes after the election.
            brokers.slow_s[RequestCode.LITE_SUBSCRIPTION_CTL] = 0.2
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_subscribes, random, agent)
                await trio.sleep(0.1)
                leaders.elect()
            del brokers.slow_s[RequestCode.LITE_SUBSCRIPTION_CTL]
            await _receives(leaders, agent)
        case "leave":
            await _leaves_while_it_subscribes(random, leaders, brokers, agent)
        case _:
            await trio.sleep(random.uniform(0, EXPIRE_S / 4))


@pytest.mark.parametrize("seed", seeds(30, 2))
async def test_leaders_know_what_clients_want_and_nothing_is_left_of_those_that_are_gone(
    seed: int, autojump_clock: MockClock
) -> None:
    random = Random(seed)
    async with scripted_proxy() as here:
        leaders = ModelLeaders(here.brokers)
        agents = [
            Agent(await here.client(client_id), client_id)
            for client_id in (f"agent-{number}" for number in range(_CLIENTS))
        ]
        for _ in range(_STEPS):
            await _step(random, leaders, here, random.choice(agents))
            for agent in agents:
                await agent.client.unary(HeartbeatRequest())
        await trio.sleep(_GONE_S)
        assert len(here.proxy.sessions) == 0
        assert not any(leaders.known.values())
        lite = here.proxy._service._receives._lite
        assert (lite._wanted, lite._kept) == ({}, 0)
