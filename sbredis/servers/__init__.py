"""Starting real servers: local servers for tests, benchmarks and demonstrations, and the embedded server that processes
share.

All functions here block, so an asynchronous caller uses a thread. This package only checks whether a server is up, and
configures it. It needs nothing but the standard library.
"""

from sbredis.servers._binary import ServerBinary, ServerNotFoundError, find_server
from sbredis.servers._cluster import ClusterNode, LocalCluster
from sbredis.servers._embedded import EmbeddedLease, acquire
from sbredis.servers._keeper import KeptServer, ServerOrder, find_kept, keep, start_kept, stop_kept
from sbredis.servers._local import LocalServer
from sbredis.servers._ports import free_port
from sbredis.servers._sentinel import LocalSentinel

__all__ = [
    "ClusterNode",
    "EmbeddedLease",
    "KeptServer",
    "LocalCluster",
    "LocalSentinel",
    "LocalServer",
    "ServerBinary",
    "ServerNotFoundError",
    "ServerOrder",
    "acquire",
    "find_kept",
    "find_server",
    "free_port",
    "keep",
    "start_kept",
    "stop_kept",
]
