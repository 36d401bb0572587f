"""Limits of lite topics, with their reasons."""

from typing import Final

# Of all parents; each takes some 200 bytes of memory and 50 of each snapshot, with two messages.
MAX_LITE_TOPICS: Final = 2_000_000

# Messages that lite topics have; each takes six bytes of memory and of each snapshot.
MAX_LITE_MESSAGES: Final = 50_000_000

# Messages of one batch: each is an entry of its own.
MAX_LITE_BATCH: Final = 512

# Messages of all lite topics that groups have in flight; each takes some 150 bytes.
MAX_LITE_IN_FLIGHT: Final = 500_000

# Clients that subscribe, whether they name lite topics or not; each takes some 600 bytes of the
# leader's memory.
MAX_SUBSCRIBERS: Final = 50_000

# Pairs of client and lite topic; each takes some 200 bytes of the leader's memory.
MAX_SUBSCRIPTIONS: Final = 1_000_000

# Lite topics in one request. A client repeats all that it has in one, so it cannot have more.
MAX_NAMED: Final = 10_000
MAX_BODY_BYTES: Final = 1024 * 1024

# Subscriptions in one request; a proxy sends one for each client.
MAX_SUBSCRIPTIONS_IN_REQUEST: Final = 100

# A client that did not repeat its subscriptions for so long has none any more; RocketMQ's value.
# Clients repeat them every 30 s.
SUBSCRIPTION_EXPIRY_S: Final = 180.0

# No lite topic ends sooner after its last message; RocketMQ's value.
LEAST_LIFE_MS: Final = 15 * 60 * 1000

# Acknowledgements in one entry: some milliseconds.
MAX_LITE_ACKS: Final = 1024

# Lite topics that one entry ends.
MAX_ENDED_AT_ONCE: Final = 500

# Shards of which one entry ends lite topics: while a snapshot is written each is copied first.
SHARDS_AT_ONCE: Final = 16

# Messages in one answer; RocketMQ's limit.
MAX_MESSAGES: Final = 32

# Lite topics that one step of a pop looks at.
LOOKED_AT: Final = 256

# Lite topics that an answer about a client lists; RocketMQ's value.
MAX_TOLD: Final = 10_000
