"""The worker framework, imported as ``sbredis.workers``: handlers for the messages of queues and subscriptions.

The folder is at the root of the repository, and is shipped inside ``sbredis``. The framework is not built yet.
"""

if __name__ != "sbredis.workers":
    raise ImportError(f"{__name__!r} is only the folder; import it as sbredis.workers: from sbredis.workers import …")

__all__: list[str] = []
