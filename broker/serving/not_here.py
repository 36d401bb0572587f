"""Request codes of RocketMQ that this broker does not answer, and why.

A code that is neither here nor handled is unknown. `docs/request-codes.md` is made of this.
"""

from collections.abc import Mapping
from typing import Final

from remoting.wire.codes import RequestCode

_CLIENT: Final = "is sent by brokers to clients"
_NAME_SERVER: Final = "is for name servers: ask one"
_UNCHECKED: Final = (
    "every request is signed here, from whatever address: give its programs a user, and limit that "
    "by `dledger-mq user allow --from`"
)
_CONTROLLER: Final = "there is no controller: the group elects its leader itself"
_ROCKSDB: Final = "there is no RocksDB: consume queues are files, settings are in the log"
_CONTAINER: Final = "there is no broker container: each member is a process of its own"
_REPLICATION: Final = "members replicate by the log: there is no master whom slaves follow"
_COLD: Final = "reads of old messages are not slowed down apart from others"
_OLD: Final = "no client of version 4 or 5 sends it"

_CODES: Final[Mapping[str, tuple[RequestCode, ...]]] = {
    _CLIENT: (
        RequestCode.CHECK_TRANSACTION_STATE,
        RequestCode.NOTIFY_CONSUMER_IDS_CHANGED,
        RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT,
        RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT,
        RequestCode.NOTIFY_UNSUBSCRIBE_LITE,
    ),
    "a group that was moved is told at its next pull (222)": (
        RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
    ),
    _NAME_SERVER: (
        RequestCode.PUT_KV_CONFIG,
        RequestCode.GET_KV_CONFIG,
        RequestCode.DELETE_KV_CONFIG,
        RequestCode.REGISTER_BROKER,
        RequestCode.UNREGISTER_BROKER,
        RequestCode.GET_ROUTEINFO_BY_TOPIC,
        RequestCode.GET_BROKER_CLUSTER_INFO,
        RequestCode.WIPE_WRITE_PERM_OF_BROKER,
        RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
        RequestCode.DELETE_TOPIC_IN_NAMESRV,
        RequestCode.REGISTER_TOPIC_IN_NAMESRV,
        RequestCode.GET_KVLIST_BY_NAMESPACE,
        RequestCode.GET_TOPICS_BY_CLUSTER,
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS,
        RequestCode.GET_UNIT_TOPIC_LIST,
        RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST,
        RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
        RequestCode.UPDATE_NAMESRV_CONFIG,
        RequestCode.GET_NAMESRV_CONFIG,
        RequestCode.QUERY_DATA_VERSION,
        RequestCode.ADD_WRITE_PERM_OF_BROKER,
        RequestCode.GET_BROKER_MEMBER_GROUP,
        RequestCode.BROKER_HEARTBEAT,
    ),
    _UNCHECKED: (RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,),
    _CONTROLLER: (
        RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET,
        RequestCode.CONTROLLER_ELECT_MASTER,
        RequestCode.CONTROLLER_REGISTER_BROKER,
        RequestCode.CONTROLLER_GET_REPLICA_INFO,
        RequestCode.CONTROLLER_GET_METADATA_INFO,
        RequestCode.CONTROLLER_GET_SYNC_STATE_DATA,
        RequestCode.GET_BROKER_EPOCH_CACHE,
        RequestCode.NOTIFY_BROKER_ROLE_CHANGED,
        RequestCode.UPDATE_CONTROLLER_CONFIG,
        RequestCode.GET_CONTROLLER_CONFIG,
        RequestCode.CLEAN_BROKER_DATA,
        RequestCode.CONTROLLER_GET_NEXT_BROKER_ID,
        RequestCode.CONTROLLER_APPLY_BROKER_ID,
    ),
    _ROCKSDB: (
        RequestCode.CHECK_ROCKSDB_CQ_WRITE_PROGRESS,
        RequestCode.EXPORT_ROCKSDB_CONFIG_TO_JSON,
        RequestCode.POP_ROLLBACK,
    ),
    _CONTAINER: (RequestCode.ADD_BROKER, RequestCode.REMOVE_BROKER),
    _REPLICATION: (
        RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE,
        RequestCode.EXCHANGE_BROKER_HA_INFO,
        RequestCode.RESET_MASTER_FLUSH_OFFSET,
    ),
    _COLD: (
        RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG,
        RequestCode.REMOVE_COLD_DATA_FLOW_CTR_CONFIG,
        RequestCode.GET_COLD_DATA_FLOW_CTR_INFO,
        RequestCode.SET_COMMITLOG_READ_MODE,
    ),
    "a static topic spreads one queue over brokers, and moves it by hand": (
        RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC,
    ),
    "class filters are gone from RocketMQ since 4.9.6: filter by SQL92": (
        RequestCode.REGISTER_FILTER_SERVER,
        RequestCode.REGISTER_MESSAGE_FILTER_CLASS,
    ),
    _OLD: (
        RequestCode.QUERY_BROKER_OFFSET,
        RequestCode.GET_TOPIC_CONFIG_LIST,
        RequestCode.GET_TOPIC_NAME_LIST,
        RequestCode.GET_CLIENT_CONFIG,
        RequestCode.SUSPEND_CONSUMER,
        RequestCode.RESUME_CONSUMER,
        RequestCode.RESET_CONSUMER_OFFSET_IN_CONSUMER,
        RequestCode.RESET_CONSUMER_OFFSET_IN_BROKER,
        RequestCode.ADJUST_CONSUMER_THREAD_POOL,
        RequestCode.WHO_CONSUME_THE_MESSAGE,
    ),
}

NOT_HERE: Final[Mapping[int, str]] = {
    int(code): why for why, codes in _CODES.items() for code in codes
}
"""Why a broker does not answer a code, by the code."""
