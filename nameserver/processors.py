"""The name server's answers to requests."""

from collections.abc import Callable, Generator, Hashable
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Final

from nameserver.brokers import BrokerIdentity, Speaker
from nameserver.errors import RegistrationRefused
from nameserver.limits import MAX_ADDED_ROUTE_BYTES, MAX_DATA_VERSION_BYTES
from nameserver.routes import BROKER_TIMEOUT_S, RouteTable
from nameserver.settings import ORDER_TOPIC_NAMESPACE, SettingTable
from remoting.bodies.json_object import JsonObject
from remoting.bodies.pieces import pieces
from remoting.bodies.registration import (
    COMPLETE_FIELD,
    decode_registration_in_steps,
    registration_crc,
)
from remoting.bodies.route import (
    TopicRoute,
    decode_route_in_steps,
    encode_cluster_info_in_steps,
    encode_route,
    encode_route_in_steps,
)
from remoting.bodies.table import (
    encode_member_group,
    encode_properties_text,
    encode_table,
    encode_topic_list,
)
from remoting.bodies.topic_config import DataVersion
from remoting.net.answering import Steps
from remoting.net.dispatch import DispatchTable
from remoting.wire.codes import RequestCode, ResponseCode
from remoting.wire.command import Command
from remoting.wire.loose_json import compact_json
from remoting.wire.signature import ACCESS_KEY, Credentials, Signer

# Bits of a topic's system flag.
_UNIT: Final = 1
_UNIT_SUBSCRIPTION: Final = 2

# Lists kept at once; besides the lists of clusters there are five.
_MAX_LISTS: Final = 8

_TOPICS_A_STEP: Final = 512


@dataclass(frozen=True, slots=True)
class Asker:
    """The origin of a request, and its time in seconds on the server's clock."""

    speaker: Speaker
    now: float


class _Lists:
    """Bodies that list topics or brokers, made once for each change of the routes.

    A list of 200 000 topics takes a tenth of a second; a client may request it repeatedly.
    """

    def __init__(self, routes: RouteTable) -> None:
        self._routes = routes
        self._changes = 0
        self._bodies: dict[Hashable, bytes] = {}

    def body(
        self, what: Hashable, steps: Generator[None, None, bytes]
    ) -> Generator[None, None, bytes]:
        """Return the body of `what`, made by `steps` unless it is known."""
        body = self._known(what)
        if body is None:
            changes = self._routes.changes
            body = yield from steps
            if changes == self._routes.changes:
                self._bodies[what] = body
        return body

    def topics(
        self, what: Hashable, steps: Generator[None, None, list[str]]
    ) -> Generator[None, None, bytes]:
        """Return the body of `what`, a list of the topics from `steps`, unless it is known."""
        return self.body(what, _topic_list(steps))

    def _known(self, what: Hashable) -> bytes | None:
        if self._changes != self._routes.changes or len(self._bodies) >= _MAX_LISTS:
            self._changes = self._routes.changes
            self._bodies.clear()
        return self._bodies.get(what)


def _topic_list(steps: Generator[None, None, list[str]]) -> Generator[None, None, bytes]:
    names: list[str] = []
    for piece in pieces((yield from steps), _TOPICS_A_STEP):
        names += map(compact_json, piece)
        yield
    return f'{{"topicList":[{",".join(names)}]}}'.encode()


