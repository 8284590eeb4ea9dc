"""The folder of this repository, and its files."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MADE = {"__pycache__", "build", "dist", "htmlcov"}


def files(*suffixes: str) -> list[Path]:
    """Return the files that git tracks, and new files that it does not ignore, without symbolic links.

    If suffixes are given, return only the files that end with one of them.
    """
    return sorted(path for path in candidates() if path.is_file() and path.name.endswith(suffixes or ("",)))


def candidates() -> Iterator[Path]:
    """Yield the files that git lists. Outside a clone, as in an unpacked sdist, yield all files that are not built."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],  # noqa: S607 - git is where PATH says
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listing.returncode == 0:
        paths = (ROOT / name for name in listing.stdout.split("\0") if name)
        yield from (path for path in paths if not path.is_symlink())
        return
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [name for name in folders if name not in MADE and not name.startswith(".")]
        yield from (path for path in map(Path(folder).joinpath, names) if not path.is_symlink())
