"""Azure Service Bus semantics on Redis: a message broker with nothing to run but Redis or Valkey."""

from sbredis._version import __version__
from sbredis.exceptions import ServiceBusError

__all__ = ["ServiceBusError", "__version__"]
