"""The inbox of a receiver without a session."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sbredis.engine import lease_token
from sbredis.model import MessageLease, Reception, ServiceBusReceivedMessage, ServiceBusReceiveMode, delivered, hold_of
from sbredis.receiving._inbox import Inbox

if TYPE_CHECKING:
    from sbredis.engine import Delivery
    from sbredis.receiving._credit import HandedGift
    from sbredis.receiving._credit_driver import CreditDriver

__all__ = ["MessageInbox"]


class MessageInbox(Inbox[ServiceBusReceivedMessage]):
    """The messages of one receiver."""

    __slots__ = ()

    @property
    def source(self) -> str:
        """The side that the messages are on."""
        return self.side

    def opened(self, driver: CreditDriver, handed: Sequence[HandedGift[Delivery]]) -> list[ServiceBusReceivedMessage]:
        """Return the messages of gifts. Give those back whose lock may have ended."""
        messages: list[ServiceBusReceivedMessage] = []
        link, clock = driver.partition_client, self._clock
        for gift in handed:
            lease = None
            if self.mode is ServiceBusReceiveMode.PEEK_LOCK:
                token, ends = lease_token(gift.prefix, gift.serial), gift.ends
                if ends is None:
                    link.give_back_named(token, [each.name for each in gift.messages])
                    continue
                until_utc = clock.utc() + ends - clock.now()
                lease = MessageLease(token, ends, until_utc, gift.fence, partition=link.number)
            reception = Reception(link.base, self.mode, link, rider=driver)
            messages += [delivered(each, reception, lease) for each in gift.messages]
        return messages

    def _lease_of(self, item: ServiceBusReceivedMessage) -> MessageLease | None:
        return hold_of(item).lease

    def _release(self, items: Sequence[ServiceBusReceivedMessage]) -> None:
        for hold in map(hold_of, items):
            _ = hold.reception.link.give_back(hold)
