"""Build the sdist, and the wheel from it, into dist/. Then try them as a user would. This uploads nothing.

Beside the wheel is its bill of materials (tools/sbom.py). The program checks the metadata, and the version against
the changelog. It installs the wheel into an empty environment outside the checkout, once without extras, once with
each extra alone, and once with those of the demonstration, and runs there what the extra is for. The extra ``spark``
is tried if .cache/wheels has a wheel of PySpark, because it would have to be built otherwise, and if there is Java.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from sbredis.exceptions import SparkSetupError
from sbredis.servers import LocalServer
from sbredis.spark import require_java
from tools.check_docs import check_version, code_version
from tools.repository import ROOT
from tools.sbom import installed_by_users, write_bill

__all__ = ["SMOKE", "TRIALS", "try_out"]

SMOKE = """
import importlib.metadata, pathlib, sys
import sbredis, sbredis.aio, sbredis.servers, sbredis.workers
assert pathlib.Path(sbredis.__file__).is_relative_to(sys.prefix), sbredis.__file__
assert importlib.metadata.version("sbredis") == sbredis.__version__ == {version!r}
try:
    import workers
except ModuleNotFoundError:
    print("sbredis", sbredis.__version__, "works in an empty environment")
else:
    raise SystemExit("the wheel installs a top-level package called workers")
"""

TRIALS = {
    "": ["python worker.py {url}", "python -m sbredis.workers --help"],
    "cli": [
        "sbredis --url {url} queue create tried",
        "sbredis --url {url} send tried hello",
        "sbredis --url {url} receive tried --output json",
        "sbredis --url {url} queue list",
    ],
    "cli,embedded": ["sbredis demo"],
    "embedded": ["python worker.py embedded://data"],
    "fast": ["python -c 'import hiredis, uvloop'", "python worker.py {url}"],
    "memory": ["python worker.py"],
    "otel": ["python -c 'import opentelemetry.trace'", "python worker.py {url}"],
    "reload": ["python reloading.py {url}"],
    "spark": ["python -m sbredis.spark reservations --url {url}", "python rows.py {url}"],
}
"""The commands to run with each extra alone, with some together, and without extras. ``{url}`` is a server that the
trial starts.
"""

PROGRAMS = ["examples/worker.py", "tools/trials/reloading.py", "tools/trials/rows.py"]
"""The programs that the trials run, outside the checkout."""

WHEELS = ROOT / ".cache" / "wheels"


def run(*command: str | Path, cwd: Path = ROOT) -> None:
    words = [str(word) for word in command]
    print("$", *("(the smoke test)" if "\n" in word else word for word in words), flush=True)
    subprocess.run(words, cwd=cwd, check=True)


def try_out(extra: str, binaries: Path, folder: Path, url: str) -> None:
    """Run the trials of an extra in a folder, with the programs of an environment."""
    for program in PROGRAMS:
        shutil.copy(ROOT / program, folder)
    for trial in TRIALS[extra]:
        program, *arguments = shlex.split(trial.format(url=url))
        run(binaries / program, *arguments, cwd=folder)


def try_wheel(wheel: Path, extra: str, version: str) -> None:
    """Install the wheel with one extra into an empty environment, and run the extra's trials there."""
    with tempfile.TemporaryDirectory() as name, LocalServer() as server:
        folder = Path(name)
        run(sys.executable, "-m", "venv", "--without-pip", folder / "empty")
        binaries = folder / "empty" / "bin"
        wanted = f"{wheel}[{extra}]" if extra else str(wheel)
        install: list[str | Path] = [sys.executable, "-m", "pip", "--python", binaries / "python", "install", "--quiet"]
        run(*install, wanted, *(WHEELS.glob("pyspark-*.whl") if extra == "spark" else []))
        run(binaries / "python", "-I", "-c", SMOKE.format(version=version), cwd=folder)
        try_out(extra, binaries, folder, server.url)


def spark_is_missing() -> str | None:
    """Return why the extra ``spark`` cannot be tried, or ``None`` if it can."""
    if not any(WHEELS.glob("pyspark-*.whl")):
        return ".cache/wheels has no wheel of PySpark (make test builds one)"
    try:
        require_java()
    except SparkSetupError as error:
        return error.message
    return None


def main() -> int:
    version = code_version()
    changelog = (ROOT / "CHANGELOG.md").read_text("utf-8")
    for problem in check_version(changelog, version):
        print(f"CHANGELOG.md: {problem}", file=sys.stderr)
        return 1
    if re.search(rf"^## \[{re.escape(version)}\] - Unreleased", changelog, re.MULTILINE):
        print(f"CHANGELOG.md: {version} has no date yet, so this is a trial of the release")

    dist = ROOT / "dist"
    shutil.rmtree(dist, ignore_errors=True)
    run(sys.executable, "-m", "tools.assemble")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", dist)
    artifacts = sorted(dist.iterdir())
    run(sys.executable, "-m", "twine", "check", "--strict", *artifacts)

    wheel = next(path for path in artifacts if path.suffix == ".whl")
    bill = write_bill(wheel, installed_by_users())
    missing = spark_is_missing()
    untried = ["spark"] if missing else []
    for extra in TRIALS:
        if extra not in untried:
            try_wheel(wheel, extra, version)
    print(
        "tried without extras and with each of", "; ".join(extra for extra in TRIALS if extra and extra not in untried)
    )
    if missing:
        print(f"not tried: spark, because {missing}")
    print("ready:", *(path.relative_to(ROOT) for path in (*artifacts, bill)))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except subprocess.CalledProcessError as error:
        sys.exit(f"not ready: {Path(error.cmd[0]).name} ended with {error.returncode}, see above")
