"""The benchmarks: `make bench` and its kin, and `python -m bench`."""

from __future__ import annotations

import signal

import click

from bench.brokers.command import broker
from bench.brokers.send_costs import send_costs
from bench.checking import checking
from bench.costs.command import request_costs
from bench.failover import failover
from bench.footprint import footprint
from bench.http2_costs import http2_costs
from bench.log_costs.command import log_costs
from bench.spark.command import spark
from bench.stalls import stalls
from bench.throughput import throughput
from bench.turn_costs import turn_costs

THROUGHPUT = "throughput"


class Benchmarks(click.Group):
    """Options without a command are those of `throughput`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        helped = args and args[0] in ctx.help_option_names
        if not helped and (not args or args[0].startswith("-")):
            args = [THROUGHPUT, *args]
        return super().parse_args(ctx, args)


@click.group(cls=Benchmarks, context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Measure dledger on this machine, beside other systems.

    Without a command, options are those of `throughput`.
    """


main.add_command(throughput, THROUGHPUT)
main.add_command(broker)
main.add_command(checking)
main.add_command(failover)
main.add_command(footprint)
main.add_command(http2_costs)
main.add_command(request_costs)
main.add_command(log_costs)
main.add_command(send_costs)
main.add_command(spark)
main.add_command(stalls)
main.add_command(turn_costs)

if __name__ == "__main__":
    # Servers of others do not end with the pipe of their standard input: we end them.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    main()
