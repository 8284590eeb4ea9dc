"""The asynchronous API, on asyncio. Importing it imports nothing of redis-py; the first connection does."""

from sbredis.aio._check import ConnectionReport, ServerReport, check_connection

__all__ = ["ConnectionReport", "ServerReport", "check_connection"]
