"""Limits of pops, with their reasons."""

from typing import Final

# RocketMQ's limit of one pop.
MAX_MESSAGES: Final = 32

# Messages of one queue that a group may have in flight; RocketMQ's value.
MAX_IN_FLIGHT_PER_QUEUE: Final = 10_000

# Of all groups; each takes some 150 bytes of memory and 30 of each snapshot.
MAX_IN_FLIGHT: Final = 500_000

# Queues of groups that pop; each takes some 500 bytes.
MAX_QUEUES: Final = 100_000

# It goes into the log with each pop in order; clients send a UUID.
MAX_ATTEMPT_CHARACTERS: Final = 64

# Requests that wait for a message; RocketMQ's value. Each takes a kilobyte of memory.
MAX_WAITING: Final = 100_000

# Of one connection, which must leave room for others. A proxy has one connection to a broker for
# its 50 000 clients, and fewer requests without a reply than 65 536.
MAX_WAITING_A_CLIENT: Final = 50_000

# Requests that wait for their acknowledgements to be applied.
MAX_WAITING_ACKS: Final = 50_000

# Groups and topics whose next queue is remembered; with more, all start again.
MAX_TURNS: Final = 10_000

# The pause between two warnings that too many messages are in flight.
WARN_S: Final = 60.0
