"""``sbredis dlq``: list, report, redrive and purge dead letters."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from sbredis._counting import counted
from sbredis.cli._commands import command, group
from sbredis.cli._exit_codes import ExitCode
from sbredis.cli._invocation import Invocation
from sbredis.cli._output import TableColumn
from sbredis.cli._parameters import DURATION, PROPERTY, NumberRange, WholeRange, confirmed, entity_argument
from sbredis.cli._progress import ProgressCounter
from sbredis.cli._purge import purge_path
from sbredis.cli._showing import FEW, remark_more, show_messages
from sbredis.cli._stopping import Stop, to_a_good_end
from sbredis.operating import browse, choice_of, dead_letters_of, entity_of, first_of, source_of

if TYPE_CHECKING:
    from sbredis.aio import ServiceBusReceiver
    from sbredis.model import RedriveResult

__all__ = ["dlq", "move_dead_letters"]

dlq = group(
    "dlq",
    "List, report, redrive and purge dead letters.",
    examples=["sbredis dlq report orders", "sbredis dlq redrive orders --dry-run"],
)

_reason = click.option("--reason", metavar="TEXT", help="Only dead letters with this reason.")
_filter = click.option(
    "--filter", "text", metavar="SQL", help="Only dead letters that match this filter; it can use sys.DeadLetterReason."
)


@command("list", into=dlq, examples=["sbredis dlq list orders", "sbredis dlq list orders --reason Timeout -o json"])
@entity_argument()
@_reason
@_filter
@click.option("--count", type=WholeRange(1), metavar="N", help="Show N messages at most. [20]")
async def list_(invocation: Invocation, *, entity: str, reason: str | None, text: str | None, count: int | None) -> int:
    """List dead letters with their reasons. Nothing is received or changed."""
    matches = choice_of(text=text, reason=reason)
    path = dead_letters_of(entity)

    async with invocation.client() as client, invocation.looking_for(entity_of(path)):
        await source_of(client, path)
        found, more = await first_of(browse(client.get_receiver(path)), count or FEW, matches)
    show_messages(invocation, found)
    if more and count is None:
        remark_more(invocation, chosen=reason is not None or text is not None)
    return ExitCode.DONE if found else ExitCode.DIFFERENT


@command("report", into=dlq, examples=["sbredis dlq report orders", "sbredis dlq report orders --output json"])
@entity_argument()
@_reason
@_filter
async def report(invocation: Invocation, *, entity: str, reason: str | None, text: str | None) -> None:
    """Count dead letters by what they died of.

    A fingerprint is the reason and the first line of the description, with '#' in place of each number.
    """
    result = await _redrive(invocation, entity, {"reason": reason, "matching": text, "dry_run": True})
    if invocation.out.as_json:
        facts = {"matched": result.matched, "by_reason": result.by_reason, "by_fingerprint": result.by_fingerprint}
        invocation.out.json(facts)
        return
    counts = sorted(result.by_fingerprint.items(), key=lambda pair: (-pair[1], pair[0]))
    rows = [{"count": count, "fingerprint": fingerprint} for fingerprint, count in counts]
    invocation.out.table([TableColumn("count"), TableColumn("fingerprint", shortest=20)], rows, empty="no dead letters")


@command("redrive", into=dlq, examples=[
    "sbredis dlq redrive orders --dry-run",
    "sbredis dlq redrive orders --reason Timeout --rate 50 --budget 0.1",
    "sbredis dlq redrive orders 17 18 --to orders-repaired --set repaired:=true",
])  # fmt: skip
@entity_argument()
@click.argument("numbers", type=WholeRange(1), nargs=-1, metavar="[NUMBER]...")
@_reason
@_filter
@click.option("--to", metavar="ENTITY", help="Move them to this queue or topic, not back to their own.")
@click.option("--set", "changes", type=PROPERTY, multiple=True, metavar="NAME=TEXT",
              help="Set an application property; NAME:=JSON for other values. Repeatable.")  # fmt: skip
@click.option("--rate", type=NumberRange(0, min_open=True), metavar="N", help="Move N messages a second at most.")
@click.option("--budget", type=NumberRange(0, 1, max_open=True), metavar="SHARE",
              help="Stop when more than this share of the moved messages has died again.")  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
async def redrive(
    invocation: Invocation,
    *,
    entity: str,
    numbers: Sequence[int],
    reason: str | None,
    text: str | None,
    to: str | None,
    changes: Sequence[tuple[str, Any]],
    rate: float | None,
    budget: float | None,
    dry_run: bool,
) -> int:
    """Move dead letters back to the queue or subscription in which they died.

    Each one is moved once, and becomes a new message with a new number. After Ctrl-C, the rest stays where it is.
    """
    from sbredis.model import RedriveBudget

    options: dict[str, Any] = {
        "sequence_numbers": list(numbers) or None,
        "reason": reason,
        "matching": text,
        "to": to,
        "properties_to_modify": dict(changes) or None,
        "rate": rate,
        "budget": None if budget is None else RedriveBudget(share=budget),
        "dry_run": dry_run,
    }
    result = await _redrive(invocation, entity, options)
    return _told(invocation, result, entity, to or entity_of(entity), dry_run=dry_run)


def _told(invocation: Invocation, result: RedriveResult, entity: str, place: str, *, dry_run: bool) -> int:
    """Print what a redrive has done, and return the exit code."""
    words = (
        f"{counted(result.matched, 'message')} would be moved"
        if dry_run
        else f"moved {counted(result.moved, 'message')}"
    )
    facts = {"matched": result.matched, "moved": result.moved, "skipped": result.skipped, "entity": entity, "to": place}
    facts |= {"died_again": result.died_again, "completed": result.completed}
    stay = f"; {result.skipped:,} stay, because they are held or {place} does not take them" if result.skipped else ""
    invocation.out.done(f"{words} to {place}{stay}", **facts)
    if not result.completed:
        invocation.out.remark(result.stopped_because)
    return ExitCode.DONE if result.completed else ExitCode.FAILED


@command("purge", into=dlq, examples=["sbredis dlq purge orders --older-than 30d --dry-run"])
@entity_argument()
@click.option("--older-than", type=DURATION, metavar="DURATION", help="Only those enqueued before, such as 30d.")
@confirmed
async def purge(invocation: Invocation, *, entity: str, older_than: timedelta | None, dry_run: bool, yes: bool) -> None:
    """Delete dead letters. Those that a receiver holds stay."""
    await purge_path(invocation, dead_letters_of(entity), older_than, None, dry_run=dry_run, yes=yes)


async def move_dead_letters(invocation: Invocation, path: str, to: str, text: str | None, *, dry_run: bool) -> int:
    """Move dead letters to another entity, as 'sbredis move' does."""
    result = await _redrive(invocation, path, {"matching": text, "to": to, "dry_run": dry_run})
    return _told(invocation, result, path, to, dry_run=dry_run)


async def _redrive(invocation: Invocation, entity: str, options: dict[str, Any]) -> RedriveResult:
    """Carry out a redrive or a dry run, which end between two steps when the command is interrupted."""
    from sbredis.aio._receiver import watch_redrives

    path = dead_letters_of(entity)
    results: list[RedriveResult] = []

    async def work(receiver: ServiceBusReceiver, progress: ProgressCounter, stop: Stop) -> None:
        def goes_on(moved: int) -> bool:
            progress.add(moved - progress.count)
            return not stop

        watch_redrives(receiver, goes_on)
        results.append(await receiver.redrive_messages(**options))
        done = results[0].matched if options["dry_run"] else results[0].moved
        progress.add(done - progress.count)

    with ProgressCounter("counted" if options["dry_run"] else "moved") as progress:
        async with invocation.client() as client:
            async with invocation.looking_for(entity_of(path)):
                await source_of(client, path)
            receiver = client.get_receiver(path)
            async with invocation.looking_for(options.get("to") or entity_of(path)):
                await to_a_good_end(lambda stop: work(receiver, progress, stop))
    return results[0]
