"""``sbredis bench``: a short measurement of one's own server, in a queue of its own that is deleted afterwards."""

from __future__ import annotations

from datetime import timedelta

import click

from sbredis._counting import counted
from sbredis.cli._commands import command
from sbredis.cli._fitting import TableColumn
from sbredis.cli._invocation import Invocation
from sbredis.cli._parameters import DURATION, WholeRange

__all__ = ["bench"]


@command("bench", examples=["sbredis bench", "sbredis bench --time 5s --size 10000 --partitioned --output json"])
@click.option("--time", "duration", type=DURATION, default="1s", metavar="DURATION",
              help="How long each measurement takes. [1s]")  # fmt: skip
@click.option("--size", type=WholeRange(0, 200_000), default=100, metavar="BYTES", help="The size of a body. [100]")
@click.option("--partitioned", is_flag=True, help="Use a queue in all partitions, and so on all servers.")
async def bench(invocation: Invocation, *, duration: timedelta, size: int, partitioned: bool) -> None:
    """Measure the server: sending, receiving and completing, one by one, in parallel and in batches.

    It takes about ten seconds, loads the server, and works in a queue of its own, which is deleted at the end and after
    Ctrl-C. This process is a part of what is measured: several processes together are faster.
    """
    if duration <= timedelta():
        raise click.UsageError("--time must be longer than 0.")
    from sbredis.cli._benching import measure

    rows = await measure(invocation, duration.total_seconds(), size, partitioned=partitioned)
    invocation.out.table([TableColumn(name, rank) for rank, name in enumerate(rows[0])], rows)
    if not invocation.out.as_json:
        invocation.out.remark(f"bodies of {counted(size, 'byte')}; the times are of one call, in milliseconds")
