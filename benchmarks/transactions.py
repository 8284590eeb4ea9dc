"""Transactions: one complete and one send in a transaction beside the two calls, for the server and through the client.

python -m benchmarks.transactions [--messages N] [--rounds N] [--body BYTES] [--short] [--server NAME]
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

from redis import Redis
from redis.asyncio import Redis as AsyncRedis

from benchmarks.engine_calls import Engine, first_token, given_by, server_cpu
from benchmarks.rounds import run_as_program
from benchmarks.works import (
    AT_ONCE,
    CONFIG,
    Medians,
    Step,
    Work,
    alternate,
    batches,
    figures,
    received,
    used_by,
)
from sbredis.aio import ServiceBusClient, ServiceBusReceiver, ServiceBusSender
from sbredis.engine import NO_CALL_ID, Lock, Operation, Outgoing, Partition, Request, transact
from sbredis.model import ServiceBusMessage, ServiceBusReceivedMessage
from sbredis.servers import LocalServer, find_server

__all__ = ["verdicts"]

TWO_CALLS, ONE_CALL = "two calls", "a transaction"
BOTH = "complete and send, a transaction"
SIZES = (10, 100)
MOST_CPU = 0.7
"""The largest ratio of the server's time for a transaction to its time for the two calls."""
LEAST_PER_SECOND = 20_000
"""The smallest number of transactions a second on one core of the server."""
MOST_SLOWER = 1.03
"""The largest ratio of a single operation's time, after transactions, to its time on a queue that had none."""
SETTLE = "settle"


# -- measuring the server ----------------------------------------------------------------------------------------------


class Desk:
    """A queue with inputs that are locked one by one, and a queue for the outputs, in one slot."""

    def __init__(self, client: Redis, name: str, body: bytes) -> None:
        self._client = client
        self._body = body
        self.inputs, self.outputs = Engine(client, f"{name}-inputs"), Engine(client, f"{name}-outputs")
        self._locks: list[Lock] = []

    def fill(self, messages: int) -> None:
        """Send inputs, and lock each of them under a token of its own."""
        for count in batches(messages):
            self.inputs.send([self._body] * count)
        asking = self._client.pipeline(transaction=False)
        requests = [self._receive() for _ in range(messages)]
        for _, request in requests:
            self.inputs.put(asking, request)
        replies = asking.execute()
        self._locks = [
            Lock(token, given_by(request.read(reply))[0].name)
            for (token, request), reply in zip(requests, replies, strict=True)
        ]

    def _receive(self) -> tuple[str, Request[Any]]:
        token = first_token()
        return token, self.inputs.granting(1, token)

    def empty(self) -> None:
        """Remove all messages that are ready."""
        for engine in (self.inputs, self.outputs):
            while engine.receive_and_delete(AT_ONCE):
                pass

    def completes(self, size: int = 1) -> Iterator[Request[Any]]:
        for at in range(0, len(self._locks), size):
            yield self.inputs.partition.complete(self.inputs.call_id(), self._locks[at : at + size])

    def sends(self, size: int = 1) -> Iterator[Request[Any]]:
        for _ in range(0, len(self._locks), size):
            yield self.outputs.partition.send(self.outputs.call_id(), [Outgoing(self._body)] * size)

    def transactions(self, size: int = 1) -> Iterator[Request[Any]]:
        """Yield transactions that each complete some inputs and send as many outputs."""
        ins, outs = self.inputs.partition, self.outputs.partition
        for at in range(0, len(self._locks), size):
            locks = self._locks[at : at + size]
            sends = [Outgoing(self._body)] * len(locks)
            yield transact(
                self.inputs.call_id(),
                [_operation(ins, ins.complete(NO_CALL_ID, locks)), _operation(outs, outs.send(NO_CALL_ID, sends))],
            )

    def cost(self, requests: Iterator[Request[Any]]) -> float:
        """Make these calls in pipelines, and return the server's processor time for a call, in µs."""
        made = list(requests)
        before = server_cpu(self._client)
        for at in range(0, len(made), AT_ONCE):
            asking = self._client.pipeline(transaction=False)
            for request in made[at : at + AT_ONCE]:
                self.inputs.put(asking, request)
            asking.execute()
        return (server_cpu(self._client) - before) / len(made) * 1e6


