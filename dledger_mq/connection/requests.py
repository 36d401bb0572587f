"""The requests of this client. The names of the fields are RocketMQ's."""

from collections.abc import Mapping, Sequence
from typing import Final

from dledger_mq.connection.topic_route import DEFAULT_QUEUE_COUNT
from remoting.bodies.consumer_group import QueueLock, encode_queue_lock
from remoting.bodies.heartbeat import Heartbeat, SubscriptionData, encode_heartbeat
from remoting.bodies.message_queue import MessageQueue
from remoting.bodies.table import encode_properties_text
from remoting.bodies.topic_config import TopicConfig
from remoting.message.properties import encode_properties, properties_text
from remoting.message.topic_names import TEMPLATE_TOPIC
from remoting.wire.codes import RequestCode
from remoting.wire.command import ONEWAY_FLAG, Command
from remoting.wire.loose_json import compact_json

# Bits of a pull's system flag.
PULL_MAY_BE_HELD: Final = 2
PULL_HAS_SUBSCRIPTION: Final = 4


def command(
    code: RequestCode, body: bytes = b"", flag: int = 0, /, **fields: str | int | bool
) -> Command:
    """Make a request whose fields are written as on the wire: text, digits, true or false."""
    written = {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in fields.items()
    }
    return Command(code, written, body, flag=flag)


def send(
    group: str,
    queue: MessageQueue,
    body: bytes,
    properties: str,
    *,
    system_flag: int,
    flag: int,
    born_ms: int,
    batch: bool = False,
    oneway: bool = False,
) -> Command:
    """Make a send (310), or a send of a batch (320).

    `body` is as stored: compressed if `system_flag` says so (see `remoting.message`), or the
    records of a batch. `flag` is the user's number.
    """
    return Command(
        RequestCode.SEND_BATCH_MESSAGE if batch else RequestCode.SEND_MESSAGE_V2,
        {
            "a": group,
            "b": queue.topic,
            "c": TEMPLATE_TOPIC,
            "d": str(DEFAULT_QUEUE_COUNT),
            "e": str(queue.queue_id),
            "f": str(system_flag),
            "g": str(born_ms),
            "h": str(flag),
            "i": properties,
            "j": "0",
            "k": "false",
            "m": "true" if batch else "false",
        },
        body,
        flag=ONEWAY_FLAG if oneway else 0,
    )


def pull(
    group: str,
    queue: MessageQueue,
    offset: int,
    wanted: SubscriptionData,
    *,
    most: int,
    hold_ms: int,
) -> Command:
    """Make a pull (11). The broker may hold it for `hold_ms` if there is no message."""
    flags = PULL_HAS_SUBSCRIPTION
    if hold_ms:
        flags |= PULL_MAY_BE_HELD
    return command(
        RequestCode.PULL_MESSAGE,
        consumerGroup=group,
        topic=queue.topic,
        queueId=queue.queue_id,
        queueOffset=offset,
        maxMsgNums=most,
        sysFlag=flags,
        commitOffset=-1,
        suspendTimeoutMillis=hold_ms,
        subscription=wanted.expression,
        subVersion=wanted.version,
        expressionType=wanted.expression_type,
    )


def route(topic: str) -> Command:
    return command(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic=topic)


def cluster_info() -> Command:
    return Command(RequestCode.GET_BROKER_CLUSTER_INFO)


def topic_list() -> Command:
    return Command(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)


def query_offset(group: str, queue: MessageQueue) -> Command:
    """Ask for a group's committed offset; the answer is 22, not 0, if it never committed one."""
    return command(
        RequestCode.QUERY_CONSUMER_OFFSET,
        consumerGroup=group,
        topic=queue.topic,
        queueId=queue.queue_id,
        setZeroIfNotFound=False,
    )


def update_offset(group: str, queue: MessageQueue, offset: int) -> Command:
    return command(
        RequestCode.UPDATE_CONSUMER_OFFSET,
        consumerGroup=group,
        topic=queue.topic,
        queueId=queue.queue_id,
        commitOffset=offset,
    )


def max_offset(queue: MessageQueue) -> Command:
    """Ask for the queue offset of the next message to be stored."""
    return _queue_question(RequestCode.GET_MAX_OFFSET, queue)


def min_offset(queue: MessageQueue) -> Command:
    """Ask for the first queue offset that a queue still holds."""
    return _queue_question(RequestCode.GET_MIN_OFFSET, queue)


