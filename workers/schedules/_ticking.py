"""Send the ticks of one schedule, in competition with all other workers."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from sbredis.codec import encode_body
from sbredis.exceptions import ServiceBusError, WatermarkChangedError
from sbredis.model import ServiceBusMessage
from sbredis.workers.declaring._schedules import TICK, Schedule
from sbredis.workers.observing._counts import HandlerCounts
from sbredis.workers.schedules._deciding import Decision, decide
from sbredis.workers.schedules._time import Time

if TYPE_CHECKING:
    from sbredis.aio import ServiceBusClient, ServiceBusReceiver, ServiceBusSender

__all__ = ["Ticker", "tick_message"]

_log = logging.getLogger("sbredis.worker")
_FIRST_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 30.0
_SUSPICIOUS: Final = timedelta(days=1)
"""The lead of a watermark over the clock that causes a warning."""


class Ticker:
    """Sends the ticks of one schedule that are due, by the clock of the server, which all workers share.

    Every worker has a ticker for each schedule. At a tick all of them try to advance the watermark of the schedule and
    to send the message in one transaction. One succeeds; the others are refused, and learn the watermark from the
    refusal. The watermark and the messages are in the partition of the schedule's name.
    """

    def __init__(
        self,
        schedule: Schedule,
        client: ServiceBusClient,
        sender: ServiceBusSender,
        *,
        time: Time,
        counts: HandlerCounts,
        in_session: bool,
    ) -> None:
        self.schedule = schedule
        self.entity = sender.entity_name
        self._counts = counts
        self._client = client
        self._sender = sender
        self._time = time
        self._in_session = in_session
        self._receiver: ServiceBusReceiver = client.get_receiver(sender.entity_name)
        self._known: str | None = None
        """The watermark as this worker knows it; ``None`` if it knows none."""
        self._watermark: datetime | None = None
        self._last_message: int | None = None
        """The sequence number of the last tick's message."""
        self._pause = _FIRST_PAUSE
        self._failing = self._warned = False
        self._next: datetime | None = None
        self._read: tuple[datetime, float] | None = None
        """The time of the server, and when it was read; ``None`` before the server has answered."""

    @property
    def next(self) -> datetime:
        """The next tick in the zone of the schedule, as far as this worker knows."""
        found = self.schedule.after(self._now()) if self._next is None else self._next
        return found.astimezone(self.schedule.zone)

    def _now(self) -> datetime:
        """Return the time of the server, as far as this worker knows."""
        if self._read is None:
            return self._time.utc()
        time, read_at = self._read
        return time + timedelta(seconds=self._time.now() - read_at)

    async def run(self) -> None:
        """Send ticks until cancelled."""
        waited = True
        while True:
            try:
                if waited:
                    time = await self._client.server_time(self.entity, partition_key=self.schedule.name)
                    self._read = time, self._time.now()
                wait_for = await self._step()
            except Exception as error:  # noqa: BLE001 -- whatever it is, the schedule goes on
                self._failed(error)
                wait_for = self._now() + timedelta(seconds=self._pause)
                self._pause = min(2 * self._pause, _LONGEST_PAUSE)
            else:
                self._worked()
            waited = wait_for is not None
            if wait_for is not None and (left := (wait_for - self._now()).total_seconds()) > 0:
                await self._time.until(wait_for, left)

    async def _step(self) -> datetime | None:
        """Do what is due now. Return the time of the next tick; ``None`` if more may be due."""
        now = self._now()
        if self._watermark is None:
            await self._advance(Decision((), 0, now))
            return None
        watermark = self._watermark
        decision = decide(self.schedule, watermark, now, busy=False)
        if decision is None:
            if self._next is None:
                self._announce(self.schedule.after(watermark))
            self._next = self.schedule.after(watermark)
            self._check_watermark(watermark, now)
            return self._next
        if decision.send and self.schedule.overlap == "skip" and await self._is_busy():
            decision = decide(self.schedule, watermark, now, busy=True)
            assert decision is not None
        await self._advance(decision)
        return None

    async def _advance(self, decision: Decision) -> None:
        """Advance the watermark and send ticks, unless another worker has advanced the watermark."""
        name = self.schedule.name
        value = _stored(decision.watermark)
        messages = [tick_message(self.schedule, tick, in_session=self._in_session) for tick in decision.send]
        try:
            async with self._client.transaction() as transaction:
                transaction.advance(self._sender, name, value, expected=self._known)
                transaction.send_messages(self._sender, messages)
        except WatermarkChangedError as error:
            self._learn(error.value, error.sequence_number)
            return
        self._learn(value, transaction.watermarks[name])
        self._counts.ticks_sent += len(messages)
        self._counts.ticks_passed += decision.passed
        if decision.passed:
            _log.info("%s: the schedule %r passed over %d ticks until %s", self.entity, name, decision.passed, value)

    def _learn(self, value: str | None, sequence_number: int | None) -> None:
        """Take over a watermark. If there is none, for instance in a new entity, the schedule begins anew."""
        if value is not None:
            try:
                self._watermark = datetime.fromisoformat(value)
            except ValueError:
                raise ServiceBusError(
                    f"The watermark {self.schedule.name!r} belongs to something else than a schedule: it is {value!r}. "
                    "Give the schedule another name, or another queue."
                ) from None
        else:
            self._watermark = None
        self._known, self._last_message = value, sequence_number

    async def _is_busy(self) -> bool:
        """Return whether the message of the last tick waits or is in work. A dead letter is finished."""
        number = self._last_message
        if number is None:
            return False
        found = await self._receiver.peek_messages(1, sequence_number=number)
        return any(each.sequence_number == number for each in found)

    # -- what it says --------------------------------------------------------------------------------------------------

    def _announce(self, tick: datetime) -> None:
        then = tick.astimezone(self.schedule.zone).isoformat(" ", "seconds")
        _log.info("%s: schedule %r: %s, next at %s", self.entity, self.schedule.name, self.schedule, then)

    def _failed(self, error: Exception) -> None:
        if not self._failing:
            self._failing = True
            _log.warning(
                "%s: ticks of the schedule %r cannot be sent, and are tried again until they can: %s",
                self.entity,
                self.schedule.name,
                error,
            )

    def _worked(self) -> None:
        if self._failing:
            _log.info("%s: ticks of the schedule %r are sent again", self.entity, self.schedule.name)
        self._failing, self._pause = False, _FIRST_PAUSE

    def _check_watermark(self, watermark: datetime, now: datetime) -> None:
        if watermark - now > _SUSPICIOUS and not self._warned:
            self._warned = True
            _log.warning(
                "%s: a worker has sent ticks of the schedule %r until %s, which is far ahead of the server's clock; "
                "no tick is sent before the next one, at %s",
                self.entity,
                self.schedule.name,
                _stored(watermark),
                self.next,
            )


def tick_message(schedule: Schedule, tick: datetime, *, in_session: bool) -> ServiceBusMessage:
    """Return the message of a tick. Its body is the time in the zone of the schedule, and its id is always the same."""
    name, time = schedule.name, _stored(tick)
    encoded = encode_body(tick.astimezone(schedule.zone))
    message = ServiceBusMessage(
        encoded.body,
        subject=name,
        message_id=f"{name}@{time}",
        content_type=encoded.content_type,
        application_properties={TICK: time},
    )
    if in_session:
        message.session_id = name
    else:
        message.partition_key = name
    return message


def _stored(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds")
