"""The run of the machine of moves: it ends after enough steps, when each required case has happened often enough.

python -m tests.engine.proof.moves_run [--steps N] [--times N] [--seconds N] [--workers N]

Movers stop, repeat old calls and work side by side, and servers are rolled back.
The run prints a table of all cases: transitions, verdicts, and other answers.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import ExitStack

from hypothesis import Phase

from sbredis.servers import LocalServer
from tests.engine.proof.extent import OFTEN, bounded, copied
from tests.engine.proof.hosts import Address, Host, Kind, host
from tests.engine.proof.moves_aims import AimedMovesMachine
from tests.engine.proof.moves_cases import REQUIRED, table
from tests.engine.proof.running import run_machine

__all__ = ["ALL", "prove"]

ALL = tuple(case for cases in REQUIRED.values() for case in cases)
_RULES = {
    **dict.fromkeys(("take: taken", "settle: taken", "settle: taken, not outstanding", "freeze: a batch"), "move"),
    **{f"sweep: {state}": "sweep" for state in ("frozen", "nothing", "limits", "other", "a batch was settled")},
    "take: several": "take_together",
    "withdraw: all": "move_in_the_slot",
    "withdraw: ABSENT": "withdraw_what_has_left",
    **{f"take: {code}": "let_the_destination_refuse" for code in ("QUOTA", "DISABLED", "TOOLARGE", "SESSIONS")},
    **{
        f"settle: {what}{end}": "let_the_destination_refuse"
        for what in ("back", "refused")
        for end in ("", ", not outstanding")
    },
    "take: over": "repeat_the_call_before_the_last",
    **dict.fromkeys(("take: again", "settle: again", "settle: again, not outstanding", "lost freeze"), "lose_a_freeze"),
    "lost take": "lose_a_take_at_once",
    **dict.fromkeys(
        ("take: door", "made again", "forget: known", "forget: unknown"), "repeat_a_take_from_a_former_source"
    ),
    "freeze: the outstanding batch": "let_two_movers_freeze",
    "freeze: no batch": "receive_what_a_mover_has_read",
    "redrive: by its client": "redrive_elsewhere",
    "redrive: by another mover": "redrive_elsewhere",
    **{f"repeated {name}": "repeat" for name in ("freeze", "take", "settle_batch", "sweep", "transact")},
}
"""The rules that bring cases about. The rule that brings transitions about is `seek`."""


def prove(
    on: Host,
    *,
    examples: int,
    steps: int = 40,
    begin_at: int | None = None,
    sought: Sequence[str] = ALL,
    often: Sequence[str] = (),
    seen: Counter[str] | None = None,
) -> Counter[str]:
    """Run the machine. Count in ``seen`` how often each case has happened, and return it.

    The rules that make the cases happen that are ``sought`` are taken most of the time. A case that is named more than
    once is chosen more often. The rules that are named in ``often`` are taken often. ``begin_at`` is the seed, or None
    for chance.
    """
    seen = Counter() if seen is None else seen
    members: dict[str, object] = {"on": on, "seen": seen, "sought": tuple(sought)}
    rules = Counter(_RULES.get(case, "seek") for case in sought) if sought is not ALL else Counter[str]()
    for name, weight in sorted(rules.items()):
        copies = max(6, round(OFTEN * weight / rules.total()))
        members |= copied(AimedMovesMachine, name, copies)
    for name in often:
        members |= copied(AimedMovesMachine, name, OFTEN // 4)
    machine = type("Machine", (AimedMovesMachine,), members)
    phases = (Phase.generate, Phase.shrink) if begin_at is None else (Phase.generate,)
    run_machine(machine, bounded(examples, steps=steps, phases=phases), begin_at=begin_at)
    return seen


def _part(kind: Kind, address: Address, sought: tuple[str, ...]) -> Counter[str]:
    """Run a part in a worker, with the server of this worker."""
    try:
        with host(kind, server=address) as on:
            return prove(on, examples=5 if kind == "memory" else 16, steps=50, sought=sought or ALL)
    except Exception as error:  # noqa: BLE001 -- a worker cannot send every exception
        raise AssertionError("".join(traceback.format_exception(error))) from None


def _sought(seen: Counter[str], least: int) -> tuple[str, ...]:
    """Return the cases that are too rare; the rarest are named most often."""
    return tuple(case for case in ALL for _ in range(max(0, 4 * (least - seen[case]) // least + (seen[case] < least))))


def _run(seen: Counter[str], given: argparse.Namespace, started: float) -> None:
    """Run parts side by side until the run is long enough."""
    with ExitStack() as stack:
        workers = stack.enter_context(ProcessPoolExecutor(given.workers))
        servers = [stack.enter_context(LocalServer()) for _ in range(given.workers)]
        free = [Address(server.host, server.port) for server in servers]
        parts: dict[Future[Counter[str]], Address] = {}
        begun, ends = 0, False
        while parts or not ends:
            while free and not ends:
                address, begun = free.pop(), begun + 1
                # Steps in memory take several times as long. Every fourth part goes on by chance.
                kind: Kind = "memory" if begun % 12 == 0 else "library" if begun % 2 else "server"
                sought = _sought(seen, given.times) if begun % 4 else ()
                parts[workers.submit(_part, kind, address, sought)] = address
            for future in wait(parts, return_when=FIRST_COMPLETED).done:
                free.append(parts.pop(future))
                seen += future.result()
            short, spent = [case for case in ALL if seen[case] < given.times], time.monotonic() - started
            rarest = ", ".join(sorted(short, key=seen.__getitem__)[:5])
            sys.stdout.write(f"{seen['steps']:>9,} steps in {spent:,.0f} s; {len(short)} cases too rare: {rarest}\n")
            sys.stdout.flush()
            ends = (seen["steps"] >= given.steps and not short) or spent > given.seconds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100_000, help="the least number of calls of scripts")
    parser.add_argument("--times", type=int, default=100, help="the number of times that each case must have happened")
    parser.add_argument("--seconds", type=float, default=3_600, help="the time after which to give up")
    parser.add_argument("--workers", type=int, default=2, help="the number of processes")
    given = parser.parse_args()
    started, seen = time.monotonic(), Counter[str]()
    try:
        _run(seen, given, started)
    finally:  # the table says what was done before a failure, too
        sys.stdout.write("\n".join((*table(seen, given.times), "")))
    sys.stdout.write(
        f"\n{seen['steps']:,} steps in {time.monotonic() - started:,.0f} s; each message was at one place\n"
    )
    return 1 if _sought(seen, given.times) else 0


if __name__ == "__main__":
    sys.exit(main())
