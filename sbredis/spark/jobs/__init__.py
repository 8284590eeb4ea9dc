"""Ready-made work on queues and subscriptions with Spark: each is a function of DataFrames, and a command.

The functions take DataFrames and return DataFrames, and start nothing, except :class:`Capture`, :class:`Replay` and
:func:`compact`, which write. ``python -m sbredis.spark JOB`` runs a job.
Importing this package needs PySpark.
"""

from sbredis.spark.jobs._capture import Capture, Captured, partitioned_by_time
from sbredis.spark.jobs._compact import compact, compacted
from sbredis.spark.jobs._dead_letters import dead_letter_report, with_fingerprint
from sbredis.spark.jobs._files import read_captured
from sbredis.spark.jobs._latency import latency_report, lives
from sbredis.spark.jobs._replay import Replay, replayable
from sbredis.spark.jobs._resubmit import Reported, reported, resubmittable
from sbredis.spark.jobs._skew import skew_report

__all__ = [
    "Capture",
    "Captured",
    "Replay",
    "Reported",
    "compact",
    "compacted",
    "dead_letter_report",
    "latency_report",
    "lives",
    "partitioned_by_time",
    "read_captured",
    "replayable",
    "reported",
    "resubmittable",
    "skew_report",
    "with_fingerprint",
]
