"""A demonstration of sbredis on servers that it starts itself: a queue, schedules, sessions, a topic, transactions,
forwarding and redriving, a worker, and a capture with Spark on an embedded server, and a cluster that loses a node.

python examples/demo.py
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from sbredis import ServiceBusMessage, ServiceBusReceivedMessage, ServiceBusSubQueue
from sbredis.aio import AutoLockRenewer, ServiceBusClient, ServiceBusReceiver, ServiceBusSender, check_connection
from sbredis.aio.management import ServiceBusAdministrationClient
from sbredis.exceptions import MessageLockLostError, ServiceBusError, ServiceBusQuotaExceededError, SparkSetupError
from sbredis.management import RuleProperties, SqlRuleAction, SqlRuleFilter
from sbredis.servers import LocalCluster
from sbredis.spark import require_java, require_spark
from sbredis.workers import Context, Retries, Worker

ORDERS = 5000
HANDLERS = 50
SENDERS = 50
ACCOUNTS, PAYMENTS = 40, 50  # the number of accounts, and of payments for each account
CLERKS = 8
CARTS = 300
PICTURES = 1000
BRANCHES, SALES = 4, 500  # the number of branches, and of sales in each branch
READINGS = 20_000
NODE_TIMEOUT = 1000  # milliseconds of silence after which the nodes of the cluster elect a new master


def say(text: str = "") -> None:
    """Print a line and flush it, so that it appears immediately even in a pipe."""
    print(text, flush=True)


# -- one server --------------------------------------------------------------------------------------------------------


async def embedded(url: str) -> None:
    """Use a real server in a folder. The first client starts it, it ends after the last client, and its data stay."""
    say("1. An embedded server: a folder is all it takes")
    for visit in ("first", "second"):
        started = time.perf_counter()
        async with ServiceBusAdministrationClient(url) as administration:
            await administration.ensure_queue(f"{visit}-visit")
            queues = [queue.name async for queue in administration.list_queues()]
            say(f"   {visit} visit: ready after {(time.perf_counter() - started) * 1000:.0f} ms; queues: {queues}")
            if visit == "second":
                await limited(administration)
    say()


async def limited(administration: ServiceBusAdministrationClient) -> None:
    """Limit the namespace, so that it cannot plan to take all memory of the server."""
    await administration.set_namespace_limits(max_entities=2, max_size_in_megabytes=None)
    try:
        await administration.create_queue("third")
    except ServiceBusQuotaExceededError as error:
        say(f"   limited to 2 entities: {error.message.partition('. ')[0]}")
    await administration.set_namespace_limits(max_entities=None, max_size_in_megabytes=None)


async def orders(url: str) -> bool:
    """Send and handle orders: one is deferred, one is scheduled, and one fails until it is a dead letter."""
    say("2. A queue: a stream of sends, 50 handlers, a deferral, a schedule, a dead letter")
    async with ServiceBusClient(url) as client, ServiceBusAdministrationClient(url) as administration:
        await administration.create_queue("orders", max_delivery_count=3, requires_duplicate_detection=True)
        seen: Counter[str] = Counter()
        async with (
            client.get_queue_sender("orders") as sender,
            AutoLockRenewer() as renewer,
            client.get_queue_receiver(
                "orders", prefetch_count=200, auto_lock_renewer=renewer, max_wait_time=1
            ) as receiver,
        ):
            summary = asyncio.create_task(show_counts(administration, seen))
            work = [asyncio.create_task(handle(receiver, seen)) for _ in range(HANDLERS)]
            started = time.perf_counter()
            seen["sent"] = await sender.send_stream(order(number) for number in range(1, ORDERS + 1))
            await sender.send_messages([order(number) for number in range(1, 201)])  # all are duplicates
            await sender.schedule_messages(order(ORDERS + 1), datetime.now(UTC) + timedelta(seconds=0.5))
            await asyncio.gather(*work)
            summary.cancel()
            seconds = time.perf_counter() - started - 1  # the handlers end after a second without a message
            say(f"   handled {seen['handled']} orders in {seconds:.1f} s; 200 were duplicates")
            (deferred,) = await receiver.receive_deferred_messages(seen["deferred"])
            say(f"   the deferred one, received by its number: {deferred}")
            await receiver.complete_message(deferred)
        async with client.get_queue_receiver("orders", sub_queue=ServiceBusSubQueue.DEAD_LETTER) as dead:
            letters = await dead.receive_messages(10, max_wait_time=1)
            for letter in letters:
                say(f"   dead letter: {letter}: {letter.dead_letter_reason}")
    say()
    return seen["handled"] == ORDERS - 1 and [str(letter) for letter in letters] == ["order 13"]


def order(number: int) -> ServiceBusMessage:
    """Make an order, whose message id is made from its number."""
    return ServiceBusMessage(f"order {number}", message_id=f"order-{number}", application_properties={"number": number})


async def handle(receiver: ServiceBusReceiver, seen: Counter[str]) -> None:
    """Handle messages until none has arrived for a second. Several of these tasks run at the same time."""
    async for message in receiver:
        number = (message.application_properties or {})["number"]
        if number == 13:  # no handler can handle this order
            await receiver.abandon_message(message)
        elif number == 500:  # the order is deferred and handled later
            seen["deferred"] = message.sequence_number
            await receiver.defer_message(message)
        else:
            await receiver.complete_message(message)
            seen["handled"] += 1


async def show_counts(administration: ServiceBusAdministrationClient, seen: Counter[str]) -> None:
    """Print the counts of the queue four times a second."""
    while True:
        now = await administration.get_queue_runtime_properties("orders")
        say(
            f"   {seen['handled']:>6} handled   {now.active_message_count:>5} waiting or in work   "
            f"{now.scheduled_message_count} scheduled   {now.dead_letter_message_count} dead"
        )
        await asyncio.sleep(0.25)


async def reminders(url: str) -> bool:
    """Schedule a reminder. It is enqueued and expires on time, although no client sends or receives then."""
    say("3. Time: without senders and receivers, everything happens as of the time when it was due")
    async with ServiceBusClient(url) as client, ServiceBusAdministrationClient(url) as administration:
        await administration.create_queue("reminders", dead_lettering_on_message_expiration=True)
        due = (datetime.now(UTC) + timedelta(seconds=0.4)).replace(microsecond=0) + timedelta(seconds=1)
        async with client.get_queue_sender("reminders") as sender:
            reminder = ServiceBusMessage("pay the rent", time_to_live=timedelta(seconds=0.5))
            await sender.schedule_messages(reminder, due)
        counts = (0, 0, 0)
        while not counts[2]:
            now = await administration.get_queue_runtime_properties("reminders")
            after = (now.scheduled_message_count, now.active_message_count, now.dead_letter_message_count)
            if after != counts:
                counts = after
                late = (datetime.now(UTC) - due).total_seconds()
                say(f"   {late:+5.2f} s   {counts[0]} scheduled   {counts[1]} active   {counts[2]} dead")
            await asyncio.sleep(0.02)
        async with client.get_queue_receiver("reminders", sub_queue=ServiceBusSubQueue.DEAD_LETTER) as dead:
            (letter,) = await dead.receive_messages(1, max_wait_time=1)
            say(f"   {letter}: {letter.dead_letter_reason}; it was enqueued at {letter.enqueued_time_utc:%H:%M:%S.%f}")
            await dead.complete_message(letter)
    say()
    return letter.enqueued_time_utc == due


async def payments(url: str) -> bool:
    """Handle the payments of each account in order, and send them to a topic, where a rule selects some."""
    say(f"4. Sessions and a topic: {CLERKS} workers handle each account's payments in order; a rule selects some")
    async with ServiceBusClient(url) as client, ServiceBusAdministrationClient(url) as administration:
        await administration.create_queue("payments", requires_session=True)
        await administration.create_topic("ledger")
        await administration.create_subscription("ledger", "all")
        large = RuleProperties("large", filter=SqlRuleFilter("amount > 45"), action=SqlRuleAction("SET audit = TRUE"))
        await administration.create_subscription("ledger", "large", rules=[large])
        async with client.get_queue_sender("payments") as sender:
            mixed = ((account, amount) for amount in range(PAYMENTS) for account in range(ACCOUNTS))
            await sender.send_stream(ServiceBusMessage(str(amount), session_id=f"{name}") for name, amount in mixed)
        handled: defaultdict[str, list[int]] = defaultdict(list)
        summary = asyncio.create_task(show_ledger(administration, handled))
        started = time.perf_counter()
        await asyncio.gather(*[asyncio.create_task(clerk(client, handled)) for _ in range(CLERKS)])
        summary.cancel()
        seconds = time.perf_counter() - started - 0.5  # the workers end after half a second without a session
        ordered = list(handled.values()) == [list(range(PAYMENTS))] * ACCOUNTS
        say(f"   handled {ACCOUNTS * PAYMENTS} payments of {ACCOUNTS} accounts in {seconds:.1f} s; in order: {ordered}")
        async with client.get_subscription_receiver("ledger", "large") as receiver:
            (one, *others) = await receiver.receive_messages(1000, max_wait_time=1)
        say(f"   the rule selected {1 + len(others)}; one of them: {one.application_properties}")
    say()
    return ordered and 1 + len(others) == ACCOUNTS * (PAYMENTS - 46)


async def clerk(client: ServiceBusClient, handled: dict[str, list[int]]) -> None:
    """Accept an account that no other worker has, handle some of its payments, and continue with another account."""
    async with client.get_topic_sender("ledger") as ledger:
        while (receiver := await client.accept_next_session("payments", max_wait_time=0.5)) is not None:
            async with receiver:
                for message in await receiver.receive_messages(10, max_wait_time=0.5):
                    account, amount = message.session_id or "", int(str(message))
                    handled[account].append(amount)
                    await ledger.send_messages(
                        ServiceBusMessage(account, application_properties={"account": account, "amount": amount})
                    )
                    await receiver.complete_message(message)


async def show_ledger(administration: ServiceBusAdministrationClient, handled: dict[str, list[int]]) -> None:
    """Print the number of handled payments, and the counts of the subscriptions, four times a second."""
    while True:
        counts = [
            f"{each.name}: {each.active_message_count:>5}"
            async for each in administration.list_subscriptions_runtime_properties("ledger")
        ]
        say(f"   {sum(map(len, handled.values())):>6} handled   {'   '.join(counts)}")
        await asyncio.sleep(0.25)


async def invoices(url: str) -> bool:
    """Complete each cart and send its invoice in one transaction. Every second cart fails once before that."""
    say(f"5. Transactions: {CARTS} carts, each completed in one step with the sending of its invoice")
    async with ServiceBusClient(url) as client:
        await client.ensure_queue("carts")
        await client.ensure_queue("invoices", colocate_with="carts")
        seen: Counter[str] = Counter()
        async with (
            client.get_queue_sender("carts") as carts,
            client.get_queue_sender("invoices") as sender,
            client.get_queue_receiver("carts", max_wait_time=0.5) as receiver,
            client.get_queue_receiver("invoices", max_wait_time=0.5) as results,
        ):
            await carts.send_messages([ServiceBusMessage(f"cart {number}") for number in range(CARTS)])
            await asyncio.gather(
                *[asyncio.create_task(write_invoices(client, receiver, sender, seen)) for _ in range(CLERKS)]
            )
            found: Counter[str] = Counter()
            while letters := await results.receive_messages(100):
                found.update(map(str, letters))
                await results.complete_messages(letters)
    missing, twice = CARTS - len(found), sum(1 for times in found.values() if times > 1)
    say(f"   {seen['failures']} handlers failed halfway; {len(found)} invoices: {missing} missing, {twice} twice")
    say()
    return seen["failures"] > 0 and not missing and not twice


async def write_invoices(
    client: ServiceBusClient, receiver: ServiceBusReceiver, sender: ServiceBusSender, seen: Counter[str]
) -> None:
    """Handle carts until none has arrived for half a second. If a handler fails, it abandons the cart."""
    async for cart in receiver:
        try:
            async with client.transaction() as tx:
                tx.send_messages(sender, ServiceBusMessage(f"invoice for {cart}"))
                tx.complete_message(cart)
                fail_once(cart)
        except ValueError:  # the block has changed nothing, and the cart is still locked
            seen["failures"] += 1
            await receiver.abandon_message(cart)


def fail_once(cart: ServiceBusReceivedMessage) -> None:
    """Raise an error for the first delivery of every second cart."""
    if cart.delivery_count == 1 and str(cart).endswith(tuple("02468")):
        raise ValueError(cart)


async def sales(url: str) -> bool:
    """Forward the sales of branches to a collector. Then redrive the sales that a faulty handler has dead-lettered."""
    say(f"6. Forwarding and redriving: {BRANCHES} branches forward {SALES} sales each to one collector")
    async with ServiceBusClient(url, maintenance=True) as client:  # this client also moves the messages
        await client.ensure_queue("collector")
        expected = {f"branch {branch}, sale {number}" for branch in range(BRANCHES) for number in range(SALES)}
        started = time.perf_counter()
        for branch in range(BRANCHES):
            await client.ensure_queue(f"branch-{branch}", forward_to="collector")
            async with client.get_queue_sender(f"branch-{branch}") as sender:
                await sender.send_stream(ServiceBusMessage(f"branch {branch}, sale {n}") for n in range(SALES))
        found: Counter[str] = Counter()
        async with client.get_queue_receiver("collector", prefetch_count=200, max_wait_time=5) as receiver:
            while found.total() < len(expected) and (messages := await receiver.receive_messages(200)):
                faulty, fine = messages[:10], messages[10:]  # the handler fails for some messages of each batch
                await asyncio.gather(*(receiver.dead_letter_message(each, "HandlerFailed") for each in faulty))
                await receiver.complete_messages(fine)
                found.update(map(str, messages))
            say(f"   {found.total()} sales have arrived after {time.perf_counter() - started:.1f} s")
            async with client.get_queue_receiver("collector", sub_queue=ServiceBusSubQueue.DEAD_LETTER) as dead:
                redriven = await dead.redrive_messages()
            say(f"   the handler has failed {redriven.moved} times; these sales were put back")
            again = 0
            while messages := await receiver.receive_messages(200, max_wait_time=1):
                again += len(messages)
                await receiver.complete_messages(messages)
    say()
    return found.keys() == expected and max(found.values()) == 1 and again == redriven.moved > 0


async def pictures(url: str) -> bool:
    """Let a worker call handlers. Some fail once and are called again, one always fails, and one asks for a price."""
    say(f"7. A worker: {PICTURES} pictures, retries, a dead letter, batches, a schedule, a request")
    logging.getLogger("sbredis.worker").setLevel(logging.CRITICAL)  # the handlers fail on purpose
    worker = Worker(url, retries=Retries(first_delay=0.05, longest_delay=0.2))
    seen: Counter[str] = Counter()
    letters: asyncio.Queue[str] = asyncio.Queue()
    done, ticked = asyncio.Event(), asyncio.Event()

    @worker.queue("studio", max_concurrent_calls=50, create_if_missing={"max_delivery_count": 3})
    async def paint(number: int, context: Context) -> None:
        if number == 13 or (number % 10 == 0 and context.attempt == 1):
            seen["failures"] += 1
            raise ValueError(f"nobody can paint {number}")
        context.send("gallery", f"picture {number}")  # goes out with the completion, or not at all

    @worker.queue("prices", replies=True, create_if_missing=True)
    def appraise(number: int) -> float:  # a plain function runs in a thread
        return number * 1.5

    @worker.queue("gallery", batch=200, batch_wait=0.1, create_if_missing={"colocate_with": "studio"})
    async def hang(found: list[str]) -> None:
        seen.update(found)
        seen["batches"] += 1
        if sum(each.startswith("picture") for each in seen) == PICTURES - 1:
            done.set()

    @worker.cron(every=timedelta(seconds=1))
    async def look_around() -> None:  # once a second, however many workers run
        seen["ticks"] += 1
        ticked.set()

    @worker.queue("studio", sub_queue="deadletter")
    async def bury(number: int, message: ServiceBusReceivedMessage) -> None:
        letters.put_nowait(f"{number}: {message.dead_letter_reason}: {message.dead_letter_error_description}")

    started = time.perf_counter()
    async with worker.running(), ServiceBusClient(url) as client:
        async with asyncio.TaskGroup() as group:
            for number in range(PICTURES):
                group.create_task(worker.send("studio", number))
        price = await client.request("prices", 12, timeout=30)
        letter = await letters.get()
        await done.wait()
        await ticked.wait()
    twice = sum(1 for name, times in seen.items() if name.startswith("picture") and times > 1)
    seconds = time.perf_counter() - started
    say(f"   painted {PICTURES - 1} pictures in {seconds:.1f} s; {seen['failures']} attempts failed")
    say(f"   they were hung in {seen['batches']} batches, {twice} of them twice")
    say(f"   dead letter: {letter}")
    say(f"   ticks of the schedule: {seen['ticks']}; the price of picture 12 is {price}")
    say()
    return not twice and price == 18 and letter == "13: ValueError: nobody can paint 13"


def readings(url: str, folder: Path) -> bool:
    """Capture readings with Spark into parquet files, in two runs. Spark is left out if it is not installed."""
    say(f"8. Spark: {READINGS} readings move into parquet files, each exactly once")
    try:
        require_spark()
        require_java()
    except SparkSetupError as missing:
        say(f"   left out. {missing.message}")
        say()
        return True
    from pyarrow import parquet

    arguments = ["capture", "readings", "--to", str(folder / "captured"), "--checkpoint", str(folder / "checkpoint")]
    for half in range(2):
        asyncio.run(measure(url, range(half * READINGS // 2, (half + 1) * READINGS // 2)))
        started = time.perf_counter()
        say("   python -m sbredis.spark capture readings --to captured --checkpoint checkpoint")
        ran = subprocess.run(
            [sys.executable, "-m", "sbredis.spark", *arguments],
            env={**os.environ, "SBREDIS_URL": url},
            capture_output=True,
            text=True,
            check=False,
        )
        if ran.returncode:
            say(ran.stderr)
            return False
        done, *_ = ran.stdout.splitlines()
        say(f"   {done}, in {time.perf_counter() - started:.0f} s with the start of Spark")
    found = parquet.read_table(folder / "captured").column("body").to_pylist()
    say(f"   the files have {len(found)} readings, {len(found) - len(set(found))} of them twice")
    say()
    return len(found) == len(set(found)) == READINGS


async def measure(url: str, numbers: Iterable[int]) -> None:
    """Send a reading for each number."""
    async with ServiceBusClient(url) as client:
        await client.ensure_queue("readings", enable_partitioning=True)
        async with client.get_queue_sender("readings") as sender:
            await sender.send_stream(ServiceBusMessage(f"reading {number}") for number in numbers)


# -- a cluster ---------------------------------------------------------------------------------------------------------


async def killed_node(cluster: LocalCluster) -> bool:
    """Send and handle events in 16 partitions, and kill a master. All tasks continue when its replica takes over."""
    say(f"   {await check_connection(cluster.url)}".replace("\n", "\n   "))
    seen: Counter[str] = Counter()
    acknowledged: set[str] = set()
    completed: Counter[str] = Counter()
    stop = asyncio.Event()
    async with ServiceBusClient(cluster.url) as client:
        await client.ensure_queue("events", enable_partitioning=True)
        async with (
            client.get_queue_sender("events") as sender,
            client.get_queue_receiver("events", prefetch_count=100, max_wait_time=4) as receiver,
        ):
            work = [asyncio.create_task(send(sender, name, acknowledged, seen, stop)) for name in range(SENDERS)]
            work += [asyncio.create_task(complete(receiver, completed, seen)) for _ in range(SENDERS)]
            victim = cluster.masters[0]
            for half in range(1, 9):
                before = seen["completed"]
                await asyncio.sleep(0.5)
                speed = (seen["completed"] - before) * 2
                say(f"   {half / 2:>4.1f} s   {speed:>6} handled/s   {seen['errors']} errors")
                if half == 2:
                    victim.kill()
                    say(f"   kill -9 of the master at port {victim.port}")
            stop.set()
            await asyncio.gather(*work)
    lost, twice = len(acknowledged - set(completed)), sum(1 for times in completed.values() if times > 1)
    say(f"   {len(acknowledged)} acknowledged, {len(completed)} handled: {lost} lost, {twice} completed twice")
    if lost:
        say("   (durability=master: a failover may lose messages that had not reached the replica)")
    return not seen["errors"] and not twice


async def send(
    sender: ServiceBusSender, name: int, acknowledged: set[str], seen: Counter[str], stop: asyncio.Event
) -> None:
    """Send one event after the other, until ``stop`` is set. Many of these tasks run at the same time."""
    number = 0
    while not stop.is_set():
        number += 1
        event = f"{name}-{number}"
        try:
            await sender.send_messages(ServiceBusMessage(event))
            acknowledged.add(event)
        except ServiceBusError as error:
            seen["errors"] += 1
            say(f"   error: {error}")
        await asyncio.sleep(0.005)


async def complete(receiver: ServiceBusReceiver, completed: Counter[str], seen: Counter[str]) -> None:
    """Complete messages as they arrive. Many of these tasks run at the same time."""
    async for message in receiver:
        await settle(receiver, message, completed, seen)


async def settle(
    receiver: ServiceBusReceiver, message: ServiceBusReceivedMessage, completed: Counter[str], seen: Counter[str]
) -> None:
    """Complete a message. If the failover has lost the lock on a message, the message is delivered again."""
    try:
        await receiver.complete_message(message)
        completed[str(message)] += 1
        seen["completed"] += 1
    except MessageLockLostError:
        seen["lost locks"] += 1
    except ServiceBusError as error:
        seen["errors"] += 1
        say(f"   error: {error}")


def main() -> int:
    """Run the demonstration; return 0 if everything worked."""
    with tempfile.TemporaryDirectory(prefix="sbredis-demo-") as folder:
        url = f"embedded://{folder}?namespace=demo"
        asyncio.run(embedded(url))
        passed = asyncio.run(orders(url))
        passed = asyncio.run(reminders(url)) and passed
        passed = asyncio.run(payments(url)) and passed
        passed = asyncio.run(invoices(url)) and passed
        passed = asyncio.run(sales(url)) and passed
        passed = asyncio.run(pictures(url)) and passed
        passed = readings(url, Path(folder)) and passed
    say("9. A cluster of three masters and three replicas loses a master under load")
    started = time.perf_counter()
    with LocalCluster(3, 1, node_timeout=NODE_TIMEOUT) as cluster:
        say(f"   started in {time.perf_counter() - started:.1f} s")
        passed = asyncio.run(killed_node(cluster)) and passed
    say()
    say("Everything worked." if passed else "Something went wrong; see above.")
    return 0 if passed else 1


if __name__ == "__main__":
    argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0]).parse_args()
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        say("\nStopped; nothing is left running.")
        sys.exit(130)
