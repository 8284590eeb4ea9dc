"""Tests of what is said if a part that Spark needs is missing or too old."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from sbredis.exceptions import SparkSetupError
from sbredis.spark import require_java, require_spark
from sbredis.spark._requirements import java_release


def versions(monkeypatch: pytest.MonkeyPatch, **installed: str) -> None:
    def version(name: str) -> str:
        if name not in installed:
            raise metadata.PackageNotFoundError(name)
        return installed[name]

    monkeypatch.setattr(metadata, "version", version)


def test_a_missing_library_is_named_with_the_extra_that_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    versions(monkeypatch)
    with pytest.raises(SparkSetupError, match=r"needs pyspark, which is not installed: run pip install '\.\[spark\]'"):
        require_spark()
    versions(monkeypatch, pyspark="4.3.0")
    with pytest.raises(SparkSetupError, match="needs pyarrow, which is not installed"):
        require_spark()


def test_an_old_library_is_named_with_its_version(monkeypatch: pytest.MonkeyPatch) -> None:
    versions(monkeypatch, pyspark="4.1.9", pyarrow="18.0.0")
    with pytest.raises(SparkSetupError, match=r"needs pyspark 4\.2 or later, but 4\.1\.9 is installed"):
        require_spark()
    versions(monkeypatch, **{"pyspark-client": "4.3.0", "pyarrow": "26.0.1"})
    require_spark()


def test_a_missing_java_is_named_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(
        SparkSetupError, match=r"needs Java 17 or later, and there is none on PATH: install it \(Debian: apt"
    ):
        require_java()
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    with pytest.raises(SparkSetupError, match="JAVA_HOME=/nowhere has none"):
        require_java()


def test_an_old_java_is_named_with_its_release(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/java").touch()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    said: Any = subprocess.CompletedProcess([], 0, "", 'openjdk version "11.0.2" 2019-01-15')
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: said)
    with pytest.raises(SparkSetupError, match="is Java 11: install it"):
        require_java()


@pytest.mark.parametrize(
    ("text", "release"),
    [('openjdk version "17.0.15" 2025', 17), ('java version "1.8.0_292"', 8), ('openjdk version "21"', 21), ("", None)],
)
def test_the_release_of_java_is_read_from_its_version(text: str, release: int | None) -> None:
    assert java_release(text) == release


def test_importing_the_package_imports_neither_pyspark_nor_pyarrow() -> None:
    code = (
        "import sys, sbredis.spark; print([name for name in ('pyspark', 'pyarrow', 'pandas') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=280)
    assert done.stdout.strip() == "[]"
