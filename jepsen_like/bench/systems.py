"""All systems that are measured, in the order of the tables."""

from jepsen_like.bench.peers.etcd import ETCD
from jepsen_like.bench.peers.in_process import (
    DRAGONBOAT,
    JAVA_DLEDGER,
    OURS,
    PYSYNCOBJ,
    WITH_TLS,
)
from jepsen_like.bench.peers.limit import LIMITS
from jepsen_like.bench.peers.nats import NATS, NATS_DEFAULT

SYSTEMS = (*OURS, DRAGONBOAT, NATS, ETCD, JAVA_DLEDGER, NATS_DEFAULT, PYSYNCOBJ, *WITH_TLS, *LIMITS)
