"""The files of an append-only file: a manifest names a base file, and the increments that were written after it."""

from __future__ import annotations

import contextlib
import mmap
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

from sbredis.exceptions import ServerUnsuitableError
from sbredis.servers._append_only import Data

__all__ = [
    "DIRECTORY",
    "MANIFEST",
    "SNAPSHOT_MAGIC",
    "DataFiles",
    "content_of",
    "find_data",
    "named_data",
    "read_manifest",
]

DIRECTORY = "appendonlydir"
"""The folder of the files, in the folder of the server, unless the server has another setting."""
MANIFEST = "appendonly.aof.manifest"
"""The file that names the others, unless the server has another setting."""
_TEMPORARY = "temp-"  # a manifest that a server is writing
SNAPSHOT_MAGIC = (b"REDIS0", b"VALKEY")
"""The first bytes of a snapshot, which may be a file of its own, or a base file."""


@dataclass(frozen=True, slots=True)
class DataFiles:
    """The files that a server reads when it starts."""

    directory: Path
    manifest: Path
    base: str | None
    increments: tuple[str, ...]
    """In the order in which they were written. A server writes only to the last one."""
    lines: tuple[str, ...]
    """The lines of the manifest that name these files."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all files, in the order in which a server reads them."""
        return (*([self.base] if self.base is not None else []), *self.increments)

    @property
    def last(self) -> Path | None:
        """The increment to which a server writes."""
        return self.directory / self.increments[-1] if self.increments else None


def find_data(folder: Path) -> DataFiles:
    """Return the files in a folder, which is that of a server, or its ``appendonlydir``, under any name.

    Raises :class:`~sbredis.exceptions.ServerUnsuitableError` if there are none, or if a file is missing.
    """
    found = named_data(folder)
    for name in found.names:
        if not (found.directory / name).is_file():
            raise ServerUnsuitableError(f"{found.manifest} names the file {name}, which does not exist.")
    return found


def named_data(folder: Path) -> DataFiles:
    """Return the files as :func:`find_data` does. A server that runs may just have replaced them."""
    for directory in (folder / DIRECTORY, folder):
        manifests = sorted(each for each in directory.glob("*.manifest") if not each.name.startswith(_TEMPORARY))
        if len(manifests) > 1:
            names = ", ".join(each.name for each in manifests)
            raise ServerUnsuitableError(f"{directory} has several manifests: {names}. It must have one.")
        for manifest in manifests:
            try:
                return read_manifest(manifest, manifest.read_text("utf-8", "surrogateescape"))
            except ValueError as error:
                raise ServerUnsuitableError(f"{manifest} is not a manifest of an append-only file: {error}.") from error
    raise ServerUnsuitableError(
        f"{folder} has no append-only file: neither {MANIFEST} nor a folder {DIRECTORY} with this file."
    )


def read_manifest(manifest: Path, text: str) -> DataFiles:
    """Read the text of a manifest: lines ``file NAME seq NUMBER type LETTER``. Raises :class:`ValueError`.

    The type is ``b`` for the base file, ``i`` for an increment, and ``h`` for a file of the past, which a server
    deletes.
    """
    bases: list[str] = []
    increments: list[str] = []
    kept: list[str] = []
    for line in text.splitlines():
        words = line.split()
        if not words or line.startswith("#"):
            continue
        pairs = dict(zip(words[::2], words[1::2], strict=False))
        name, kind = pairs.get("file", ""), pairs.get("type")
        if not name or "/" in name or '"' in name or kind not in {"b", "i", "h"}:
            raise ValueError(f"a line is {line!r}")
        if kind != "h":
            (bases if kind == "b" else increments).append(name)
            kept.append(line)
    if len(bases) > 1 or not kept:
        raise ValueError("it names several base files" if bases else "it names no file")
    return DataFiles(manifest.parent, manifest, bases[0] if bases else None, tuple(increments), tuple(kept))


@contextlib.contextmanager
def content_of(path: Path) -> Generator[Data]:
    """Give access to the content of a file that nobody changes meanwhile."""
    with path.open("rb") as file:
        if file.seek(0, 2) == 0:
            yield b""
            return
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            yield mapped