class Processors:
    """Answers requests from a route table and a table of settings.

    Args:
        routes: the registrations of brokers.
        settings: the settings of operators.
        may_change: returns whether a host may register brokers and change routes and settings.
        admin: returns the user whose signature such requests need; None if they need none.
    """

    def __init__(
        self,
        routes: RouteTable,
        settings: SettingTable,
        may_change: Callable[[str], bool] = lambda _host: True,
        admin: Callable[[], Credentials | None] = lambda: None,
    ) -> None:
        self._admin = admin
        self._routes = routes
        self._settings = settings
        self._may_change = may_change
        self._lists = _Lists(routes)
        self.table: DispatchTable[Asker] = DispatchTable()
        code = RequestCode
        for request_code, function in (
            (code.GET_ROUTEINFO_BY_TOPIC, self._route),
            (code.GET_BROKER_MEMBER_GROUP, self._member_group),
            (code.GET_BROKER_CLUSTER_INFO, self._cluster),
            (code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, self._topics),
            (code.GET_TOPICS_BY_CLUSTER, self._topics_of_cluster),
            (code.GET_SYSTEM_TOPIC_LIST_FROM_NS, self._system_topics),
            (code.GET_UNIT_TOPIC_LIST, self._unit_topics),
            (code.GET_HAS_UNIT_SUB_TOPIC_LIST, self._unit_topics),
            (code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST, self._unit_topics),
            (code.GET_KV_CONFIG, self._get_setting),
            (code.GET_KVLIST_BY_NAMESPACE, self._settings_of),
            (code.GET_NAMESRV_CONFIG, self._configuration),
        ):
            self.table.add(request_code, function)
        for request_code, change in (
            (code.REGISTER_BROKER, self._register),
            (code.UNREGISTER_BROKER, self._unregister),
            (code.QUERY_DATA_VERSION, self._data_version),
            (code.BROKER_HEARTBEAT, self._heartbeat),
            (code.DELETE_TOPIC_IN_NAMESRV, self._delete_topic),
            (code.REGISTER_TOPIC_IN_NAMESRV, self._register_topic),
            (code.WIPE_WRITE_PERM_OF_BROKER, self._wipe_write),
            (code.ADD_WRITE_PERM_OF_BROKER, self._add_write),
            (code.PUT_KV_CONFIG, self._put_setting),
            (code.DELETE_KV_CONFIG, self._delete_setting),
            (code.UPDATE_NAMESRV_CONFIG, self._refuse_configuration),
        ):
            self.table.add(request_code, partial(self._change, change))

    def _change(
        self,
        function: Callable[[Asker, Command], Command | Steps | None],
        asker: Asker,
        command: Command,
    ) -> Command | Steps | None:
        """Answer a request that changes routes or settings, or refuse its host."""
        if (why := self._why_not(asker.speaker.host, command)) is None:
            return function(asker, command)
        return command.reply(ResponseCode.NO_PERMISSION, remark=why)

    def _why_not(self, host: str, command: Command) -> str | None:
        if not self._may_change(host):
            return f"{host} may change nothing here: add it to the name server's --changes-from"
        admin = self._admin()
        if admin is None:
            return None
        signer = Signer(admin.secret_key.encode())  # brokers register every 30 s
        # The signature first: the time that it takes must not tell the administrator's name.
        if signer.has_signed(command) and command.fields.get(ACCESS_KEY) == admin.access_key:
            return None
        return "not permitted: only brokers and operators with the file of --access change this"

    # Routes

    def _route(self, _asker: Asker, command: Command) -> Command | Steps:
        topic = command.text("topic")
        if self._routes.places.is_long(topic):
            return self._long_route(command, topic)
        route = self._routes.route(topic)
        if route is None:
            return command.reply(
                ResponseCode.TOPIC_NOT_EXIST,
                remark=f"No topic route info in name server for the topic: {topic:.255}",
            )
        route.order_topic_conf = self._settings.get(ORDER_TOPIC_NAMESPACE, topic)
        return command.reply(body=encode_route(route))

    def _long_route(self, command: Command, topic: str) -> Steps:
        order = TopicRoute(order_topic_conf=self._settings.get(ORDER_TOPIC_NAMESPACE, topic))
        parts = chain([order], self._routes.route_in_parts(topic))
        return command.reply(body=(yield from encode_route_in_steps(parts)))

    def _cluster(self, _asker: Asker, command: Command) -> Steps:
        body = yield from self._lists.body("cluster", self._cluster_body())
        return command.reply(body=body)

    def _cluster_body(self) -> Generator[None, None, bytes]:
        info = yield from self._routes.cluster_info_in_steps()
        return (yield from encode_cluster_info_in_steps(info))

    def _topics(self, _asker: Asker, command: Command) -> Steps:
        body = yield from self._lists.topics("topics", self._routes.topics_in_steps())
        return command.reply(body=body)

    def _topics_of_cluster(self, _asker: Asker, command: Command) -> Steps:
        cluster = command.text("cluster")
        steps = self._routes.topics_in_steps(lambda of, _queues: of == cluster)
        body = yield from self._lists.topics(("topics of", cluster), steps)
        return command.reply(body=body)

    def _system_topics(self, _asker: Asker, command: Command) -> Steps:
        """List the names of clusters and brokers: brokers make topics of these names for tools'
        probes.

        A name without a topic, because its characters are not allowed in topics, is left out: tools
        take the whole list for topics.
        """
        info = yield from self._routes.cluster_info_in_steps()
        address = next((data.master for data in info.brokers.values() if data.master), None)
        names = dict.fromkeys([*info.clusters, *info.brokers])
        topics = [name for name in names if self._routes.has_topic(name)]
        return command.reply(body=encode_topic_list(topics, address))

    def _unit_topics(self, _asker: Asker, command: Command) -> Steps:
        mask, value = {
            RequestCode.GET_UNIT_TOPIC_LIST: (_UNIT, _UNIT),
            RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: (_UNIT_SUBSCRIPTION, _UNIT_SUBSCRIPTION),
        }.get(RequestCode(command.code), (_UNIT | _UNIT_SUBSCRIPTION, _UNIT_SUBSCRIPTION))
        steps = self._routes.topics_in_steps(
            lambda _of, queues: queues.topic_system_flag & mask == value
        )
        body = yield from self._lists.topics((mask, value), steps)
        return command.reply(body=body)

    def _delete_topic(self, _asker: Asker, command: Command) -> Command:
        self._routes.delete_topic(command.text("topic"), command.fields.get("clusterName") or None)
        return command.reply()

    def _register_topic(self, _asker: Asker, command: Command) -> Steps:
        route = yield from decode_route_in_steps(command.body, MAX_ADDED_ROUTE_BYTES)
        self._routes.add_queues(command.text("topic"), route.queues)
        return command.reply()

    # Brokers

    def _register(self, asker: Asker, command: Command) -> Steps:
        crc = command.int32("bodyCrc32", 0)
        if crc not in (0, registration_crc(command.body)):
            raise RegistrationRefused("crc32 not match: the body was damaged, send it again")
        compressed = command.boolean("compressed")
        registration = yield from decode_registration_in_steps(command.body, compressed=compressed)
        master = yield from self._routes.register_in_steps(
            _identity(command),
            registration,
            speaker=asker.speaker,
            now=asker.now,
            complete=command.boolean(COMPLETE_FIELD),
            ha_address=command.fields.get("haServerAddr", ""),
            direct_address=command.fields.get("directAddr", ""),
            proof=command.fields.get("groupProof", ""),
            timeout_s=_timeout_s(command, "heartbeatTimeoutMillis"),
        )
        fields = {}
        if master is not None:
            fields = {"haServerAddr": master.ha_address, "masterAddr": master.identity.address}
        orders = self._settings.all_of(ORDER_TOPIC_NAMESPACE)
        return command.reply(fields=fields, body=encode_table(orders) if orders else b"")

    def _unregister(self, asker: Asker, command: Command) -> Command:
        self._routes.unregister(_identity(command), asker.speaker)
        return command.reply()

    def _data_version(self, asker: Asker, command: Command) -> Command:
        """Answer whether a broker must register again; if not, this is its sign of life."""
        told = DataVersion.from_json(
            JsonObject.parse("data version", command.body, MAX_DATA_VERSION_BYTES)
        )
        identity = _identity(command)
        live = self._routes.brokers.by_address.get(identity.address)
        is_known = live is not None and live.identity == identity
        changed = live is None or not is_known or live.data_version != told
        if not changed:
            changed = not self._routes.refresh(identity.address, asker.speaker, asker.now)
        body = b"" if live is None else compact_json(live.data_version.to_json()).encode()
        return command.reply(fields={"changed": "true" if changed else "false"}, body=body)

    def _heartbeat(self, asker: Asker, command: Command) -> Command:
        address = command.text("brokerAddr")
        self._routes.refresh(address, asker.speaker, asker.now)
        if command.boolean("ending"):
            self._routes.ends(address, asker.speaker.connection)
        return command.reply()

    def _member_group(self, _asker: Asker, command: Command) -> Command:
        data = self._routes.broker(command.text("brokerName"))
        return command.reply(body=b"" if data is None else encode_member_group(data))

    def _wipe_write(self, _asker: Asker, command: Command) -> Command:
        count = self._routes.set_write_wiped(command.text("brokerName"), True)
        return command.reply(fields={"wipeTopicCount": str(count)})

    def _add_write(self, _asker: Asker, command: Command) -> Command:
        count = self._routes.set_write_wiped(command.text("brokerName"), False)
        return command.reply(fields={"addTopicCount": str(count)})

    # Settings

    def _put_setting(self, _asker: Asker, command: Command) -> Command:
        self._settings.put(command.text("namespace"), command.text("key"), command.text("value"))
        return command.reply()

    def _get_setting(self, _asker: Asker, command: Command) -> Command:
        namespace, key = command.text("namespace"), command.text("key")
        value = self._settings.get(namespace, key)
        if value is None:
            return command.reply(
                ResponseCode.QUERY_NOT_FOUND,
                remark=f"No config item, Namespace: {namespace:.100} Key: {key:.255}",
            )
        return command.reply(fields={"value": value})

    def _delete_setting(self, _asker: Asker, command: Command) -> Command:
        self._settings.delete(command.text("namespace"), command.text("key"))
        return command.reply()

    def _settings_of(self, _asker: Asker, command: Command) -> Command:
        namespace = command.text("namespace")
        table = self._settings.all_of(namespace)
        if not table:
            return command.reply(
                ResponseCode.QUERY_NOT_FOUND,
                remark=f"No config item, Namespace: {namespace:.100}",
            )
        return command.reply(body=encode_table(table))

    def _configuration(self, _asker: Asker, command: Command) -> Command:
        text = {"brokerTimeoutSeconds": f"{BROKER_TIMEOUT_S:.0f}"}
        return command.reply(body=encode_properties_text(text))

    def _refuse_configuration(self, _asker: Asker, command: Command) -> Command:
        return command.reply(
            ResponseCode.NO_PERMISSION,
            remark="the name server has no settings to change while it runs: restart it instead",
        )


def _identity(command: Command) -> BrokerIdentity:
    return BrokerIdentity(
        command.text("clusterName"),
        command.text("brokerName"),
        command.integer("brokerId"),
        command.text("brokerAddr"),
    )


def _timeout_s(command: Command, name: str) -> float:
    """Return a timeout in milliseconds from the field `name`, or RocketMQ's."""
    asked_ms = command.integer(name, 0)
    return asked_ms / 1000 if asked_ms > 0 else BROKER_TIMEOUT_S
