"""The worker framework: decorated functions that handle the messages of queues and subscriptions."""

# The folder is at the root of the repository, and is shipped inside sbredis.
if __name__ != "sbredis.workers":
    raise ImportError(f"{__name__!r} is only the folder; import it as sbredis.workers: from sbredis.workers import …")

from sbredis.workers._worker import Worker
from sbredis.workers.declaring._context import Context, SyncContext
from sbredis.workers.declaring._markers import Depends, Property
from sbredis.workers.declaring._middleware import Middleware, Proceed
from sbredis.workers.declaring._outcomes import Abandon, Complete, DeadLetter, Defer, Outcome
from sbredis.workers.declaring._retries import Retries
from sbredis.workers.declaring._router import Router
from sbredis.workers.included._breaker import CircuitBreaker
from sbredis.workers.included._idempotency import Idempotency
from sbredis.workers.included._logging import Logging

__all__ = [
    "Abandon",
    "CircuitBreaker",
    "Complete",
    "Context",
    "DeadLetter",
    "Defer",
    "Depends",
    "Idempotency",
    "Logging",
    "Middleware",
    "Outcome",
    "Proceed",
    "Property",
    "Retries",
    "Router",
    "SyncContext",
    "Worker",
]