def search_offset(queue: MessageQueue, timestamp_ms: int) -> Command:
    """Ask for the first queue offset stored at a time or later."""
    code = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
    return _queue_question(code, queue, timestamp=timestamp_ms)


def heartbeat(content: Heartbeat) -> Command:
    return Command(RequestCode.HEART_BEAT, body=encode_heartbeat(content))


def unregister(client_id: str, *, producer_group: str = "", consumer_group: str = "") -> Command:
    groups = {"producerGroup": producer_group, "consumerGroup": consumer_group}
    given = {name: group for name, group in groups.items() if group}
    return command(RequestCode.UNREGISTER_CLIENT, clientID=client_id, **given)


def consumer_list(group: str) -> Command:
    return command(RequestCode.GET_CONSUMER_LIST_BY_GROUP, consumerGroup=group)


def recall(topic: str, handle: str) -> Command:
    return command(RequestCode.RECALL_MESSAGE, topic=topic, recallHandle=handle)


def end_transaction(
    group: str,
    *,
    half_offset: int,
    physical_offset: int,
    message_id: str,
    how: int,
    is_answer: bool = False,
) -> Command:
    """End a transaction; `how` is one of the transaction flags of `remoting.message.record`.

    `is_answer`: the broker has asked, and wants no reply.
    """
    return command(
        RequestCode.END_TRANSACTION,
        b"",
        ONEWAY_FLAG if is_answer else 0,
        producerGroup=group,
        tranStateTableOffset=half_offset,
        commitLogOffset=physical_offset,
        commitOrRollback=int(how),
        fromTransactionCheck=is_answer,
        msgId=message_id,
        transactionId=message_id,
    )


def check_condition(client_id: str, group: str, wanted: SubscriptionData) -> Command:
    """Ask a broker whether it can filter by a condition."""
    body = {"clientId": client_id, "group": group, "subscriptionData": wanted.to_json()}
    return Command(RequestCode.CHECK_CLIENT_CONFIG, body=compact_json(body).encode())


def reply(queue: MessageQueue, body: bytes, properties: Mapping[str, str]) -> Command:
    """Send a reply to the client that has asked a question."""
    run = properties_text(encode_properties(properties))
    sent = send("", queue, body, run, system_flag=0, flag=0, born_ms=0)
    return Command(RequestCode.SEND_REPLY_MESSAGE_V2, sent.fields, body)


def send_back(
    group: str,
    physical_offset: int,
    *,
    origin_message_id: str,
    origin_topic: str,
    most_times: int,
    delay_level: int = 0,
) -> Command:
    """Send a message back that could not be consumed: it is redelivered, or goes to %DLQ%.

    After `most_times` redeliveries it goes to %DLQ%. `delay_level` 0: the broker chooses; -1: never
    redelivered.
    """
    return command(
        RequestCode.CONSUMER_SEND_MSG_BACK,
        group=group,
        offset=physical_offset,
        delayLevel=delay_level,
        originMsgId=origin_message_id,
        originTopic=origin_topic,
        unitMode=False,
        maxReconsumeTimes=most_times,
    )


def lock_queues(group: str, client_id: str, queues: list[MessageQueue]) -> Command:
    """Ask for locks on queues, to consume them alone and in order."""
    return Command(
        RequestCode.LOCK_BATCH_MQ, body=encode_queue_lock(QueueLock(group, client_id, queues))
    )


def unlock_queues(group: str, client_id: str, queues: list[MessageQueue]) -> Command:
    return Command(
        RequestCode.UNLOCK_BATCH_MQ, body=encode_queue_lock(QueueLock(group, client_id, queues))
    )


def create_topic(config: TopicConfig, message_type: str | None = None) -> Command:
    attributes = {"attributes": f"+message.type={message_type}"} if message_type else {}
    return command(
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        **attributes,
        topic=config.topic,
        defaultTopic=TEMPLATE_TOPIC,
        readQueueNums=config.read_queue_count,
        writeQueueNums=config.write_queue_count,
        perm=config.permission,
        topicFilterType=config.topic_filter_type,
        topicSysFlag=config.topic_system_flag,
        order=config.order,
    )


def create_group(
    group: str, *, in_order: bool, most_retries: int, attributes: Mapping[str, str]
) -> Command:
    """Make a consumer group, or change it; other attributes than these stay."""
    body = {
        "attributes": {f"+{name}": value for name, value in attributes.items()},
        "consumeMessageOrderly": in_order,
        "groupName": group,
        "retryMaxTimes": most_retries,
    }
    return Command(
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=compact_json(body).encode()
    )


