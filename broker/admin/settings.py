"""A broker's settings as RocketMQ's tools show them (26).

Settings that are not listed have no meaning here: they size threads, buffers and files of Java.
"""

from collections.abc import Mapping
from typing import Final

from broker.delay.due import LEVEL_MS
from broker.limits import MAX_PULL_BYTES, MAX_PULL_MESSAGES
from broker.query.processor import MAX_MESSAGES
from broker.settings.changeable import CHANGEABLE
from broker.settings.settings import Settings
from broker.settings.state import ChangedSettings
from broker.store.consume_queue import UNIT_BYTES, UNITS_PER_FILE
from broker.store.key_file import ENTRIES, SLOTS
from broker.topics.state import Topics
from remoting.message.topic_names import TEMPLATE_TOPIC, TRACE_TOPIC

# Neither the command line nor operators change these.
_FIXED: Final = {
    "aclEnable": "false",
    "brokerFastFailureEnable": "false",
    "checkCRCOnRecover": "true",
    "enableControllerMode": "false",
    "enableDLegerCommitLog": "true",
    "enablePropertyFilter": "true",
    "enableScheduleMessageStats": "true",
    "filterServerNums": "0",
    "filterSupportRetry": "true",
    "flushDiskType": "SYNC_FLUSH",
    "longPollingEnable": "true",
    "maxHashSlotNum": str(SLOTS),
    "maxIndexNum": str(ENTRIES),
    "maxMsgsNumBatch": str(MAX_MESSAGES),
    "maxTransferBytesOnMessageInDisk": str(MAX_PULL_BYTES),
    "maxTransferBytesOnMessageInMemory": str(MAX_PULL_BYTES),
    "maxTransferCountOnMessageInDisk": str(MAX_PULL_MESSAGES),
    "maxTransferCountOnMessageInMemory": str(MAX_PULL_MESSAGES),
    "messageIndexEnable": "true",
    "msgTraceTopicName": TRACE_TOPIC,
    "offsetCheckInSlave": "true",
    "regionId": "DefaultRegion",
    "slaveReadEnable": "false",
    "storeReplyMessageEnable": "false",
    "timerWheelEnable": "true",
    "traceOn": "true",
    "traceTopicEnable": "false",
    "useServerSideResetOffset": "true",
    "useTLS": "false",
}


def shown_settings(
    settings: Settings, changed: ChangedSettings, topics: Topics, *, leads: bool
) -> Mapping[str, str]:
    """Return the settings in force by name.

    Args:
        settings: the settings.
        changed: the changes of operators.
        topics: the topics, one of which is the template of new ones.
        leads: whether this member leads.
    """
    now = settings.now
    template = topics.configs.get(TEMPLATE_TOPIC)
    place = sorted(now.peers).index(now.node_id) + 1 if now.node_id in now.peers else -1
    shown = {
        **_FIXED,
        **{name: setting.value_in(now) for name, setting in CHANGEABLE.items()},
        "brokerClusterName": now.cluster,
        "brokerIP1": now.address.host,
        "brokerIP2": now.address.host,
        "brokerId": "0" if leads else str(place),
        "brokerName": now.group,
        "brokerRole": "SYNC_MASTER" if leads else "SLAVE",
        "dLegerGroup": now.group,
        "dLegerPeers": ";".join(f"{peer}-{at}" for peer, at in now.peers.items()),
        "dLegerSelfId": now.node_id,
        # The settings that operators have changed, which override the command line.
        "dledgerChangedSettings": ";".join(sorted(changed.values)),
        "defaultTopicQueueNums": str(template.write_queue_count if template is not None else 0),
        "listenPort": str(now.listen.port),
        "mappedFileSizeCommitLog": str(now.store.segment_bytes),
        "mappedFileSizeConsumeQueue": str(UNITS_PER_FILE * UNIT_BYTES),
        "messageDelayLevel": " ".join(map(_level, LEVEL_MS)),
        "namesrvAddr": ";".join(now.nameservers),
        "preferredLeaderId": now.prefer or "",
        "pullThreadPoolQueueCapacity": str(now.limits.max_held_pulls),
        "sendThreadPoolQueueCapacity": str(now.limits.max_waiting_sends),
        "storePathCommitLog": str(now.directory / f"dledger-{now.node_id}" / "data"),
        "storePathIndex": str(now.directory / "index"),
        "storePathRootDir": str(now.directory),
    }
    return dict(sorted(shown.items()))


def _level(level_ms: int) -> str:
    """Format a delay as RocketMQ does: 30s, 5m, 2h."""
    level_s = level_ms // 1000
    for unit, name in ((3600, "h"), (60, "m")):
        if level_s % unit == 0:
            return f"{level_s // unit}{name}"
    return f"{level_s}s"
