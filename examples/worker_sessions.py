"""The payments of one account are handled in order, and the session keeps the balance of the account.

python examples/worker_sessions.py [CONNECTION STRING]
"""

from __future__ import annotations

import asyncio
import sys
from collections import defaultdict
from dataclasses import dataclass

from sbredis.workers import Context, Router, Worker

PAYMENTS = {"ann": [100, -30, 5], "bob": [20, -20, 7], "eve": [1, 1, 1]}

handlers = Router()
report: dict[str, list[str]] = defaultdict(list)
done = asyncio.Event()


@dataclass
class Account:
    """The state of a session."""

    balance: int = 0
    payments: int = 0


@handlers.queue("payments", max_concurrent_calls=2, create_if_missing={"requires_session": True})
async def book(amount: int, context: Context) -> None:
    """Book a payment. Two accounts at a time are handled, and each of them one payment after the other."""
    session = context.session
    assert session is not None
    account = await session.get_state(Account) or Account()
    account.balance += amount
    account.payments += 1
    session.set_state(account)  # in the transaction that completes the message, so no payment is booked twice
    report[session.session_id].append(f"{session.session_id}: {amount} makes {account.balance}")
    if all(len(report[each]) == len(payments) for each, payments in PAYMENTS.items()):
        done.set()


async def main(url: str = "memory://example") -> None:
    """Send three payments for each of three accounts, in mixed order."""
    worker = Worker(url)
    worker.include(handlers)
    async with worker.running():
        for place in range(3):
            for account, amounts in PAYMENTS.items():
                await worker.send("payments", amounts[place], session_id=account)
        await done.wait()
    for account in PAYMENTS:
        print(*report[account], sep="\n")


if __name__ == "__main__":
    try:
        asyncio.run(main(*sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
