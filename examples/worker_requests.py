"""A handler answers requests: what it returns is sent to the client that asked.

python examples/worker_requests.py [CONNECTION STRING]
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass

from sbredis.aio import ServiceBusClient
from sbredis.workers import Router, Worker

handlers = Router()


@dataclass
class Question:
    """A question for a price."""

    article: str
    count: int


@dataclass
class Price:
    """The answer."""

    total: float


@handlers.queue("prices", replies=True, create_if_missing=True)
async def price_of(question: Question) -> Price:
    """Answer a question."""
    return Price(question.count * len(question.article) * 1.5)


async def main(url: str = "memory://example") -> None:
    """Run the worker here, and ask it from a client that could be anywhere."""
    worker = Worker(url)
    worker.include(handlers)
    async with worker.running(), ServiceBusClient(url) as client:
        questions = Question("cup", 6), Question("teapot", 2)
        answers = await asyncio.gather(
            *(client.request("prices", question, timeout=20, as_type=Price) for question in questions)
        )
        for question, answer in zip(questions, answers, strict=True):
            print(f"{question.count} x {question.article}: {answer.total}")


if __name__ == "__main__":
    try:
        asyncio.run(main(*sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
