"""The operations of the model on topics: a topic publishes messages to subscriptions, which are partitions too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sbredis.engine import NEVER, Copy, Delivery, Outgoing, Sent
from tests.engine.model.sending import session_of
from tests.engine.model.sessions import SessionModel
from tests.engine.model.values import MOST, Call, Message, Plan, Stored, Together
from tests.engine.terms import EPOCH_LEAP, Event, Side, State

__all__ = ["TopicModel"]


class TopicModel(SessionModel):
    """A partition of any entity. The partition of a subscription shares the store of its topic."""

    def publish(
        self,
        call: Call,
        messages: Sequence[Outgoing],
        routes: Sequence[Sequence[Copy] | None],
        targets: Sequence[TopicModel],
        *,
        fence: int | None = None,
        bounds: tuple[str, str] | None = None,
        missing: int | None = None,
        columns: str = "rctlido",
    ) -> Sent:
        """Store each message once, and make its copies; keep scheduled messages, and drop duplicates.

        A message without a route was not judged, so it waits even if its due time has passed. No message overtakes one
        that waits for time 0 or 1. With ``bounds``, messages that wait are spread: the call makes some of their copies.
        ``missing`` is the index of a target that the caller knows but that no longer exists.
        """
        plan = self.plan_publish(
            call, Together(), messages, routes, targets, fence=fence, bounds=bounds, missing=missing, columns=columns
        )

        def answer(stored: Stored) -> Sent:
            for target in targets:
                target._end(call.now)
            return Sent(self.more, stored.first, len(stored.dropped), stored.scheduled)

        return self._carry_out(call, plan, answer)

    def plan_publish(
        self,
        call: Call,
        together: Together,
        messages: Sequence[Outgoing],
        routes: Sequence[Sequence[Copy] | None],
        targets: Sequence[TopicModel],
        *,
        fence: int | None = None,
        bounds: tuple[str, str] | None = None,
        missing: int | None = None,
        columns: str = "rctlido",
    ) -> Plan:
        now, leaping = call.now, together.leaping
        reached, to = bounds or ("", "")

        def act() -> Stored:
            self.route_fence = self.route_fence if fence is None else fence
            self._open(targets, leaping)
            if "i" in columns:
                self._forget_old_ids(len(messages), now)
            first, dropped, scheduled = self.seq + 1, [], []
            number = first
            behind = self._holds_up_later_ones()
            for place, (out, route) in enumerate(zip(messages, routes, strict=True)):
                message, event = self._published(out, route, number, now, reached, behind=behind)
                duplicate = message is not None and out.origin is None and self._seen(out, now)
                if message is None or duplicate:
                    dropped.append(place)
                if message is not None:
                    behind = behind or (message.due in {0, 1} and not duplicate)
                    if not message.reached:
                        self._move(message, event, now, duplicate=duplicate)
                        scheduled += [number] if message.state is State.SCHEDULED else []
                    if not duplicate and number not in scheduled:
                        self._copy(message, number, route or (), targets, now, leaping)
                        self._go_on(message, to, now)
                number += _width(route or ())
            self.seq = number - 1
            return Stored(first, tuple(dropped), tuple(scheduled))

        fresh = [route or () for out, route in zip(messages, routes, strict=True) if out.origin is None]
        changes = sum(len(copy.changes) for route in fresh for copy in route)
        made = [self._made(out, now) for out in messages]
        pending = together.pending[id(self.store)]

        def full() -> tuple[str, str] | None:
            return self._refusal_of_send(made, changes, pending) or self._refusal_of_ids(messages, now, columns)

        refusal = full()
        if not refusal and missing is not None:
            refusal = "TARGET", str(missing + 1)
        if not refusal and fence is not None and fence < self.route_fence:
            refusal = "FENCED", str(fence)
        sound = self._is_outgoing(messages) and self.settings.topic
        growth = sum(len(message.payload) for message in made) + changes
        return Plan(act, sound, refusal=refusal, full=full, growth=growth, targets=tuple(targets))

    def _open(self, targets: Sequence[TopicModel], leaping: dict[int, bool]) -> None:
        """Open the targets that no earlier operation of the transaction has opened."""
        for target in targets:
            if id(target) not in leaping:
                known = "?" not in (self.run_id, target.run_id)
                leaping[id(target)] = known and target.run_id != self.run_id

    def _holds_up_later_ones(self) -> bool:
        """Return whether a message waits that no later one may overtake."""
        return any(one.state is State.SCHEDULED and one.due in {0, 1} for one in self.messages[Side.MAIN].values())

    def _go_on(self, message: Message, to: str, now: int) -> None:
        """Let a message wait for its other copies, unless these were the last ones."""
        if message.reached and to:
            message.reached = to
        elif message.reached:
            self._move(message, Event.PUBLISH, now)
        elif to:
            made = replace(message, store_number=message.number, state=State.NEW, due=0, reached=to)
            self._move(made, Event.SCHEDULE, now)

    def _published(
        self, out: Outgoing, route: Sequence[Copy] | None, number: int, now: int, reached: str, *, behind: bool
    ) -> tuple[Message | None, Event]:
        """Return the message and its event: to publish it now, or to keep it until it is due. The message is None if it
        was scheduled and is gone, or has not ``reached`` this bound. It waits ``behind`` others that wait for time 0 or
        1.
        """
        if out.origin is not None:
            waiting = self.messages[Side.MAIN].get(int(out.origin))
            return waiting if waiting is not None and waiting.reached == reached else None, Event.PUBLISH
        is_due = out.due is None or out.due <= now
        if is_due and (behind or route is None):
            out, route = out._replace(due=1), None
        message = self._made(out, now)
        message.number = message.store_number = number
        if message.due is not None and message.due <= now and route is not None:
            message.due = None
        return message, Event.PUBLISH if message.due is None else Event.SCHEDULE

    def _seen(self, out: Outgoing, now: int) -> bool:
        """Return whether a message is a duplicate, and remember its id."""
        window = self.settings.duplicate_window
        if window is None or not out.message_id:
            return False
        duplicate = self.dedup.get(out.message_id, now - window) > now - window
        if not duplicate:
            self.dedup[out.message_id] = now
        return duplicate

    def _copy(  # noqa: PLR0917 -- a step of publishing
        self,
        message: Message,
        number: int,
        route: Sequence[Copy],
        targets: Sequence[TopicModel],
        now: int,
        leaping: dict[int, bool],
    ) -> None:
        if not message.reached:
            message.enqueue(now, self.settings.time_to_live)
            message.number = number
        seen: list[int] = []
        for copy in route:
            target = targets[copy.place]
            nth, store = seen.count(copy.place), message.number
            made = Message(number + nth if nth else store, store, message.level, message.payload, NEVER, message.record)
            seen.append(copy.place)
            made.enqueued, made.changes = message.enqueued, copy.changes
            own = message.expires
            if copy.time_to_live is not None and copy.changes and not copy.dead:
                own = now + min(copy.time_to_live, self.settings.time_to_live)
            made.expires = min(own, now + target.settings.time_to_live, NEVER)
            made.session = session_of(message.payload) if target.settings.sessions else None
            dead = copy.dead or (target.settings.sessions and made.session is None)
            there = [one.number for one in target._ready(Side.MAIN) if one.level == made.level]
            if not dead and made.number < max(there, default=0):
                made.number = number  # a message comes after those that were there before it
            if dead and leaping[id(target)]:
                target.dead_seq += EPOCH_LEAP
                leaping[id(target)] = False
            target._move(made, Event.COPY, now, faulty=copy.dead)

    def ripe(self, call: Call, wanted: int, *, room: int) -> tuple[tuple[Delivery, str], ...]:
        """Return the scheduled messages of a topic that are due, the earliest first, and how far each has come."""
        self._check_reading(call, sound=1 <= wanted <= MOST and self.settings.topic)
        due = sorted((time, entry) for entry, time in self._due().items() if time <= call.now)[:wanted]
        found: list[Message] = []
        for _, entry in due:
            message = self.messages[Side.MAIN][int(entry[1:], 16)]
            room -= len(message.record)
            if room < 0 and found:
                break
            found.append(message)
        return tuple((message.delivery(State.SCHEDULED), message.reached) for message in found)


def _width(route: Sequence[Copy]) -> int:
    """Return how many numbers a message uses: each further copy for the same subscription has its own number."""
    places = [copy.place for copy in route]
    return max([1, *(places.count(place) for place in places)])
