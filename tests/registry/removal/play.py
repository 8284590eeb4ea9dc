"""Clients that use, read, remove, delete and create entities at the same time, with their calls in random order.

A remover may die before or after any of its calls, and servers may be unreachable. Only one call is made at a time, so
the witness knows the order of all calls.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from sbredis.engine import (
    Copy,
    Outgoing,
    Partition,
    PartitionSettings,
    Request,
    SettingsBehindError,
    SettingsStaleError,
    quiet,
    slot_salt,
    transact,
    transfer,
)
from sbredis.exceptions import MessagingEntityAlreadyExistsError, MessagingEntityNotFoundError
from sbredis.registry import EntityRecord, Namespace
from sbredis.rules import Rule, TrueFilter
from sbredis.transport import Transport
from tests.engine.taking import first_token
from tests.registry.removal.calls import FAR, TRIES, Calls
from tests.registry.removal.turns import REGISTRY, Client
from tests.registry.removal.witness import IDLE, MINUTE, NAMESPACE, PARTITIONS, About, Entity, Witness

__all__ = ["START", "Play"]

START = 1_700_000_000_000
QUEUE = PartitionSettings(clock="test")
TOPIC = replace(QUEUE, topic=True)
SHARED = replace(QUEUE, shared=True)
PROPERTIES = {"auto_delete_on_idle": IDLE}

USERS = (
    *("send", "send", "receive", "receive", "peek", "schedule", "schedule", "update", "rule", "forward"),
    *("transfer", "transfer", "bury", "bury"),
)
OTHERS = (
    *("remove", "remove", "remove", "remove", "read", "count", "list", "ask"),
    *("look", "visit", "move", "move", "delete", "create", "lose"),
)


class Play(Calls):
    """One example: some entities, and several rounds in which clients act."""

    def __init__(self, transport: Transport, witness: Witness, chance: random.Random) -> None:
        super().__init__(witness, chance)
        self.transport = transport
        self.paths: list[str] = []
        self.far = Partition(NAMESPACE, "far", FAR.entity, "far", 1, QUEUE)
        self.users = [Client(self, "user") for _ in range(2)]
        self.forwarding = self.forwarding_dead = False
        self._numbers = itertools.count(1)

    # -- the work of users ---------------------------------------------------------------------------------------------

    def _send(self, partition: Partition, about: About) -> Request[Any]:
        del about
        return partition.send(self.call_id(), [Outgoing(b"m")])

    def _schedule(self, partition: Partition, about: About) -> Request[Any]:
        about.due = self.witness.now + self.chance.randrange(1, 2 * IDLE)
        return partition.send(self.call_id(), [Outgoing(b"m", due=about.due)])

    def _receive(self, partition: Partition, about: About) -> Request[Any]:
        about.request = self.receiving(partition, first_token(), mode="delete")
        return about.request

    def _transfer(self, partition: Partition, about: About) -> Request[Any]:
        del about
        return transact(self.call_id(), [transfer(partition, [Outgoing(b"m")], self.far, FAR.number, "far")])

    def _peek(self, partition: Partition, about: About) -> Request[Any]:
        del about
        return partition.peek(0, 1, call_id=self.call_id())

    def _touch(self, partition: Partition, about: About) -> Request[Any]:
        del about
        return partition.touch(self.call_id())

    def _count(self, partition: Partition, about: About) -> Request[Any]:
        del about
        return partition.count(self.call_id())

    def _visit(self, partition: Partition, about: About) -> Request[Any]:
        del about
        return partition.due(self.call_id())

    async def _publish(self, client: Client, path: str) -> None:
        for _ in range(TRIES):
            active = (
                {
                    each.record.id
                    for each in self.witness.family(entity)[1:]
                    if each.record.state in ("active", "removing")
                }
                if (entity := self.witness.at(path))
                else set[str]()
            )
            routes = await client.namespace.routes(path)
            number = self.chance.choice(routes.topic.partitions)
            targets = [client.namespace.partition(each.record, number) for each in routes.subscriptions]
            left_out = {
                id_
                for id_ in active - {each.record.id for each in routes.subscriptions}
                if self.witness.entities[id_].record.state in ("active", "removing")
                and id_ in self.witness.there.values()
            }
            assert not left_out, f"a message of {path} is not for all of its subscriptions"
            topic = client.namespace.partition(routes.topic, number)
            copies = [[Copy(place) for place in range(len(targets))]]
            try:
                await self.ask(client, topic.publish(self.call_id(), [Outgoing(b"m")], copies, targets))
            except SettingsStaleError:
                self.witness.tally["a user reads topic again"] += 1
            except SettingsBehindError:
                await self.ask(client, topic.configure(now=self.witness.now))
            else:
                return
        raise AssertionError(f"{path} stays closed")

    async def _update(self, client: Client, path: str, *, forwards: bool) -> None:
        record = await self.find(client, path)
        settings = replace(record.settings, forwards=not record.settings.forwards) if forwards else record.settings
        await client.namespace.update_entity(record, settings, properties={**PROPERTIES, "n": next(self._numbers)})

    def work_of_user(self, client: Client, what: str, path: str) -> Callable[[], Awaitable[object]]:
        entity = self.witness.at(path)
        kind = "queue" if entity is None else entity.record.kind
        if what in ("send", "schedule") and kind != "queue":
            topic = path.partition("/")[0]
            return lambda: self._publish(client, topic)
        if what == "rule" and kind == "subscription":
            topic, _, name = path.split("/")
            rule = Rule(f"r{next(self._numbers)}", TrueFilter())
            return lambda: client.namespace.create_rule(topic, name, rule)
        if what == "update" or (what == "forward" and kind != "topic"):
            return lambda: self._update(client, path, forwards=what == "forward")
        if what == "transfer":
            return lambda: self.use(client, path, self._transfer)
        if kind == "topic":
            return lambda: self._publish(client, path)
        if what == "bury":
            number = self.chance.randrange(PARTITIONS) if self.partition is None else self.partition
            return lambda: self.bury(client, path, number)
        if what == "peek":
            return lambda: self._look_and_note(client, path)
        make = {"send": self._send, "schedule": self._schedule}.get(what, self._receive)
        return lambda: self.use(client, path, make)

    async def _look_and_note(self, client: Client, path: str) -> None:
        await self.use(client, path, self._peek)
        await self.use(client, path, self._touch, once=True)

    # -- the work of others --------------------------------------------------------------------------------------------

    def work_of_others(self, client: Client, what: str, path: str) -> Callable[[], Awaitable[object]]:
        if what == "remove":
            return lambda: self.remove(client, path)
        if what == "delete":
            return lambda: client.namespace.delete_entity(path)
        if what == "create":
            return lambda: self.create(client, path)
        if what == "list":
            return lambda: self._list(client)
        if what == "ask":
            return lambda: self._ask_quiet(client)
        if what == "move":
            number = self.chance.randrange(PARTITIONS)
            return lambda: self.move(client, path, number, stops=0.4)
        if what in ("count", "look", "visit"):
            make = {"count": self._count, "look": self._peek, "visit": self._visit}[what]
            return lambda: self.use(client, path, make)
        return lambda: self.find(client, path)

    async def remove(self, client: Client, path: str) -> bool:
        entity = self.witness.at(path)
        record = client.known.get(path) or (entity.record if entity is not None else None)
        if record is None:
            return False
        if record.state == "deleting":
            await client.namespace.finish_deletion(record)
            return False
        done = await client.namespace.remove_if_idle(record, IDLE)
        after = self.witness.at(path)
        assert not done.removed or after is None or after.record.incarnation != record.incarnation
        self.witness.tally[
            f"{record.kind} {'removed' if done.removed else 'kept: used' if done.quiet else 'kept'}"
        ] += 1
        return done.removed

    async def create(self, client: Client, path: str, *, forwards: bool = False) -> None:
        topic, _, name = path.partition("/subscriptions/")
        with suppress(MessagingEntityAlreadyExistsError):
            if name:
                rules = [Rule("all", TrueFilter())]
                settings = replace(SHARED, forwards=forwards, forwards_dead=self.forwarding_dead)
                await client.namespace.create_subscription(topic, name, settings, rules=rules, properties=PROPERTIES)
            elif path.startswith("T"):
                await client.namespace.create_entity(path, TOPIC, kind="topic", partitioned=True)
            else:
                settings = replace(QUEUE, forwards=forwards, forwards_dead=self.forwarding_dead)
                await client.namespace.create_entity(path, settings, partitioned=True, properties=PROPERTIES)

    async def _list(self, client: Client) -> None:
        await client.namespace.list_entities()
        for path in self.paths:
            if path == "T":
                await client.namespace.list_subscriptions(path)

    async def _ask_quiet(self, client: Client) -> None:
        number = self.chance.randrange(PARTITIONS)
        asked = [(each.record.id, each.record.store) for each in self.witness.entities.values() if number in each.uses]
        if asked:
            await self.ask(
                client, quiet(NAMESPACE, slot_salt(NAMESPACE, number, PARTITIONS), asked[-20:], self.witness.now)
            )

    async def lose(self, path: str) -> None:
        """Lose a partition of a queue in a failover, with its messages and the time of its last use."""
        entity = self.witness.at(path)
        if entity is None or entity.record.kind != "queue" or entity.removed or self._unsettled(entity):
            return
        number = self.chance.randrange(PARTITIONS)
        partition = self.users[0].namespace.partition(entity.record, number)
        await self.transport.command("DEL", *partition.keys, key=partition.keys[0])
        entity.messages[number] = 0
        entity.uses.pop(number, None)
        entity.dues.pop(number, None)
        entity.waiting.pop(number, None)
        entity.batches.pop(number, None)
        self.witness.tally["queue partition lost"] += 1

    def _unsettled(self, entity: Entity) -> bool:
        return entity.record.state in ("creating", "deleting")

    # -- a round, and the end ------------------------------------------------------------------------------------------

    async def begin(self) -> None:
        chance, self.witness.now = self.chance, START
        self.paths = ["Q"] + ["F"] * (chance.random() < 0.3)
        if chance.random() < 0.7:
            self.paths += ["T", "T/subscriptions/S", "T/subscriptions/Z"]
        self.forwarding = chance.random() < 0.15
        self.forwarding_dead = chance.random() < 0.4
        await Namespace.open(self.transport, NAMESPACE, PARTITIONS)
        for path in self.paths:
            await self._made(path)

    async def _made(self, path: str) -> None:
        forwards = path == "F" or (path.endswith("Z") and self.forwarding)
        client = Client(self, "creator")
        await self.alone(client, "create", lambda: self.create(client, path, forwards=forwards))

    async def round(self) -> None:
        """Let some time pass, and let some clients act."""
        chance = self.chance
        for path in self.paths:
            if self.witness.at(path) is None and chance.random() < 0.7:
                await self._made(path)
        contested = chance.random() < 0.6
        short = chance.randrange(MINUTE)
        steps = (0, short, short, IDLE - short, IDLE, IDLE + MINUTE - 1, 3 * IDLE)
        self.witness.now += IDLE + MINUTE if contested else chance.choice(steps)
        self.sealed = {chance.choice((REGISTRY, *range(PARTITIONS)))} if chance.random() < 0.2 else set()
        works: list[tuple[Client, str, Callable[[], Awaitable[object]]]] = []
        users = [*self.users]
        path = chance.choice(self.paths)
        for place in range(chance.randrange(2, 6)):
            if chance.random() < 0.25:
                path = chance.choice(self.paths if not path.startswith("T") else self.paths[-3:])
            if users and chance.random() < 0.45 and not (contested and place == 0):
                what, client = chance.choice(USERS), users.pop()
                of = path if path != "T" or chance.random() < 0.4 else chance.choice(self.paths[-2:])
                works.append((client, what, self.work_of_user(client, what, of)))
                continue
            what = "remove" if contested and place == 0 else chance.choice(OTHERS)
            if what == "lose":
                await self.lose(path)
                continue
            role = {"remove": "remover", "delete": "deleter", "create": "creator"}.get(what, "reader")
            client = Client(self, role)
            if role == "remover" and (seen := self.witness.at(path)) and chance.random() < 0.8:
                client.known[path] = seen.record
            works.append((client, what, self.work_of_others(client, what, path)))
        await self.together(works, chance.choice((0, 0, 0.15)))

    async def last_moment(self) -> None:
        """Use a subscription in the middle of the removal of its topic, or use a queue in the middle of its removal."""
        chance, self.sealed = self.chance, set()
        for path in self.paths:
            if self.witness.at(path) is None:
                await self._made(path)
        path = chance.choice([each for each in self.paths if each != "T"])
        self.witness.now += 3 * IDLE
        user, remover = chance.choice((self.users[0], Client(self, "reader"))), Client(self, "remover")
        works = [
            (remover, "remove", self.work_of_others(remover, "remove", path.partition("/")[0])),
            (user, "receive", lambda: self.use(user, path, self._receive)),
        ]
        await self.together(works, 0, held_back=chance.randrange(30), steady=1.0)

    async def used_twice(self) -> None:
        """Use a partition twice within a minute, so that the second use is not noted, and try to remove the entity."""
        chance, path = self.chance, self.chance.choice([each for each in self.paths if each != "T"])
        if self.witness.at(path) is None:
            return
        self.sealed, self.partition = set(), chance.randrange(PARTITIONS)
        self.witness.now += IDLE
        short = chance.randrange(MINUTE)
        for pause in (short, IDLE - chance.randrange(short + 1)):
            user = self.users[0]
            await self.alone(user, "peek", self.work_of_user(user, "peek", path))
            self.witness.now += pause
        self.sealed = {self.partition} if chance.random() < 0.4 else set()
        remover = Client(self, "remover")
        await self.alone(remover, "remove", self.work_of_others(remover, "remove", path))
        self.partition = None

    async def left_waiting(self) -> None:
        """Leave a message that waits to be moved, or a batch, and try to remove the entity or its topic."""
        chance, path = self.chance, self.chance.choice(self.paths)
        if self.witness.at(path) is None:
            return
        self.sealed, number, user = set(), chance.randrange(PARTITIONS), self.users[0]
        self.partition = number
        for what in chance.choice((("transfer",), ("send", "bury"))):
            await self.alone(user, what, self.work_of_user(user, what, path))
        if chance.random() < 0.5:
            mover = Client(self, "reader")
            await self.alone(mover, "move", lambda: self.move(mover, path, number, stops=1))
        self.partition = None
        self.witness.now += 3 * IDLE
        remover, of = Client(self, "remover"), chance.choice((path, path.partition("/")[0]))
        await self.alone(remover, "remove", self.work_of_others(remover, "remove", of))

    async def end(self) -> None:
        """Check that no message is lost, and that all entities that nobody uses are removed."""
        self.sealed = set()
        await self._count_all()
        for _ in range(4):
            if all(each.settings.forwards for each in self._left()):
                break
            await self._visit_all()
            await self._move_all()
            self.witness.now += IDLE + MINUTE
            for path in self.paths:
                remover = Client(self, "remover")
                await self.alone(remover, "remove", self.work_of_others(remover, "remove", path))
        left = self._left()
        kept = {each.path for each in left if each.settings.forwards}
        kept |= {each.parent for each in left if each.parent and each.settings.forwards}
        assert {each.path for each in left} == kept, "an entity that is not used was not removed"
        keys = await self.transport.command("KEYS", f"sb:{NAMESPACE}:*", key=b"any")
        of = {place[0] for key in keys if (place := self.witness.place([key]))}
        assert of == {*self.witness.there.values()}, "a partition of an entity that is gone is left"
        for each in kept:
            self.witness.tally["an entity that forwards is kept"] += each is not None

    def _left(self) -> list[EntityRecord]:
        return [self.witness.entities[id_].record for id_ in self.witness.there.values()]

    async def _visit_all(self) -> None:
        for path in [*self.witness.there]:
            entity = self.witness.at(path)
            if entity is not None and entity.dues:
                self.witness.now = max(self.witness.now, entity.used())
                for number in entity.record.partitions:
                    await self._of_partition(path, number, self._visit)

    async def _move_all(self) -> None:
        for path in [*self.witness.there]:
            entity = self.witness.at(path)
            for number in (*(entity.waiting if entity else ()), *(entity.batches if entity else ())):
                for _ in range(2):  # the second time the messages that were not in a batch yet
                    mover = Client(self, "reader")
                    await self.alone(mover, "move", lambda m=mover, n=number: self.move(m, path, n, stops=0))  # type: ignore[misc]  # noqa: B023

    async def _count_all(self) -> None:
        for path in [*self.witness.there]:
            found = self.witness.at(path)
            if found is not None and found.record.kind != "topic":
                for number in found.record.partitions:
                    counts = await self._of_partition(path, number, self._count)
                    if counts is not None and self.witness.at(path) is found:
                        there = sum(counts[4:-1])
                        assert there == found.messages[number], f"{path} has lost a message: {counts}"

    async def _of_partition(self, path: str, number: int, make: Callable[[Partition, About], Request[Any]]) -> Any:
        """Return the result of a call to one partition, or None if the entity is gone."""
        client, result = Client(self, "reader"), []

        async def work() -> None:
            record = await self.find(client, path)
            for _ in range(TRIES):
                partition = client.namespace.partition(record, number)
                try:
                    result.append(await self.ask(client, make(partition, About())))
                    return
                except SettingsStaleError:
                    record = await self.find(client, path)
                except SettingsBehindError:
                    await self.ask(client, partition.configure(now=self.witness.now))
                except MessagingEntityNotFoundError:
                    record = await self.restored(client, record)

        await self.alone(client, "count", work)
        return result[0] if result else None
