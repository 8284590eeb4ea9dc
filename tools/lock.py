"""Lock the packages that this repository installs: ``python -m tools.lock`` (``make lock``).

Each file of requirements names the packages that are wanted, at exact versions. Its lock beside it names these packages
and all packages that they need, with the hashes of their files, so that pip installs these files and no others
(``--require-hashes``). The lock holds the hashes of all wheels of a release, for every platform and Python. Only a
release without wheels has the hash of its source archive. Notes say which packages need which (``tools/sbom.py`` reads
them).

A lock is for every Python of ``PYTHONS`` on the platforms of ``PLATFORMS``. If only some of them need a package, the
package has the marker that tells them apart. pip may build no package from its source archive, except those that the
lock names because they have no wheels.

``python -m tools.lock --upgrade`` takes the newest versions of the packages that no file of requirements names;
otherwise they keep their versions. ``python -m tools.lock --check`` says which locks are not made from their
requirements as they are now; it needs no network. ``python -m tools.lock --part FILE NAME`` prints the part of a lock
that one package needs. The tool asks the package index that pip is set up for.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import os
import re
import subprocess
import sys
import urllib.request
import zipfile
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any, Protocol

from packaging.markers import Marker
from packaging.metadata import parse_email
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name, parse_sdist_filename, parse_wheel_filename
from packaging.version import Version

from tools.repository import ROOT

LOCKS: dict[str, str | None] = {
    "requirements/demo.txt": None,
    "requirements/test.txt": "requirements/demo.txt",
    "requirements/check.txt": "requirements/test.txt",
    "requirements/docs.txt": "requirements/test.txt",
    "requirements/spark.txt": "requirements/test.txt",
    "requirements/nats.txt": None,
    "requirements/virtualenv.txt": None,
    "benchmarks/requirements.txt": None,
}
"""The files of requirements, each with the one whose packages are installed in the same environment before.

