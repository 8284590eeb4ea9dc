"""Measure how many filters of a topic's rules run in a second.

Each case is measured twice: with message facts that were computed before the measurement, and with facts that are
computed again for each message.

python -m benchmarks.rules [--rounds N]
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.rounds import run_as_program
from sbredis.rules import Constant, CorrelationFilter, Filter, MessageView, Rule, RuleBook, SqlAction, SqlFilter, Value

SYSTEM: dict[str, Constant] = {"messageid": "m-1", "label": "order", "to": "eu", "sessionid": None}
USER: dict[str, Value] = {"color": "red", "price": 12, "region": "eu", "number": 777}
COMPLEX = "color LIKE 'r%' AND (price * 2 > {0} OR region NOT IN ('us', 'asia')) AND NOT (price < 3 OR EXISTS(gone))"
DIFFERENT = (
    "color LIKE 'r%{0}' OR (price * {0} > {0} AND region NOT IN ('us', 'asia{0}'))"
    " AND NOT (price < -{0} OR EXISTS(gone{0}))"
)
SECONDS = 0.2


@dataclass(frozen=True)
class Case:
    """A number of filters, and their distribution over subscriptions."""

    name: str
    filters: Sequence[Filter]
    action: SqlAction | None = None

    def book(self) -> RuleBook:
        """Return the filters, with one subscription for every fifty filters."""
        rules = [Rule(f"r{number}", given, self.action) for number, given in enumerate(self.filters)]
        return RuleBook([(rules[start : start + 50], True) for start in range(0, len(rules), 50)])


def cases() -> list[Case]:
    """Return the cases to measure."""
    numbers = range(2_000)
    return [
        Case("color = 'red'", [SqlFilter("color = 'red'")]),
        Case("sys.Label = 'order' AND price > 10", [SqlFilter("sys.Label = 'order' AND price > 10")]),
        Case("price > 10", [SqlFilter("price > 10")]),
        Case("one with an action", [SqlFilter("price > 10")], SqlAction("SET price = price + 1; SET sys.Label = 'x'")),
        Case("2,000 of price > N", [SqlFilter(f"price > {number}") for number in numbers]),
        Case("2,000 complex ones", [SqlFilter(COMPLEX.format(number)) for number in numbers]),
        Case("2,000 with nothing in common", [SqlFilter(DIFFERENT.format(number + 1)) for number in numbers]),
        Case(
            "2,000 of number = N AND price > 10", [SqlFilter(f"number = {number} AND price > 10") for number in numbers]
        ),
        Case("1 correlation filter", [CorrelationFilter(subject="order", properties={"number": 777})]),
        Case(
            "100,000 correlation filters",
            [CorrelationFilter(subject="order", properties={"number": number}) for number in range(100_000)],
        ),
    ]


def duration(call: Callable[[], object], rounds: int) -> float:
    """Return the seconds that a call takes: the median of a number of rounds."""
    times: list[float] = []
    calls = 1
    while len(times) < rounds:
        start = time.perf_counter()
        for _ in range(calls):
            call()
        took = time.perf_counter() - start
        if took < SECONDS / 4:  # the round was too short to be measured, so it does not count
            calls = max(calls * 2, int(calls * SECONDS / max(took, 1e-9) / 2))
        else:
            times.append(took / calls)
    return statistics.median(times)


def measured(case: Case, rounds: int) -> str:
    """Return a line of the table."""
    start = time.perf_counter()
    book = case.book()
    built = time.perf_counter() - start
    facts = MessageView(SYSTEM, USER)
    ready = duration(lambda: book.judge(facts), rounds)
    anew = duration(lambda: book.judge(MessageView(SYSTEM, USER)), rounds)
    count = len(case.filters)
    return (
        f"  {case.name:<36}  {count / ready:>15,.0f}  {count / anew:>15,.0f}"
        f"  {ready * 1e6:>9,.2f} µs  {anew * 1e6:>9,.2f} µs  {built * 1e3:>8,.1f} ms"
    )


def main() -> None:
    """Measure, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=5, help="measured rounds; medians are printed (default 5)")
    arguments = parser.parse_args()
    if arguments.rounds < 1:
        parser.error("--rounds must be 1 at least")
    print(f"Python {sys.version.split()[0]}; one process; {arguments.rounds} rounds")
    head = ("filters/s", "with facts", "a message", "with facts", "to compile")
    print(f"  {'':<36}  {head[0]:>15}  {head[1]:>15}  {head[2]:>12}  {head[3]:>12}  {head[4]:>11}")
    for case in cases():
        print(measured(case, arguments.rounds), flush=True)
    facts = duration(lambda: MessageView(SYSTEM, USER), arguments.rounds)
    print(f"  the facts of a message alone: {facts * 1e6:.2f} µs")


if __name__ == "__main__":
    run_as_program(main)
