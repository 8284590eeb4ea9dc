"""Make a Spark session the active one of a thread.

Spark looks for formats in Python only in the active session. Each thread of Python has a thread of Java, and only the
one that has made the session has an active one. In the others, ``format("sbredis")`` fails (``DATA_SOURCE_NOT_FOUND``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["activate"]


def activate(spark: SparkSession) -> None:
    """Let this thread find the format. A session of Connect finds it in each thread."""
    session: Any = spark
    if hasattr(session, "_jsparkSession"):
        session._get_j_spark_session_class(session._jvm).setActiveSession(session._jsparkSession)