A lock does not repeat the packages of that one's lock, nor of those before it.
"""

PYTHONS = ("3.11", "3.12", "3.13", "3.14")
PLATFORMS = (("linux", "x86_64"), ("linux", "aarch64"), ("darwin", "arm64"))
# The first and the last patch release of each Python: some packages need another one on old patch releases.
TARGETS: tuple[Mapping[str, str], ...] = tuple(
    {
        "implementation_name": "cpython",
        "implementation_version": f"{python}.{patch}",
        "os_name": "posix",
        "platform_machine": machine,
        "platform_python_implementation": "CPython",
        "platform_release": "",
        "platform_system": {"linux": "Linux", "darwin": "Darwin"}[system],
        "platform_version": "",
        "python_full_version": f"{python}.{patch}",
        "python_version": python,
        "sys_platform": system,
    }
    for python, patch, (system, machine) in product(PYTHONS, (0, 99), PLATFORMS)
)
"""The environments that a lock is for, as markers see them."""

MADE_FROM = "# made from: sha256:"
NEEDED_BY = "# needed by "
ALSO_NEEDS = "# also needs "
NO_BINARY = "--no-binary "
MOST_ROUNDS = 100
"""The bound for versions that exclude each other in turn. Each round chooses the packages that the one before found."""
ALL = frozenset(range(len(TARGETS)))


class Conflict(Exception):  # noqa: N818 - it is a finding about the requirements
    """Requirements that no version fulfils. A pin in a file of requirements can settle it."""


@dataclass(frozen=True)
class Release:
    """A version of a package: what it needs, and the hashes of its wheels, or of its source archive if it has none."""

    version: Version
    requires: tuple[Requirement, ...] = ()
    hashes: tuple[str, ...] = ()
    is_built: bool = False


class Source(Protocol):
    """An index of packages."""

    def newest(self, name: str, specifier: SpecifierSet) -> Version | None:
        """Return the newest version in a range that every Python of ``PYTHONS`` can use."""
        ...

    def release(self, name: str, version: Version) -> Release:
        """Return a version of a package."""
        ...


@dataclass(frozen=True)
class Locked:
    """A package of a lock."""

    name: str
    version: Version
    marker: str = ""
    needed_by: tuple[str, ...] = ()
    hashes: tuple[str, ...] = ()
    is_built: bool = False
    also_needs: tuple[str, ...] = ()
    """The packages of earlier locks that it needs."""

    @property
    def targets(self) -> frozenset[int]:
        """The environments that it is for."""
        return applicable(Marker(self.marker)) if self.marker else ALL


@dataclass
class Wanted:
    """What the requirements say about one package."""

    specifier: SpecifierSet = field(default_factory=SpecifierSet)
    targets: set[int] = field(default_factory=set)
    needed_by: set[str] = field(default_factory=set)


def applicable(marker: Marker | None, extras: frozenset[str] = frozenset()) -> frozenset[int]:
    """Return the environments for which a marker is true, with one of these extras or without any."""
    if marker is None:
        return ALL
    return frozenset(
        at
        for at, target in enumerate(TARGETS)
        if any(marker.evaluate({**target, "extra": extra}) for extra in {"", *extras})
    )


def read_requirements(text: str) -> list[Requirement]:
    """Read a file of requirements, without its comments."""
    lines = (re.sub(r"(^|\s)#.*", "", line).strip() for line in text.splitlines())
    return [Requirement(line) for line in lines if line]


def made_from(*texts: str) -> str:
    """Return the hash that a lock states of the requirements that it was made from. Comments do not count."""
    wanted = [sorted(map(str, read_requirements(text))) for text in texts]
    return hashlib.sha256(json.dumps(wanted).encode()).hexdigest()


def walk(roots: list[Requirement], chosen: Mapping[str, Release]) -> tuple[dict[str, Wanted], set[str]]:
    """Return what is wanted of each package, as far as versions are chosen, and the markers that were met."""
    wanted: dict[str, Wanted] = defaultdict(Wanted)
    markers: set[str] = set()
    seen: set[tuple[str, frozenset[str], frozenset[int]]] = set()
    open_ = [(root, "", ALL, frozenset[str]()) for root in roots]
    while open_:
        requirement, parent, within, extras = open_.pop()
        targets = within & applicable(requirement.marker, extras)
        if not targets:
            continue
        name, own = canonicalize_name(requirement.name), frozenset(requirement.extras)
        if requirement.marker is not None and "extra" not in str(requirement.marker):
            markers.add(str(requirement.marker))
        want = wanted[name]
        want.specifier &= requirement.specifier
        want.targets |= targets
        want.needed_by |= {parent} - {""}
        if name in chosen and (name, own, targets) not in seen:
            seen.add((name, own, targets))
            open_ += [(needed, name, targets, own) for needed in chosen[name].requires]
    return wanted, markers


def resolve(
    roots: list[Requirement], source: Source, kept: Mapping[str, Version], fixed: Mapping[str, Locked]
) -> list[Locked]:
    """Choose a version of each package that the requirements need.

    A version of ``fixed`` must fit. A version of ``kept`` is taken if it fits. Otherwise it is the newest that fits.
    A package of ``fixed`` is not in the result, unless an environment needs it that it is not for.
    """
    chosen: dict[str, Release] = {}
    wanted, markers = walk(roots, chosen)
    rounds = 0
    while wrong := [
        n for n, w in wanted.items() if n not in chosen or not w.specifier.contains(chosen[n].version, True)
    ]:
        rounds += 1
        if rounds > MOST_ROUNDS:
            raise Conflict(f"versions that fit together were not found; pin one of {', '.join(sorted(wrong))}")
        for name in wrong:
            chosen[name] = choose(name, wanted[name], source, kept, fixed)
        wanted, markers = walk(roots, chosen)
    marked: dict[str, str] = {canonicalize_name(root.name): str(root.marker or "") for root in roots}
    added = {
        name: want for name, want in wanted.items() if name not in fixed or not want.targets <= fixed[name].targets
    }
    return [
        Locked(
            name,
            chosen[name].version,
            marked[name] if name in marked else shortest(frozenset(want.targets), markers),
            tuple(sorted(want.needed_by)),
            chosen[name].hashes,
            chosen[name].is_built,
            tuple(sorted(before for before in wanted if before not in added and name in wanted[before].needed_by)),
        )
        for name, want in sorted(added.items())
    ]


def choose(
    name: str, want: Wanted, source: Source, kept: Mapping[str, Version], fixed: Mapping[str, Locked]
) -> Release:
    """Choose the version of one package."""
    if name in fixed:
        version: Version | None = fixed[name].version
    elif name in kept and want.specifier.contains(kept[name], prereleases=True):
        version = kept[name]
    else:
        version = source.newest(name, want.specifier)
    if version is None or not want.specifier.contains(version, prereleases=True):
        locked = f" and {fixed[name].version} is locked already" if name in fixed else ""
        needed_by = ", ".join(sorted(want.needed_by)) or "the file of requirements"
        raise Conflict(f"no version of {name} fits: {needed_by} need(s) {want.specifier}{locked}")
    return source.release(name, version)


def shortest(targets: frozenset[int], markers: set[str]) -> str:
    """Return the marker that is true for these environments and for the fewest others; none if all need the package."""
    fitting = [(len(true), len(text), text) for text in markers if (true := applicable(Marker(text))) >= targets]
    return min([*fitting, (len(ALL), 0, "")])[2]


def written(name: str, from_: str, locked: list[Locked]) -> str:
    """Write a lock."""
    what = f"# The packages that {name} needs, with the hashes of their files."
    lines = [
        f"{what} `make lock` writes this file; do not edit it.",
        MADE_FROM + from_,
        "--require-hashes",
        "--only-binary :all:",
    ]
    for package in locked:
        lines.append("")
        if package.needed_by:
            lines.append(NEEDED_BY + ", ".join(package.needed_by))
        if package.also_needs:
            lines.append(ALSO_NEEDS + ", ".join(package.also_needs))
        if package.is_built:
            lines.append(NO_BINARY + package.name)
        marker = f"; {package.marker}" if package.marker else ""
        hashes = [f"    --hash=sha256:{hash_}" for hash_ in sorted(package.hashes)]
        lines += " \\\n".join([f"{package.name}=={package.version}{marker}", *hashes]).split("\n")
    return "\n".join(lines) + "\n"


def read_lock(text: str) -> dict[str, Locked]:
    """Read a lock."""
    locked: dict[str, Locked] = {}
    for paragraph in re.sub(r" \\\n", " ", text).split("\n\n")[1:]:
        *notes, line = paragraph.strip().split("\n")
        wanted, *hashes = line.split("--hash=sha256:")
        requirement = Requirement(wanted.strip())
        name = canonicalize_name(requirement.name)
        locked[name] = Locked(
            name,
            Version(str(requirement.specifier).removeprefix("==")),
            str(requirement.marker or ""),
            noted(notes, NEEDED_BY),
            tuple(hash_.strip() for hash_ in hashes),
            NO_BINARY + name in notes,
            noted(notes, ALSO_NEEDS),
        )
    return locked


def noted(notes: list[str], beginning: str) -> tuple[str, ...]:
    """Return the names in the note that begins so."""
    return next((tuple(note.removeprefix(beginning).split(", ")) for note in notes if note.startswith(beginning)), ())


def part(locked: Mapping[str, Locked], name: str) -> list[Locked]:
    """Return the packages of a lock that one of its packages needs, and this package itself."""
    found: set[str] = {canonicalize_name(name)}
    while more := {each.name for each in locked.values() if found.intersection(each.needed_by)} - found:
        found |= more
    return [each for each in locked.values() if each.name in found]


def lock_of(requirements: str, root: Path = ROOT) -> Path:
    """Return the path of the lock of a file of requirements."""
    return (root / requirements).with_suffix(".lock")


def earlier(requirements: str) -> list[str]:
    """Return the files of requirements whose packages are installed before those of this one, the first one first."""
    before = LOCKS[requirements]
    return [] if before is None else [*earlier(before), before]


def sources(requirements: str, root: Path = ROOT) -> list[str]:
    """Return the texts that a lock is made from."""
    return [(root / name).read_text("utf-8") for name in (*earlier(requirements), requirements)]


def stale(root: Path = ROOT) -> list[str]:
    """Return a line for each lock that is missing, or that is not made from its requirements as they are now."""
    problems = []
    for requirements in LOCKS:
        lock = lock_of(requirements, root)
        text = lock.read_text("utf-8") if lock.is_file() else ""
        if f"\n{MADE_FROM}{made_from(*sources(requirements, root))}\n" not in text:
            problems.append(f"{lock.relative_to(root)} is not made from {requirements} as it is now; run: make lock")
    return problems


# -- the package index ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class File:
    """A file of a release."""

    name: str
    version: Version
    is_wheel: bool
    url: str
    sha256: str
    size: int
    yanked: bool
    requires_python: SpecifierSet
    has_metadata: bool

    @classmethod
    def of(cls, entry: dict[str, Any]) -> File | None:
        """Read an entry of an index's page; return ``None`` for files that pip does not install."""
        name = entry["filename"]
        is_wheel = name.endswith(".whl")
        try:
            version = parse_wheel_filename(name)[1] if is_wheel else parse_sdist_filename(name)[1]
            requires_python = SpecifierSet(entry.get("requires-python") or "")
        except ValueError:
            return None
        return cls(
            name,
            version,
            is_wheel,
            entry["url"],
            entry["hashes"]["sha256"],
            entry.get("size", 0),
            bool(entry.get("yanked")),
            requires_python,
            bool(entry.get("core-metadata")),
        )


