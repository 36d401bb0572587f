"""A proxy with a planted mistake: `python -m jepsen_like.chaos.brokers.grpc MISTAKE OPTION...`."""

from __future__ import annotations

import sys

from jepsen_like.mutants.planting import planted
from proxy.proxy_command import main

if __name__ == "__main__":
    mistake, *words = sys.argv[1:]
    with planted(mistake):
        main(words, prog_name="python -m proxy")