def _operation(partition: Partition, request: Request[Any]) -> Operation:
    return Operation(partition, request)


def on_server(client: Redis, body: bytes, messages: int, rounds: int) -> dict[str, float]:
    """Return the server's processor time for each kind of call, in µs. All take turns in each round."""
    desk, fresh = Desk(client, "desk", body), Desk(client, "fresh", body)
    ways: dict[str, tuple[Desk, Callable[[], Iterator[Request[Any]]]]] = {
        "complete": (fresh, fresh.completes),
        "send": (fresh, fresh.sends),
        BOTH: (desk, desk.transactions),
        "complete, after transactions": (desk, desk.completes),
        "send, after transactions": (desk, desk.sends),
    }
    for size in SIZES:
        half = size // 2
        ways[f"{half} completes"] = fresh, lambda half=half: fresh.completes(half)  # type: ignore[misc]
        ways[f"{half} sends"] = fresh, lambda half=half: fresh.sends(half)  # type: ignore[misc]
        ways[f"{size} messages, a transaction"] = desk, lambda half=half: desk.transactions(half)  # type: ignore[misc]
    costs: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds + 1):
        for name, (at, requests) in ways.items():
            at.fill(messages)
            cost = at.cost(requests())
            if number:
                costs[name].append(cost)
            at.empty()
    return {name: statistics.median(each) for name, each in costs.items()}


# -- measuring the client ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Counter:
    """A client with a receiver of inputs and a sender of outputs."""

    client: ServiceBusClient
    receiver: ServiceBusReceiver
    outputs: ServiceBusSender
    body: bytes

    async def two_calls(self, message: ServiceBusReceivedMessage) -> None:
        await self.outputs.send_messages(ServiceBusMessage(self.body))
        await self.receiver.complete_message(message)

    async def one_call(self, message: ServiceBusReceivedMessage) -> None:
        async with self.client.transaction() as tx:
            tx.send_messages(self.outputs, ServiceBusMessage(self.body))
            tx.complete_message(message)


def steps_of(
    counter: Counter,
    inputs: ServiceBusSender,
    handle: Callable[[ServiceBusReceivedMessage], Awaitable[None]],
    width: int,
) -> Mapping[str, Step]:
    """Return the steps of a work: send inputs, receive them, handle them with some handlers, and remove the outputs."""
    taken: list[ServiceBusReceivedMessage] = []

    async def fill(messages: int) -> None:
        for count in batches(messages):
            await inputs.send_messages([ServiceBusMessage(counter.body) for _ in range(count)])

    async def receive(messages: int) -> None:
        for count in batches(messages):
            taken.extend(await received(counter.receiver, count))

    async def settle(messages: int) -> None:
        assert len(taken) == messages
        left = iter(taken)

        async def handler() -> None:
            for message in left:
                await handle(message)

        await asyncio.gather(*[handler() for _ in range(width)])
        taken.clear()

    async def remove(messages: int) -> None:
        del messages
        await counter.client.get_queue_receiver("outputs").purge_messages()

    return {"send": fill, "receive": receive, SETTLE: settle, "remove": remove}


async def through_client(server: LocalServer, body: bytes, messages: int, rounds: int) -> dict[str, Medians]:
    """Return the medians of completing an input and sending an output, for each way of doing it."""
    async with AsyncExitStack() as stack:
        beside = await stack.enter_async_context(AsyncRedis(host=server.host, port=server.port))
        client = await stack.enter_async_context(ServiceBusClient(server.url))
        await client.ensure_queue("inputs")
        await client.ensure_queue("outputs", colocate_with="inputs")
        receiver = await stack.enter_async_context(client.get_queue_receiver("inputs"))
        inputs, outputs = client.get_queue_sender("inputs"), client.get_queue_sender("outputs")
        counter = Counter(client, receiver, outputs, body)
        works = [
            Work(f"{told}, {name}", steps_of(counter, inputs, handle, width), used_by(beside))
            for told, width in (("one handler", 1), (f"{AT_ONCE} handlers", AT_ONCE))
            for name, handle in ((TWO_CALLS, counter.two_calls), (ONE_CALL, counter.one_call))
        ]
        measured = await alternate(works, messages, rounds)
        return {name: steps[SETTLE] for name, steps in measured.items()}


