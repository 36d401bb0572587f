"""What a broker was started with, as RocketMQ's tools name it."""

from broker.config import BrokerConfig


def settings_of(config: BrokerConfig) -> dict[str, str]:
    """The settings by name."""
    return {
        "autoCreateTopicEnable": str(config.auto_create_topics).lower(),
        "brokerClusterName": config.cluster,
        "brokerName": config.group,
        "dLegerGroup": config.group,
        "dLegerPeers": ";".join(f"{peer}-{at}" for peer, at in config.peers.items()),
        "dLegerSelfId": config.node_id,
        "deleteWhen": ";".join(f"{hour:02d}" for hour in sorted(config.retention.at_hours)),
        "diskMaxUsedSpaceRatio": str(config.retention.clean_percent),
        "enableDLegerCommitLog": "true",
        "fileReservedTime": str(config.retention.keep_hours),
        "listenPort": str(config.listen.port),
        "namesrvAddr": ";".join(config.nameservers),
        "storePathRootDir": str(config.directory),
    }
