"""All systems that are measured, in the order of the tables."""

from bench.peers.etcd import ETCD
from bench.peers.in_process import (
    DRAGONBOAT,
    JAVA_DLEDGER,
    OURS,
    PYSYNCOBJ,
    WITH_TLS,
)
from bench.peers.limit import LIMITS
from bench.peers.nats import NATS, NATS_DEFAULT

SYSTEMS = (*OURS, DRAGONBOAT, NATS, ETCD, JAVA_DLEDGER, NATS_DEFAULT, PYSYNCOBJ, *WITH_TLS, *LIMITS)
