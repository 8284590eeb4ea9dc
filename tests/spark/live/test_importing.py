"""Test of what each session of Spark imports that looks for formats, whether or not it uses ours."""

from __future__ import annotations

import subprocess
import sys


def test_the_module_that_spark_finds_imports_nothing_that_reads_or_writes() -> None:
    """It adds 0.02 s to the 0.4 s of PySpark; the client alone takes half a second."""
    program = (
        "import sys, pyspark.sql.datasource; import pyspark_sbredis; "
        "print(*(name for name in sys.modules if name.startswith(('sbredis', 'pyarrow', 'redis'))))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    found = set(done.stdout.split())
    assert {"sbredis.spark._source", "sbredis.spark._requirements"} <= found
    assert not {name for name in found if name.startswith(("sbredis.engine", "sbredis.client", "redis", "pyarrow"))}
    assert not found & {"sbredis.registry", "sbredis.transport", "sbredis.spark._options", "sbredis.spark._parts"}
