"""Grants of credit for tests: the receivers of a partition on the bench."""

from __future__ import annotations

from typing import Any

from sbredis.engine import (
    CreditGrant,
    CreditPush,
    CreditReply,
    Delivery,
    GiftPlace,
    SentGrant,
    push_channel,
    read_push,
)
from tests.engine.bench import ENTITY, NAMESPACE, SALT, Bench
from tests.transport.ears import Ear, all_heard

__all__ = ["NOTHING", "RUN", "Grantor", "Grantors", "granting", "grantors", "names"]

NOTHING = GiftPlace(0, 0, 0)


def granting(number: int, limit: int = 1, *, run: str = "?", prefix: str = "AAAAAAAA") -> CreditGrant:
    """Return a grant of a receiver for this many callers, at the server process ``run``."""
    return CreditGrant.ending(number, run, prefix, limit, room=1 << 20, hands=1)._replace(now=False)


RUN = "0123abcd" * 5
"""The run id that calls carry in memory: a server process without one makes no pushes."""


class Grantor:
    """A receiver that grants credit and listens."""

    def __init__(self, bench: Bench, name: str, run: str) -> None:
        self.bench, self.name, self.run = bench, name, run
        self.channel = push_channel(NAMESPACE, SALT, ENTITY, name)
        self.ear = Ear()
        self.number = 0
        self.seen = NOTHING

    def sent(self, credit: int = 1, *, source: str = "", delete: bool = False, **changed: Any) -> SentGrant:
        """Return the next grant, for this many messages beyond what was seen."""
        self.number += 1
        until = self.seen.messages + credit
        grant = granting(self.number, run=self.run, prefix=f"{self.name:A<8}")._replace(
            callers=until, limit=until, seen=self.seen, size_limit=self.seen.size + (1 << 20)
        )
        return SentGrant(self.name, self.channel, source, grant._replace(**changed), delete)

    async def grant(self, credit: int = 1, **options: Any) -> CreditReply[Delivery]:
        return await self.call(self.sent(credit, **options))

    async def call(self, *grants: SentGrant) -> CreditReply[Delivery]:
        bench = self.bench
        granted = await bench.tell(bench.partition.grant(grants, bench.at()))
        return self.see(granted.credits[0])

    def see(self, reply: CreditReply[Delivery]) -> CreditReply[Delivery]:
        for gift in reply.gifts:
            self.seen = max(self.seen, gift.place)
        return reply

    async def heard(self) -> list[tuple[str, CreditPush[Delivery]]]:
        """Return all pushes since the last time, each with its receiver and source."""
        heard = [read_push(text) for text in await all_heard(self.bench.transport, self.channel, self.ear)]
        return [(f"{each.receiver} {each.source}", each.push) for each in heard]

    async def pushed(self) -> list[str]:
        """Return the names of all messages that were pushed since the last time, and ``""`` for interest."""
        names: list[str] = []
        for key, push in await self.heard():
            assert key.startswith(f"{self.name} ")
            if push.gift is None:
                names.append("")
            else:
                self.seen = max(self.seen, push.gift.place)
                names += [message.name for message in push.gift.messages]
        return names


def names(reply: CreditReply[Delivery]) -> list[str]:
    return [message.name for gift in reply.gifts for message in gift.messages]


class Grantors:
    """Makes receivers of one partition."""

    def __init__(self, bench: Bench, run: str) -> None:
        self.bench, self.run = bench, run

    async def __call__(self, name: str, *, listens: bool = True) -> Grantor:
        made = Grantor(self.bench, name, self.run)
        if listens:
            await self.bench.transport.subscribe(made.channel, made.ear)
        return made


async def grantors(bench: Bench) -> Grantors:
    """Return a maker of receivers of the partition on the bench."""
    run = (await Grantor(bench, "stranger", "-").grant()).run
    if run == "?":
        bench.run_id, run = RUN, RUN[:8]
    return Grantors(bench, run)
