"""Every limit of the name server, with its reason.

RocketMQ's own limits are 127 characters for a topic and 255 for a group. The totals bound what all
brokers and operators together can store in a name server, since any connection may speak as both.
"""

from typing import Final

from nameserver.errors import RegistrationRefused
from remoting.bodies.route import QueueData
from remoting.bodies.topic_config import TopicConfig
from remoting.message.topic_names import DEAD_LETTER_PREFIX, RETRY_PREFIX

# Far above any cluster.
MAX_BROKERS: Final = 4096

# Distinct topics, and topics counted once for each broker name that has them; a place takes about
# 300 bytes.
MAX_TOPICS: Final = 200_000
MAX_TOPIC_PLACES: Final = 400_000

# The characters of all topic names, counted once for each place. A list of all topics must fit into
# one frame of 16 MiB.
MAX_TOPIC_CHARACTERS_IN_ALL: Final = 12 * 1024 * 1024

# RocketMQ's Validators. Retry and dead-letter topics have a group's name behind a prefix.
MAX_TOPIC_CHARACTERS: Final = 127
MAX_GROUP_CHARACTERS: Final = 255
GROUP_TOPIC_PREFIXES: Final = (RETRY_PREFIX, DEAD_LETTER_PREFIX)

# RocketMQ limits neither; operators type both.
MAX_BROKER_NAME_CHARACTERS: Final = 255
MAX_PROOF_CHARACTERS: Final = 128
MAX_CLUSTER_CHARACTERS: Final = 255

# The longest host name in brackets, and a port.
MAX_ADDRESS_CHARACTERS: Final = 262

# Class filter servers are obsolete; a broker had a few of them.
MAX_FILTER_SERVERS: Final = 16

# Clients make a list of all queues of a topic. RocketMQ's benchmark topic has 1024.
MAX_QUEUES: Final = 16_384

# Permissions and system flags are ints of Java. RocketMQ's brokers accept any from their clients:
# refusing one would refuse a broker with all its topics.
MIN_FLAGS: Final = -(1 << 31)
MAX_FLAGS: Final = (1 << 31) - 1

# RocketMQ's ids are 0 for the master and small numbers; version 5 gives out 64-bit ones.
MAX_BROKER_ID: Final = (1 << 63) - 1

# A state version is a Raft term or a controller's epoch: a thousand elections a second for a
# hundred years. A number that no election can reach would keep each later leader out.
MAX_STATE_VERSION: Final = 1 << 42

# While a master of the name lives, another one may be at most this many elections ahead: a thousand
# a second for a quarter of an hour, in which the first would have expired.
MAX_STATE_VERSION_STEP: Final = 1 << 20

# The body of a request that adds a topic's queues: 4096 broker names.
MAX_ADDED_ROUTE_BYTES: Final = 1024 * 1024

# A data version is three numbers.
MAX_DATA_VERSION_BYTES: Final = 4096

# Operators type settings. If they are order configurations, they must all fit into the reply to a
# registration, even with twelve bytes for each character.
MAX_SETTINGS: Final = 4096
MAX_VALUE_CHARACTERS: Final = 16 * 1024
MAX_SETTINGS_CHARACTERS: Final = 1024 * 1024


def check_topic(topic: str) -> None:
    """Refuse a topic whose name is empty, too long or not printable. Raises RegistrationRefused."""
    if len(topic) <= MAX_TOPIC_CHARACTERS and topic and topic.isprintable():
        return
    limit = MAX_TOPIC_CHARACTERS
    for prefix in GROUP_TOPIC_PREFIXES:
        if topic.startswith(prefix):
            limit = len(prefix) + MAX_GROUP_CHARACTERS
    check_text("topic", topic, limit)


def check_text(field: str, text: str, max_characters: int) -> None:
    """Refuse a text that is empty, too long or not printable. Raises RegistrationRefused."""
    if len(text) > max_characters:
        raise RegistrationRefused(
            f"{field} {text[:40]!r}... has {len(text)} characters, at most {max_characters} are "
            "taken: shorten it"
        )
    if not text or not text.isprintable():
        raise RegistrationRefused(
            f"{field} {text[:60]!r} is empty or cannot be printed: give it a name"
        )


def check_queues(topic: str, told: TopicConfig | QueueData) -> None:
    """Refuse numbers of a topic that would make clients hold too many queues.

    Raises RegistrationRefused.
    """
    read, write = told.read_queue_count, told.write_queue_count
    permission, system_flag = told.permission, told.topic_system_flag
    if not (
        0 <= read <= MAX_QUEUES
        and 0 <= write <= MAX_QUEUES
        and MIN_FLAGS <= permission <= MAX_FLAGS
        and MIN_FLAGS <= system_flag <= MAX_FLAGS
    ):
        raise RegistrationRefused(
            f"topic {topic:.127}: {read} and {write} queues, permission {permission}, system flag "
            f"{system_flag}: send 0 to {MAX_QUEUES} queues and flags of 32 bits"
        )
