"""Scenes of a run of removals: each prepares a situation that is rare by chance, and lets clients act in it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from tests.registry.removal.play import Play
from tests.registry.removal.turns import Client, Waiting
from tests.registry.removal.witness import IDLE, MINUTE

__all__ = ["SCENES", "Scenes"]

Work = tuple[Client, str, Callable[[], Awaitable[object]]]

SCENES: dict[str, int] = {
    "round": 12,
    "used_twice": 2,
    "last_moment": 2,
    "left_waiting": 2,
    "used_a_while_ago": 1,
    "scheduled_for_later": 1,
    "used_between": 1,
    "queue_used_between": 1,
    "subscription_used_between": 1,
    "deleted_between": 1,
    "updated_between": 1,
    "updated_by_two": 1,
    "updated_in_part": 1,
    "removed_by_two": 1,
    "topic_removed_after_its_subscription": 1,
    "removed_at_once_by_two": 1,
    "listed_without_its_topic": 1,
    "dead_lettered": 1,
    "waiting_in_a_topic": 1,
    "lost_before_its_removal": 1,
    "known_from_before": 1,
    "asked_for_the_last_use": 1,
}
"""The scenes, and how often each of them is played by chance."""


class Scenes(Play):
    """A play with scenes."""

    async def _there(self, *, topic: bool | None = None) -> str | None:
        """Return the path of an entity, which is created if it does not exist; None if the play has none.

        With ``topic``, return that of a topic, or that of a subscription; by default mostly that of a queue.
        """
        self.sealed, self.partition = set(), None
        paths = ["Q", "Q", *(path for path in self.paths if path != "T")]
        if topic is not None:
            paths = [path for path in self.paths if path.startswith("T") and (path == "T") is topic]
        for path in self.paths:
            if self.witness.at(path) is None:
                await self._made(path)
        return self.chance.choice(paths) if paths else None

    def _removing(self, path: str) -> Work:
        remover = Client(self, "remover")
        return remover, "remove", self.work_of_others(remover, "remove", path)

    def _using(self, client: Client, what: str, path: str) -> Work:
        return client, what, self.work_of_user(client, what, path)

    async def _remove(self, path: str) -> None:
        await self.alone(*self._removing(path))

    async def used_a_while_ago(self) -> None:
        """Use an entity, and try to remove it or its topic soon afterwards."""
        path = await self._there(topic=self.chance.choice((None, False, True)))
        if path is None:
            return
        await self.alone(*self._using(self.users[0], self.chance.choice(("receive", "send")), path))
        self.witness.now += self.chance.randrange(1, IDLE)
        await self._remove(self.chance.choice((path, path.partition("/")[0])))

    async def scheduled_for_later(self) -> None:
        """Schedule a message, and try to remove the queue after its idle time. The message may be still to come."""
        if await self._there():
            await self.alone(*self._using(self.users[0], "schedule", "Q"))
            self.witness.now += IDLE + 61_000
            await self._remove("Q")

    async def _use_between(self, path: str, of: str, held_back: int) -> None:
        """Use an entity after this number of calls of a removal. The user knows the entity from before."""
        await self.alone(*self._using(self.users[0], "receive", path))
        self.witness.now += 3 * IDLE
        works = [self._removing(of), self._using(self.users[0], "receive", path)]
        await self.together(works, 0, held_back=held_back)

    async def used_between(self) -> None:
        """Use a subscription between the steps of its removal."""
        if path := await self._there(topic=False):
            await self._use_between(path, path, self.chance.randrange(3, 7))

    async def queue_used_between(self) -> None:
        """Use a queue between the steps of its removal."""
        if await self._there():
            await self._use_between("Q", "Q", self.chance.randrange(3, 6))

    async def subscription_used_between(self) -> None:
        """Use a topic or a subscription between the steps of the removal of the topic."""
        if path := await self._there(topic=self.chance.choice((True, False))):
            await self._use_between(path, "T", self.chance.randrange(3, 13))

    async def deleted_between(self) -> None:
        """Delete an entity between the steps of its removal, or before it."""
        path = await self._there(topic=self.chance.choice((None, True)))
        if path is not None:
            self.witness.now += 3 * IDLE
            deleter = Client(self, "deleter")
            works = [self._removing(path), (deleter, "delete", self.work_of_others(deleter, "delete", path))]
            await self.together(works, 0, held_back=self.chance.randrange(8))

    async def updated_between(self) -> None:
        """Update an entity before its partitions are asked, or later in its removal."""
        path = await self._there(topic=self.chance.choice((None, True, False)))
        if path is not None:
            self.witness.now += 3 * IDLE
            works = [self._removing(path), self._using(self.users[0], "update", path)]
            await self.together(works, 0, held_back=self.chance.choice((1, 1, 1, 2, 4, 5, 6)))

    async def updated_by_two(self) -> None:
        """Let two users update an entity at the same time."""
        path = await self._there(topic=self.chance.choice((None, False)))
        if path is not None:
            await self.together([self._using(user, "update", path) for user in self.users], 0, held_back=0, steady=0)

    async def updated_in_part(self) -> None:
        """Update an entity while a partition cannot be reached; then remove it, or use it."""
        path = await self._there(topic=self.chance.choice((None, True, False)))
        if path is None:
            return
        self.witness.now += 3 * IDLE
        self.sealed = {0, 1}
        await self.alone(*self._using(self.users[0], "update", path))
        self.sealed = set()
        if self.chance.random() < 0.5:
            self.witness.now += 3 * IDLE
            await self._remove(path)
        else:
            user = Client(self, "user")
            await self.alone(*self._using(user, self.chance.choice(("receive", "send")), path))

    async def _die_in(self, path: str) -> None:
        """Let a remover die, mostly at a call that changes something."""

        def dies(call: Waiting) -> bool:
            name, entity = call.script.name, self.witness.at(path)
            changes = name.startswith("revise_") or (entity is not None and entity.record.state == "removing")
            return self.chance.random() < (0.3 if changes else 0.1 if name == "read_entity" else 0)

        await self.together([self._removing(path)], 0, dies=dies)

    async def removed_by_two(self) -> None:
        """Let a remover die, and let another one continue its removal."""
        path = await self._there(topic=self.chance.choice((None, False, True)))
        if path is not None:
            self.witness.now += 3 * IDLE
            await self._die_in(path)
            await self._remove(path)

    async def topic_removed_after_its_subscription(self) -> None:
        """Let the remover of a subscription die, and let another one remove the topic."""
        path = await self._there(topic=False)
        if path is not None:
            self.witness.now += 3 * IDLE
            await self._die_in(path)
            await self._remove("T")

    async def removed_at_once_by_two(self) -> None:
        """Let two removers remove an entity at the same time."""
        path = await self._there(topic=self.chance.choice((None, False, True)))
        if path is not None:
            self.witness.now += 3 * IDLE
            await self.together([self._removing(path), self._removing(path)], 0, held_back=0)

    async def listed_without_its_topic(self) -> None:
        """List the subscriptions of a topic that was deleted."""
        if await self._there(topic=True) is not None:
            deleter, reader = Client(self, "deleter"), Client(self, "reader")
            await self.alone(deleter, "delete", self.work_of_others(deleter, "delete", "T"))
            await self.alone(reader, "list", self.work_of_others(reader, "list", "T"))

    async def dead_lettered(self) -> None:
        """Move a message to the dead-letter queue."""
        path = await self._there(topic=self.chance.choice((None, False)))
        if path is not None:
            self.partition = self.chance.choice((0, 1))
            for what in ("send", "bury"):
                await self.alone(*self._using(self.users[0], what, path))
            self.partition = None

    async def waiting_in_a_topic(self) -> None:
        """Leave a transfer or a batch in a topic, and try to remove the topic; then move the messages."""
        if await self._there(topic=True) is None:
            return
        number = self.partition = self.chance.choice((0, 1))
        await self.alone(*self._using(self.users[0], "transfer", "T"))
        self.partition = None
        self.witness.now += 3 * IDLE
        for stops in self.chance.choice(((), (1,), (1, 0))):
            mover = Client(self, "reader")
            await self.alone(mover, "move", lambda m=mover, s=stops: self.move(m, "T", number, stops=s))  # type: ignore[misc]
            if stops:
                self.witness.now += IDLE
        await self._remove("T")

    async def lost_before_its_removal(self) -> None:
        """Lose a partition of a queue, and try to remove the queue."""
        await self._there()
        self.witness.now += 3 * IDLE
        await self.lose("Q")
        await self._remove("Q")

    async def known_from_before(self) -> None:
        """Use an entity with settings that another user has changed meanwhile."""
        path = await self._there(topic=self.chance.choice((None, False)))
        if path is not None:
            first, second = self.users
            await self.alone(*self._using(first, "receive", path))
            await self.alone(*self._using(second, "update", path))
            await self.alone(*self._using(first, "receive", path))

    async def asked_for_the_last_use(self) -> None:
        """Ask partitions how long ago they were used, and count their messages while one cannot be reached."""
        path = await self._there(topic=self.chance.choice((None, True)))
        if path is not None:
            self.witness.now += self.chance.randrange(MINUTE, IDLE)
            reader = Client(self, "reader")
            await self.alone(reader, "ask", self.work_of_others(reader, "ask", path))
            self.sealed = {self.chance.choice((0, 1))}
            await self.alone(reader, "count", self.work_of_others(reader, "count", path))
            self.sealed = set()