# -- printing ----------------------------------------------------------------------------------------------------------

WIDTH = 44


def table_of_server(costs: Mapping[str, float]) -> list[str]:
    """Return the server's time for each call as lines of text."""
    pairs = {BOTH: ("complete", "send")}
    pairs |= {f"{size} messages, a transaction": (f"{size // 2} completes", f"{size // 2} sends") for size in SIZES}
    lines = ["server time, a call"]
    for name, cost in costs.items():
        line = f"{f'  {name}':<{WIDTH}}{cost:>8.1f} µs"
        if name in pairs:
            line += f"  {cost / sum(costs[each] for each in pairs[name]):.2f} x the two calls"
        lines.append(line)
    return lines


def table_of_client(measured: Mapping[str, Medians]) -> list[str]:
    """Return the measurements of the client as lines of text."""
    lines = [f"{'through the client, complete and send':<{WIDTH}}   a second   client CPU   server CPU"]
    for name, each in measured.items():
        base = measured[f"{name.partition(', ')[0]}, {TWO_CALLS}"]
        lines.append(f"{f'  {name}':<{WIDTH}}{figures(each)}  server {each.server / base.server:.2f} x two calls")
    return lines


def verdicts(costs: Mapping[str, float]) -> list[str]:
    """Return the goals as lines of text, and whether they were met."""
    ratio = costs[BOTH] / (costs["complete"] + costs["send"])
    slower = max(costs[f"{each}, after transactions"] / costs[each] for each in ("complete", "send"))
    rows = [
        (f"server time of a transaction: ≤ {MOST_CPU} x the two calls", f"{ratio:.3f} x", ratio <= MOST_CPU),
        (
            f"on one core of the server: ≥ {LEAST_PER_SECOND:,} a second",
            f"{1e6 / costs[BOTH]:,.0f}",
            1e6 / costs[BOTH] >= LEAST_PER_SECOND,
        ),
        (
            f"a call of its own after transactions: ≤ {MOST_SLOWER} x before",
            f"{slower:.3f} x",
            slower <= MOST_SLOWER,
        ),
    ]
    return ["goals", *(f"{f'  {what}':<60}{value}  {'met' if met else 'MISSED'}" for what, value, met in rows)]


# -- the program -------------------------------------------------------------------------------------------------------


def main() -> None:
    """Start the servers, measure, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--messages", type=int, help="messages for each work (4,000)")
    parser.add_argument("--rounds", type=int, help="measured rounds; medians are printed (5)")
    parser.add_argument("--body", type=int, default=1024, help="bytes of each message's body (1,024)")
    parser.add_argument(
        "--short", action="store_true", help="a short run, to see that it works; its figures mean nothing"
    )
    parser.add_argument("--server", help="which server to start; see sbredis.servers.find_server")
    given = parser.parse_args()
    messages, rounds = given.messages or (200 if given.short else 4_000), given.rounds or (1 if given.short else 5)
    if messages < 100 or rounds < 1 or given.body < 1:
        parser.error("--messages must be 100 at least, and --rounds and --body 1 at least")
    body = b"x" * given.body
    print(
        f"{find_server(given.server)}\nwith its append-only file on; Python {sys.version.split()[0]}; "
        f"{messages:,} messages of {given.body:,} B each time; medians, rounds: {rounds}",
        flush=True,
    )
    with LocalServer(binary=given.server, config=CONFIG) as server, Redis(host=server.host, port=server.port) as client:
        costs = on_server(client, body, messages, rounds)
    print(*table_of_server(costs), sep="\n", flush=True)
    with LocalServer(binary=given.server, config=CONFIG) as server:
        measured = asyncio.run(through_client(server, body, messages, rounds))
    print(*table_of_client(measured), *verdicts(costs), sep="\n")
    if given.short:
        print("A short run: its figures show only that it works.")


if __name__ == "__main__":
    run_as_program(main)
