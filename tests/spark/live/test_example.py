"""The notebook among the examples runs as a program, on the Spark of the tests."""

from __future__ import annotations

import runpy
import tempfile
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.examples.running import unlike
from tools.repository import ROOT

PRINTED = r"""
    captured: 100
    \+-+\+-+\+-+\+-+\+
    \|fingerprint +\|messages\|share +\|keys +\|
    \+-+\+-+\+-+\+-+\+
    \|NoAddress: order # has no street\|10 +\|0.7143\|customer-1 \(4\), customer-0 \(3\), customer-2 \(3\)\|
    \|Empty: order # has no items +\|4 +\|0.2857\|customer-0 \(2\), customer-1 \(1\), customer-2 \(1\)\|
    \+-+\+-+\+-+\+-+\+

    \+-+\+-+\+
    \|partition_key\|count\|
    \+-+\+-+\+
    \| +customer-0\| +3\|
    \| +customer-1\| +4\|
    \| +customer-2\| +3\|
    \+-+\+-+\+

    moved back: 10
    still dead: 4
"""
"""Patterns of the lines that the notebook prints."""


@pytest.mark.long("Spark needs seconds for each query")
def test_the_notebook_captures_reports_and_resubmits(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    names = runpy.run_path(str(ROOT / "examples/spark_dead_letters.py"))
    assert names["spark"] is spark
    assert unlike(capsys.readouterr().out.splitlines(), PRINTED) == []
