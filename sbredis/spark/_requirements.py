"""Check that the libraries and the Java that Spark needs are installed, and say how to install what is missing."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from importlib import metadata
from pathlib import Path

from sbredis.exceptions import SparkSetupError

__all__ = ["require_java", "require_spark"]

_INSTALL = "run pip install '.[spark]' in the checkout of sbredis"
_LEAST = {"pyspark": (4, 2), "pyarrow": (18, 0)}
"""The oldest release of each library that works, as pyproject.toml says."""
_LEAST_JAVA = 17
_GET_JAVA = (
    "install it (Debian: apt-get install default-jre-headless; macOS: brew install openjdk), or set JAVA_HOME to the "
    "folder of another Java"
)
_PATIENCE = 30.0


def require_spark() -> None:
    """Raise :class:`SparkSetupError` if PySpark or pyarrow is missing or too old."""
    for library, least in _LEAST.items():
        try:
            version = metadata.version(library)
        except metadata.PackageNotFoundError:
            if library == "pyspark" and _pyspark_client() is not None:
                continue
            raise SparkSetupError(f"The Spark format needs {library}, which is not installed: {_INSTALL}.") from None
        refuse_old(library, version, least)


def refuse_old(library: str, version: str, least: tuple[int, int]) -> None:
    """Raise :class:`SparkSetupError` if a version is older than the oldest that works."""
    numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    if numbers < least:
        raise SparkSetupError(
            f"The Spark format needs {library} {least[0]}.{least[1]} or later, but {version} is installed: {_INSTALL}."
        )


def _pyspark_client() -> str | None:
    """Return the version of ``pyspark-client``, which is PySpark for Spark Connect alone."""
    try:
        version = metadata.version("pyspark-client")
    except metadata.PackageNotFoundError:
        return None
    refuse_old("pyspark-client", version, _LEAST["pyspark"])
    return version


def require_java() -> None:
    """Raise :class:`SparkSetupError` if Spark would find no Java, or one that is too old.

    Only the machine that starts Spark needs Java. A client of Spark Connect needs none.
    """
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if java is None or not Path(java).is_file():
        where = f"JAVA_HOME={home} has none" if home else "there is none on PATH"
        raise SparkSetupError(f"Spark needs Java {_LEAST_JAVA} or later, and {where}: {_GET_JAVA}.")
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False, timeout=_PATIENCE)
    found = java_release(said.stderr + said.stdout)
    if found is not None and found < _LEAST_JAVA:
        raise SparkSetupError(f"Spark needs Java {_LEAST_JAVA} or later, but {java} is Java {found}: {_GET_JAVA}.")


def java_release(text: str) -> int | None:
    """Return the release of Java in the output of ``java -version``: 8 for ``1.8.0``, 17 for ``17.0.1``."""
    version = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(version[1]) if version else None