class Index:
    """The package index that pip is set up for."""

    def __init__(self) -> None:
        self._address = index_address()
        self._files: dict[str, list[File]] = {}
        self._releases: dict[tuple[str, Version], Release] = {}

    def newest(self, name: str, specifier: SpecifierSet) -> Version | None:
        usable = {
            file.version
            for file in self._of(name)
            if not file.yanked and all(file.requires_python.contains(f"{python}.0") for python in PYTHONS)
        }
        return max(specifier.filter(usable), default=None)  # pre-releases count only if nothing else fits

    def release(self, name: str, version: Version) -> Release:
        key = name, version
        if key not in self._releases:
            files = [file for file in self._of(name) if file.version == version]
            wheels = [file for file in files if file.is_wheel]
            if not files:
                raise Conflict(f"the index has no {name} {version}")
            print(f"  {name} {version}", flush=True)
            requires = self._requires(min(wheels, key=lambda file: file.size)) if wheels else ()
            self._releases[key] = Release(version, requires, tuple(file.sha256 for file in wheels or files), not wheels)
        return self._releases[key]

    def _of(self, name: str) -> list[File]:
        if name not in self._files:
            request = urllib.request.Request(  # noqa: S310 - pip's address of the index
                f"{self._address}/{name}/", headers={"Accept": "application/vnd.pypi.simple.v1+json"}
            )
            with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310 - as above
                entries = json.load(answer)["files"]
            self._files[name] = [file for entry in entries if (file := File.of(entry)) is not None]
        return self._files[name]

    def _requires(self, wheel: File) -> tuple[Requirement, ...]:
        """Return what a wheel needs. All wheels of a release are taken to need the same."""
        kept = ROOT / ".cache" / "lock" / f"{wheel.sha256}.metadata"
        if not kept.is_file():
            kept.parent.mkdir(parents=True, exist_ok=True)
            kept.write_bytes(metadata(wheel))
        lines = parse_email(kept.read_bytes())[0].get("requires_dist", [])
        return tuple(map(Requirement, lines))


