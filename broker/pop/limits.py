"""Limits of pops, with their reasons."""

from typing import Final

# RocketMQ's limit of one pop.
MAX_MESSAGES: Final = 32

# How many messages of one queue a group may have and not acknowledge; RocketMQ's value.
MAX_IN_FLIGHT_PER_QUEUE: Final = 10_000

# Of all groups; each takes some 150 bytes of memory and 30 of each snapshot.
MAX_IN_FLIGHT: Final = 500_000

# Queues of groups that pop; each takes some 500 bytes.
MAX_QUEUES: Final = 100_000

# A message that is invisible for longer is one that nobody misses; that of RocketMQ's proxy.
MAX_INVISIBLE_MS: Final = 12 * 3600 * 1000

# It goes into the log with each pop in order; clients send a UUID.
MAX_ATTEMPT_CHARACTERS: Final = 64

# Requests that wait for a message; RocketMQ's value is 100 000.
MAX_WAITING: Final = 50_000

# Of these, of one connection: it must leave room for others, and its end must not take long.
# RocketMQ's proxy has one connection to a broker for some thousand consumers.
MAX_WAITING_A_CLIENT: Final = 10_000

# Requests that wait for their acknowledgements to be applied.
MAX_WAITING_ACKS: Final = 50_000

# Groups and topics of which is known which queue comes next; more of them begin anew.
MAX_TURNS: Final = 10_000

# How often it is said that too many messages are out.
WARN_S: Final = 60.0
