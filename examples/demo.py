"""sbredis at work on servers that it starts itself: an embedded one that carries a queue, a cluster that loses a node.

python examples/demo.py
"""

from __future__ import annotations

import asyncio
import itertools
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator

from sbredis import ServiceBusError
from sbredis.aio import check_connection
from sbredis.engine import (
    Lock,
    Outgoing,
    Partition,
    PartitionSettings,
    Turn,
    load,
    new_token,
    operations,
    perform,
    read_record,
)
from sbredis.registry import Namespace
from sbredis.servers import LocalCluster
from sbredis.transport import Script, Transport, key_slot, open_transport

CALLERS = 50
NODE_TIMEOUT = 1000  # milliseconds of silence after which the nodes of the cluster elect a new master

ONCE = Script(
    "once",
    """#!lua
-- An operation with an id: done once, however often it arrives.
if redis.call('HSETNX', KEYS[1], ARGV[1], '1') == 1 then
  redis.call('INCR', KEYS[2])
end
return redis.call('HLEN', KEYS[1])""",
)


def say(text: str = "") -> None:
    """Print at once, also into a pipe."""
    print(text, flush=True)


async def embedded(folder: str) -> None:
    """A real server in a folder: started by whoever needs it first, ended after the last one, its data kept."""
    url = f"embedded://{folder}?namespace=demo"
    say("1. An embedded server: a folder is all it takes")
    for visit in ("first", "second"):
        started = time.perf_counter()
        async with await open_transport(url, scripts=[ONCE]) as transport:
            ready = time.perf_counter() - started
            count = await transport.call(ONCE, (b"{demo}:ids", b"{demo}:count"), (f"{visit} visit",), repeatable=True)
            server = transport.servers[0]
            say(f"   {visit} visit: {server}, ready after {ready * 1000:.0f} ms, {count} operation(s) in it")
    say()


async def queue(folder: str) -> bool:
    """A queue on the embedded server: orders are sent, handled, set aside, and one that nobody can handle dies."""
    url = f"embedded://{folder}?namespace=demo"
    say("2. A queue on it: peek-lock, abandon, defer, dead-letter, a schedule")
    scripts = [load(name) for name in operations()]
    async with await open_transport(url, scripts=scripts) as transport:
        namespace = await Namespace.open(transport, "demo")
        settings = PartitionSettings(max_delivery_count=3, duplicate_window=60_000)
        record = await namespace.create_entity("orders", settings)
        orders = namespace.partition(record, record.partitions[0])
        turns = (Turn("demo", number) for number in itertools.count(1))

        batch = [Outgoing(b"order %d" % number, message_id=b"%d" % number) for number in range(1, 1001)]
        sent = await perform(transport, orders.send(next(turns), batch[:900]))
        again = await perform(transport, orders.send(next(turns), batch[800:]))
        in_a_moment = int(time.time() * 1000) + 300
        await perform(transport, orders.send(next(turns), [Outgoing(b"order 1001", due=in_a_moment)]))
        say(f"   sent 900 from number {sent.first} on, 200 more of which {again.dropped} were duplicates, 1 for later")

        handled = await handle(transport, orders, turns)
        counts = await perform(transport, orders.count())
        say(f"   handled {handled}; left: {counts.deferred} deferred, {counts.dead_active} dead letter")
        dead = (await perform(transport, orders.receive(next(turns), new_token(), 10, side="d"))).messages
        for letter in dead:
            say(f"   dead letter {letter.name}: {read_record(letter.record).payload!r} failed {letter.failures} times")
        await namespace.delete_entity("orders")
    say()
    return handled == 999 and counts.deferred == 1 and [one.failures for one in dead] == [3]


async def handle(transport: Transport, orders: Partition, turns: Iterator[Turn]) -> int:
    """Receive until all of it is handled, or set aside, or dead; nothing is asked for before there may be something."""
    handled = 0
    while True:
        token = new_token()
        received = await perform(transport, orders.receive(next(turns), token, 250))
        done: list[Lock] = []
        for message in received.messages:
            payload = read_record(message.record).payload
            if payload == b"order 13":  # nobody can handle this one
                await perform(transport, orders.abandon(next(turns), [Lock(token, message.name)]))
            elif payload == b"order 500":  # this one has to wait for another
                await perform(transport, orders.defer(next(turns), [Lock(token, message.name)]))
            else:
                done.append(Lock(token, message.name))
        if done:
            await perform(transport, orders.complete(next(turns), done))
            handled += len(done)
        elif not received.messages:
            if not received.due:
                return handled
            await asyncio.sleep(received.due / 1000)


async def caller(
    transport: Transport, tag: str, numbers: itertools.count[int], seen: Counter[str], stop: asyncio.Event
) -> None:
    """One of many who run a script again and again."""
    while not stop.is_set():
        operation = f"{tag}-{next(numbers)}"
        keys = (f"{{{tag}}}:ids".encode(), f"{{{tag}}}:count".encode())
        try:
            await transport.call(ONCE, keys, (operation,), timeout=30, repeatable=True)
            seen["done"] += 1
        except ServiceBusError as error:
            seen["errors"] += 1
            say(f"   error: {error}")
        await asyncio.sleep(0.005)


async def killed_node(cluster: LocalCluster) -> bool:
    """Callers on all masters; one master is killed; everybody goes on as soon as its replica has taken over."""
    say(f"   {await check_connection(cluster.url)}".replace("\n", "\n   "))
    seen: Counter[str] = Counter()
    stop = asyncio.Event()
    tags = [f"t{number}" for number in range(CALLERS)]
    async with await open_transport(cluster.url, scripts=[ONCE]) as transport:
        numbers = itertools.count()
        callers = [asyncio.create_task(caller(transport, tag, numbers, seen, stop)) for tag in tags]
        victim = cluster.master_of(key_slot(b"t0"))
        for second in range(8):
            before = seen["done"]
            await asyncio.sleep(0.5)
            speed = (seen["done"] - before) * 2
            say(f"   {second * 0.5 + 0.5:>4.1f} s   {speed:>6} scripts/s   {seen['errors']} errors")
            if second == 1:
                victim.kill()
                say(f"   kill -9 of the master at port {victim.port}")
        stop.set()
        await asyncio.gather(*callers)
        counted = sum(
            [int(await transport.command("GET", f"{{{tag}}}:count", key=f"{{{tag}}}:count".encode())) for tag in tags]
        )
        lost, twice = max(0, seen["done"] - counted), max(0, counted - seen["done"])
        say(f"   {seen['done']} scripts acknowledged, {counted} counted: {lost} lost, {twice} done twice")
        if lost:
            say("   (durability=master: a failover may lose what had not reached the replica)")
    return not seen["errors"] and not twice


def main() -> int:
    """Run the demonstration; 0 if all went as it should."""
    with tempfile.TemporaryDirectory(prefix="sbredis-demo-") as folder:
        asyncio.run(embedded(folder))
        well = asyncio.run(queue(folder))
        say("3. A cluster of three masters and three replicas loses a master under load")
        started = time.perf_counter()
        with LocalCluster(3, 1, node_timeout=NODE_TIMEOUT) as cluster:
            say(f"   started in {time.perf_counter() - started:.1f} s")
            well = asyncio.run(killed_node(cluster)) and well
    say()
    say("All as it should be." if well else "Something went wrong; see above.")
    return 0 if well else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        say("\nStopped; nothing is left running.")
        sys.exit(130)
