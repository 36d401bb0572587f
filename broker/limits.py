"""Every limit of a broker, with its reason."""

from dataclasses import dataclass
from typing import Final

# A route lists a topic's queues for each client, and each is a folder. RocketMQ's benchmark topic
# has 1024.
MAX_QUEUES_PER_TOPIC: Final = 1024

# RocketMQ's limits of one pull: bytes of messages read, and index entries scanned. RocketMQ returns
# 32 messages at most by default; here as many as are scanned, in about a millisecond.
MAX_PULL_BYTES: Final = 256 * 1024
MAX_PULL_SCANNED_UNITS: Final = 800
MAX_PULL_MESSAGES: Final = MAX_PULL_SCANNED_UNITS

# Clients give up a pull after 30 s; a longer hold would only keep dead requests.
MAX_HOLD_S: Final = 20.0

# Of the body of one send: RocketMQ's maxMessageSize. A record of the log holds no more.
MAX_MESSAGE_BYTES: Final = 4 * 1024 * 1024

# The longest that clients of RocketMQ's cloud may ask a message to wait. RocketMQ's own default is
# 3 days.
MAX_DELAY_S: Final = 40 * 24 * 3600


@dataclass(frozen=True, slots=True)
class BrokerLimits:
    """Limits of what one broker holds. Above a limit a request is refused; others are served.

    Attributes:
        max_topics: every topic is registered with the name servers every 30 s in one body.
        max_groups: consumer groups with a configuration.
        max_offset_tables: pairs of group and topic that have committed offsets.
        max_waiting_sends: messages that wait for room in the log or for their topic.
        max_waiting_send_bytes: the same in bytes.
        max_held_pulls: pulls that wait for a message; one per queue and consumer.
        max_waiting_commits: requests that wait for their offsets to be applied.
        max_waiting_reads: requests that wait for the group to confirm this leader.
        max_clients: consumers registered by heartbeats, counted once per group; and as many
            producers.
        max_client_bytes: the heartbeats of all members of consumer groups, which are kept while the
            members are connected: 10 KiB for each of the 50 000.
        max_subscriptions: topics one consumer may subscribe to in one group.
        max_locks: queues locked by ordered consumers.
        max_filters: SQL92 conditions of groups, 2 KiB each at most.
        max_delayed_messages: messages that wait for their time; each takes about 50 bytes on disk
            besides its record, and as much in each snapshot.
        max_open_transactions: transactions without an end yet, some 200 bytes each in memory.
        max_connections_of_user: connections of one user, with access control; as all below, super
            users excepted. A service of a hundred programs with two connections each has room.
        max_held_of_user: pulls, pops, also of lite topics, and notifications of one user that wait
            for a message.
        max_waiting_of_user: requests of one user that wait for the log.
        max_new_of_user: topics and groups that one user makes within an hour.
        append_entries: entries handed to the log at once: a tenth of the log's own limit.
        append_bytes: the same in bytes.
    """

    max_topics: int = 20_000
    max_groups: int = 20_000
    max_offset_tables: int = 100_000
    max_waiting_sends: int = 20_000
    max_waiting_send_bytes: int = 64 * 1024 * 1024
    max_held_pulls: int = 50_000
    max_waiting_commits: int = 50_000
    max_waiting_reads: int = 50_000
    max_clients: int = 50_000
    max_client_bytes: int = 512 * 1024 * 1024
    max_subscriptions: int = 1_000
    max_locks: int = 100_000
    max_filters: int = 5_000
    max_delayed_messages: int = 10_000_000
    max_open_transactions: int = 50_000
    max_connections_of_user: int = 1_000
    max_held_of_user: int = 10_000
    max_waiting_of_user: int = 5_000
    max_new_of_user: int = 500
    append_entries: int = 1_000
    append_bytes: int = 8 * 1024 * 1024
