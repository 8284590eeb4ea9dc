"""The worker framework: decorated functions that handle the messages of queues and subscriptions."""

# The folder is at the root of the repository, and is shipped inside sbredis.
if __name__ != "sbredis.workers":
    raise ImportError(f"{__name__!r} is only the folder; import it as sbredis.workers: from sbredis.workers import …")

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sbredis.workers._worker import Worker
    from sbredis.workers.declaring._context import Context, SyncContext
    from sbredis.workers.declaring._messages import message_of
    from sbredis.workers.declaring._middleware import Middleware, Proceed
    from sbredis.workers.declaring._outcomes import Abandon, Complete, DeadLetter, Defer, Outcome
    from sbredis.workers.declaring._retries import Retries
    from sbredis.workers.declaring._router import Router
    from sbredis.workers.declaring._signatures import Depends, Property
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
    "message_of",
]

_PLACES = {
    "Abandon": "sbredis.workers.declaring._outcomes",
    "CircuitBreaker": "sbredis.workers.included._breaker",
    "Complete": "sbredis.workers.declaring._outcomes",
    "Context": "sbredis.workers.declaring._context",
    "DeadLetter": "sbredis.workers.declaring._outcomes",
    "Defer": "sbredis.workers.declaring._outcomes",
    "Depends": "sbredis.workers.declaring._signatures",
    "Idempotency": "sbredis.workers.included._idempotency",
    "Logging": "sbredis.workers.included._logging",
    "Middleware": "sbredis.workers.declaring._middleware",
    "Outcome": "sbredis.workers.declaring._outcomes",
    "Proceed": "sbredis.workers.declaring._middleware",
    "Property": "sbredis.workers.declaring._signatures",
    "Retries": "sbredis.workers.declaring._retries",
    "Router": "sbredis.workers.declaring._router",
    "SyncContext": "sbredis.workers.declaring._context",
    "Worker": "sbredis.workers._worker",
    "message_of": "sbredis.workers.declaring._messages",
}
"""The module of each name. It is imported when the name is used, so that the help of the program needs none of them."""

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in _PLACES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = found = getattr(importlib.import_module(_PLACES[name]), name)
        return found

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
