"""Starting real servers: local servers for tests, benchmarks and demonstrations, and the embedded server that processes
share. Also the backup, restoring and repair of their data.

All functions here block, so an asynchronous caller uses a thread. This package only checks whether a server is up, and
configures it. It needs nothing but the standard library.
"""

from sbredis.servers._backing_up import Backup, back_up
from sbredis.servers._binary import ServerBinary, ServerNotFoundError, find_server
from sbredis.servers._cluster import ClusterNode, LocalCluster
from sbredis.servers._embedded import EmbeddedLease, acquire
from sbredis.servers._keeper import KeptServer, ServerOrder, find_kept, keep, start_kept, stop_kept
from sbredis.servers._local import LocalServer
from sbredis.servers._ports import free_port
from sbredis.servers._repairing import Damage, repairing
from sbredis.servers._restoring import Restored, restoring
from sbredis.servers._sentinel import LocalSentinel

__all__ = [
    "Backup",
    "ClusterNode",
    "Damage",
    "EmbeddedLease",
    "KeptServer",
    "LocalCluster",
    "LocalSentinel",
    "LocalServer",
    "Restored",
    "ServerBinary",
    "ServerNotFoundError",
    "ServerOrder",
    "acquire",
    "back_up",
    "find_kept",
    "find_server",
    "free_port",
    "keep",
    "repairing",
    "restoring",
    "start_kept",
    "stop_kept",
]
