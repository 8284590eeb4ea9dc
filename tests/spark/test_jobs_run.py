"""Tests of what the jobs decide without Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from sbredis.spark._jobs_run import _one_spelling


@pytest.mark.parametrize("source", ["{}/c", "{}/c/", "{}//c", "{}/x/../c", "c", "./c", "file:{}/c", "file://{}/c/"])
def test_a_folder_of_this_machine_has_one_spelling(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert _one_spelling(source.format(tmp_path)) == str(tmp_path.resolve() / "c")


@pytest.mark.parametrize("source", ["s3://bucket/c", "s3://bucket/c/"])
def test_a_place_in_another_file_system_is_kept(source: str) -> None:
    assert _one_spelling(source) == "s3://bucket/c"
