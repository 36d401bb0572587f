"""The application of the broker tier: members run the broker."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from broker.log.entry import FORMAT_VERSION
from broker.topics.names import FIRST_TOPICS
from broker.topics.settings import topic_members
from jepsen_like.chance import Chance
from jepsen_like.simulation.broker.asking import ClientRun
from jepsen_like.simulation.broker.broker_clients import BrokerClients
from jepsen_like.simulation.broker.broker_member import ROOT, BrokerMember
from jepsen_like.simulation.broker.broker_swarm import BrokerStyle
from jepsen_like.simulation.broker.client_history import ClientHistory
from jepsen_like.simulation.broker.log_model import COMMIT, GIVE_UP, ROLLBACK, LogModel, OffsetKey
from jepsen_like.simulation.broker.lost_queues import LostQueues
from jepsen_like.simulation.broker.queue_disk import VirtualQueueDisk
from jepsen_like.simulation.broker.reference import Reference
from jepsen_like.simulation.broker.served_broker import CHECKS, Failures, ServedBroker
from jepsen_like.simulation.clients import History
from jepsen_like.simulation.coverage import Coverage
from jepsen_like.simulation.event_loop import EventLoop
from jepsen_like.simulation.invariants import Invariants
from jepsen_like.simulation.virtual_disk import VirtualDisk
from jepsen_like.simulation.virtual_node import Application, VirtualNode
from jepsen_like.simulation.watched_machine import WatchedMachine

# The loggers on which the broker reports its own defects.
LOGGERS = ("broker", "remoting")


class BrokerApplication(Application):
    def __init__(
        self,
        seed: int,
        style: BrokerStyle,
        history: History,
        invariants: Invariants,
        coverage: Coverage,
        loop: EventLoop,
    ) -> None:
        super().__init__(history, invariants)
        self._seed = seed
        self._style = style
        self._coverage = coverage
        self._loop = loop
        self._told = ClientHistory()
        self._furthest: dict[str, int] = {}
        self._lives: dict[str, int] = {}
        self._members: dict[str, BrokerMember] = {}
        self._brokers: dict[str, ServedBroker] = {}
        self._failures = Failures()
        self._losses: LostQueues | None = None
        run = ClientRun(seed, self._told, coverage, loop)
        self._clients = BrokerClients(run, style, self._brokers)
        model = LogModel(
            {name: topic_members(config) for name, config in FIRST_TOPICS.items()},
            self._clients.raw.malformed,
            CHECKS.max_checks,
            not style.weights["append raw"],
            self._offset_taken,
            self._pop_taken,
        )
        self._reference = Reference(history.entries, model)
        self._clients.reference = self._reference

    def machine(self, name: str, disk: VirtualDisk) -> BrokerMember:
        member = BrokerMember(
            name,
            WatchedMachine(name, self._history, self._invariants),
            VirtualQueueDisk(disk, ROOT),
            self._reference,
            self._furthest,
            self._coverage,
        )
        self._members[name] = member
        return member

    def started(self, node: VirtualNode) -> None:
        process = node.process
        assert process is not None
        self._lives[node.name] = life = self._lives.get(node.name, 0) + 1
        self._brokers[node.name] = ServedBroker(
            node,
            process,
            self._members[node.name],
            self._loop,
            Chance(self._seed, f"broker of {node.name}, {life}"),
            self._coverage,
            self._failures,
            self._read_by_all,
        )

    def _offset_taken(self, key: OffsetKey, offset: int, born: int) -> None:
        self._told.offset_taken(offset, key[1], born)
        self._clients.remade.offset_taken(self._reference.model, key, offset)

    def _pop_taken(self, key: OffsetKey, first: int, following: int, given: Sequence[int]) -> None:
        self._clients.remade.pop_taken(self._reference.model, key, first, following, given)

    def _read_by_all(self) -> int | None:
        return FORMAT_VERSION if self._loop.now >= self._style.updated_s else None

    def begin(self, nodes: Sequence[VirtualNode]) -> None:
        for name in LOGGERS:
            logging.getLogger(name).addHandler(self._failures)
        every_s = self._style.lose_queues_every_s
        self._losses = LostQueues(self._seed, every_s, nodes, self._loop, self._coverage)
        self._losses.start()
        self._clients.start()

    def stop(self) -> None:
        self._clients.stop()
        if self._losses is not None:
            self._losses.stop()

    def is_settled(self, members: Sequence[VirtualNode]) -> bool:
        return all(
            self._brokers[node.name].is_serving
            and not self._members[node.name].broker.queues.damaged
            and (self._brokers[node.name].has_delivered or not self._brokers[node.name].leads)
            for node in members
        )

    def end(self) -> None:
        for name in LOGGERS:
            logging.getLogger(name).removeHandler(self._failures)

    def check(self, members: Sequence[VirtualNode]) -> None:
        for node in members:
            member = self._members[node.name]
            member.look_at_all()
            member.check_saved()
        self._told.check(self._reference.model)
        self._clients.ordered.check(self._reference.model)
        self._clients.operators.check(self._reference.model)
        self._clients.guarded.check(self._reference.model)
        self._coverage.count("acknowledged messages", len(self._told.stored))
        model = self._reference.model
        self._coverage.count("logs raised to the newest format", model.format == FORMAT_VERSION)
        self._coverage.count("messages that came again", model.copies.total())
        self._coverage.count("delayed messages delivered", model.delivered)
        self._coverage.count("delayed messages dropped", len(model.dropped))
        ends = list(model.ended.values())
        self._coverage.count("transactions committed", ends.count(COMMIT))
        self._coverage.count("transactions rolled back", ends.count(ROLLBACK))
        self._coverage.count("transactions given up", ends.count(GIVE_UP))