def metadata(wheel: File) -> bytes:
    """Fetch the metadata of a wheel: alone if the index offers them, otherwise with the wheel."""
    if wheel.has_metadata:
        return fetch(wheel.url.partition("#")[0] + ".metadata")
    content = fetch(wheel.url)
    if hashlib.sha256(content).hexdigest() != wheel.sha256:
        raise Conflict(f"{wheel.name} does not have the hash that the index states")
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        (name,) = [name for name in archive.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", name)]
        return archive.read(name)


def fetch(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=300) as answer:  # noqa: S310 - an address that the index states
        content: bytes = answer.read()
    return content


def index_address() -> str:
    """Return the address of the package index that pip is set up for. Its help states it."""
    said = subprocess.run(
        [sys.executable, "-m", "pip", "install", "--help"],
        env={**os.environ, "COLUMNS": "1000"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    found = re.search(r"Base URL of .*?\(default (\S+)\)", said)
    if found is None:
        raise Conflict("pip does not say in its help which index it uses (pip install --help)")
    return found[1].rstrip("/")


# -- the command ------------------------------------------------------------------------------------------------------


def lock(*, upgrade: bool) -> Iterator[Path]:
    """Make all locks, and yield those that changed."""
    source = Index()
    for requirements in LOCKS:
        print(requirements, flush=True)
        path = lock_of(requirements)
        old = path.read_text("utf-8") if path.is_file() else ""
        kept = {} if upgrade else {name: locked.version for name, locked in read_lock(old).items()}
        installed = [read_lock(lock_of(name).read_text("utf-8")) for name in earlier(requirements)]
        fixed = {name: package for locked in installed for name, package in locked.items()}
        texts = sources(requirements)
        locked = resolve(read_requirements(texts[-1]), source, kept, fixed)
        new = written(path.with_suffix(".txt").name, made_from(*texts), locked)
        if new != old:
            path.write_text(new, "utf-8")
            yield path


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.lock", description="Lock the packages, with their hashes.")
    parser.add_argument("--check", action="store_true", help="only say which locks are stale; needs no network")
    parser.add_argument(
        "--upgrade", action="store_true", help="take the newest versions of packages that are not pinned"
    )
    parser.add_argument("--part", nargs=2, metavar=("FILE", "NAME"), help="only print what one package of a lock needs")
    options = parser.parse_args(arguments)
    if options.part:
        requirements, name = options.part
        text = lock_of(requirements).read_text("utf-8")
        print(written(name, "", part(read_lock(text), name)), end="")
        return 0
    if options.check:
        problems = stale()
        print(*(problems or ["all locks are made from their requirements"]), sep="\n")
        return 1 if problems else 0
    try:
        changed = [str(path.relative_to(ROOT)) for path in lock(upgrade=options.upgrade)]
    except Conflict as conflict:
        print(f"not locked: {conflict}", file=sys.stderr)
        return 1
    print("changed:" if changed else "nothing changed", *changed)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
