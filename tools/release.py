"""Build the sdist, and the wheel from it, into dist/. Then try them as a user would. This uploads nothing.

It checks the metadata, and the version against the changelog. It installs the wheel with its dependencies into an empty
environment, and imports the public packages there.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tools.check_docs import check_version, code_version
from tools.repository import ROOT

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


def run(*command: str | Path, cwd: Path = ROOT) -> None:
    words = [str(word) for word in command]
    print("$", *("(the smoke test)" if "\n" in word else word for word in words), flush=True)
    subprocess.run(words, cwd=cwd, check=True)


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
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", dist)
    artifacts = sorted(dist.iterdir())
    run(sys.executable, "-m", "twine", "check", "--strict", *artifacts)

    with tempfile.TemporaryDirectory() as folder:
        empty = Path(folder, "empty")
        run(sys.executable, "-m", "venv", "--without-pip", empty)
        python = empty / "bin" / "python"
        wheel = next(path for path in artifacts if path.suffix == ".whl")
        run(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", wheel)
        run(python, "-I", "-c", SMOKE.format(version=version), cwd=Path(folder))
    print("ready:", *(path.relative_to(ROOT) for path in artifacts))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except subprocess.CalledProcessError as error:
        sys.exit(f"not ready: {Path(error.cmd[0]).name} ended with {error.returncode}, see above")
