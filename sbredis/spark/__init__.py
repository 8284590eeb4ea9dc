"""The format ``sbredis`` of PySpark: read queues and subscriptions as DataFrames, and write DataFrames to them.

Importing this package needs neither PySpark nor Java; :func:`register` needs both.
"""

from sbredis.spark._registering import register
from sbredis.spark._requirements import require_java, require_spark

__all__ = ["register", "require_java", "require_spark"]