def delete_topic_in_broker(topic: str) -> Command:
    return command(RequestCode.DELETE_TOPIC_IN_BROKER, topic=topic)


def delete_topic_in_nameserver(topic: str) -> Command:
    return command(RequestCode.DELETE_TOPIC_IN_NAMESRV, topic=topic)


def messages_by_key(topic: str, key: str, begin_ms: int, end_ms: int, most: int) -> Command:
    """Ask for the newest messages with a key that were stored in a span of time."""
    return command(
        RequestCode.QUERY_MESSAGE,
        topic=topic,
        key=key,
        maxNum=most,
        beginTimestamp=begin_ms,
        endTimestamp=end_ms,
    )


def redrive(
    group: str,
    queue: MessageQueue,
    offset: int,
    most: int,
    *,
    to_topic: bool,
    begin_ms: int,
    end_ms: int,
    ids: Sequence[str],
    is_dry: bool,
) -> Command:
    """Redeliver dead letters of a queue; only brokers of this project know this request (31001)."""
    return command(
        RequestCode.REDRIVE_DEAD_LETTERS,
        compact_json({"msgIds": list(ids)}).encode() if ids else b"",
        consumerGroup=group,
        queueId=queue.queue_id,
        beginOffset=offset,
        maxMsgNums=most,
        target="TOPIC" if to_topic else "GROUP",
        beginTimestamp=begin_ms,
        endTimestamp=end_ms,
        dryRun=is_dry,
    )


def runtime_info() -> Command:
    return Command(RequestCode.GET_BROKER_RUNTIME_INFO)


def broker_settings() -> Command:
    return Command(RequestCode.GET_BROKER_CONFIG)


def change_settings(values: Mapping[str, str]) -> Command:
    """Change settings of a broker and all of its group."""
    return Command(RequestCode.UPDATE_BROKER_CONFIG, body=encode_properties_text(values))


def consume_stats(group: str, topic: str = "") -> Command:
    """Ask how far a group has consumed a topic, or all its topics."""
    return command(RequestCode.GET_CONSUME_STATS, consumerGroup=group, topic=topic)


def consumer_connections(group: str) -> Command:
    return command(RequestCode.GET_CONSUMER_CONNECTION_LIST, consumerGroup=group)


def running_info(group: str, client_id: str) -> Command:
    """Have a broker ask a member for its report."""
    code = RequestCode.GET_CONSUMER_RUNNING_INFO
    return command(code, consumerGroup=group, clientId=client_id, jstackEnable=False)


def consume_directly(group: str, client_id: str, offset_message_id: str) -> Command:
    code = RequestCode.CONSUME_MESSAGE_DIRECTLY
    return command(code, consumerGroup=group, clientId=client_id, msgId=offset_message_id)


def consume_status(group: str, topic: str) -> Command:
    """Have a broker ask the members of a group for their offsets."""
    code = RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS
    return command(code, group=group, topic=topic, clientAddr="")


def time_spans(group: str, topic: str) -> Command:
    """Ask when the messages of a topic were stored, and how far a group has consumed them."""
    return command(RequestCode.QUERY_CONSUME_TIME_SPAN, group=group, topic=topic)


def groups_of_topic(topic: str) -> Command:
    return command(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, topic=topic)


def reset_offsets(
    group: str,
    topic: str,
    timestamp_ms: int,
    *,
    is_forced: bool,
    queue_id: int = -1,
    offset: int = -1,
) -> Command:
    """Reset the offsets of a group in a topic to a time; -1 is the end.

    `is_forced`: also forward. With a `queue_id`, reset only this queue, and to `offset`.
    """
    return command(
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
        group=group,
        topic=topic,
        timestamp=timestamp_ms,
        isForce=is_forced,
        queueId=queue_id,
        offset=offset,
    )


def clone_offsets(source: str, target: str, topic: str = "") -> Command:
    """Set the offsets of the group `target` to those of `source`."""
    code = RequestCode.CLONE_GROUP_OFFSET
    return command(code, srcGroup=source, destGroup=target, topic=topic, offline=False)


def broker_statistics(name: str, key: str) -> Command:
    return command(RequestCode.VIEW_BROKER_STATS_DATA, statsName=name, statsKey=key)


def _queue_question(code: RequestCode, queue: MessageQueue, **more: int) -> Command:
    return command(code, topic=queue.topic, queueId=queue.queue_id, **more)
