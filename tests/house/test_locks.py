"""Tests of the locks: which packages they name, when they are stale, and that pip gets nothing without them."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from tests.children import run_program
from tests.house.building import run
from tests.offenders import for_each
from tools.lock import (
    LOCKS,
    Conflict,
    Locked,
    Release,
    earlier,
    lock_of,
    made_from,
    part,
    read_lock,
    read_requirements,
    resolve,
    stale,
    written,
)
from tools.repository import ROOT

Packages = dict[str, dict[str, list[str]]]
"""What the versions of packages need, by name and version."""


class Shelf:
    """An index that has the packages of a test."""

    def __init__(self, packages: Packages) -> None:
        self._packages = packages

    def newest(self, name: str, specifier: SpecifierSet) -> Version | None:
        return max(specifier.filter(map(Version, self._packages.get(name, {}))), default=None)

    def release(self, name: str, version: Version) -> Release:
        return Release(version, tuple(map(Requirement, self._packages[name][str(version)])), ("ab" * 32,))


def lines(
    wanted: list[str], packages: Packages, kept: dict[str, str] | None = None, fixed: list[Locked] | None = None
) -> list[str]:
    """Lock made-up packages, and return the requirements of the lock."""
    versions = {name: Version(version) for name, version in (kept or {}).items()}
    before = {package.name: package for package in fixed or []}
    found = resolve([Requirement(each) for each in wanted], Shelf(packages), versions, before)
    return [f"{each.name}=={each.version}" + (f"; {each.marker}" if each.marker else "") for each in found]


# -- which packages are locked ----------------------------------------------------------------------------------------


def test_a_lock_names_the_packages_that_a_package_needs_in_the_newest_version_that_fits() -> None:
    packages: Packages = {
        "web": {"1.0": ["tags>=2", "text<3"]},
        "text": {"2.0": ["tags<4"], "2.1": ["tags<4"], "3.0": []},
        "tags": {"1.0": [], "3.0": [], "3.9rc1": [], "4.0": []},
    }
    assert lines(["web==1.0"], packages) == ["tags==3.0", "text==2.1", "web==1.0"]


def test_a_version_that_is_locked_already_stays_if_it_fits() -> None:
    packages: Packages = {"web": {"1.0": ["tags>=2"]}, "tags": {"1.0": [], "2.0": [], "3.0": []}}
    assert lines(["web==1.0"], packages, {"tags": "2.0"}) == ["tags==2.0", "web==1.0"]
    assert lines(["web==1.0"], packages, {"tags": "1.0"}) == ["tags==3.0", "web==1.0"]


def test_a_pre_release_is_taken_only_if_nothing_else_fits() -> None:
    packages: Packages = {"web": {"1.0": ["tags"]}, "tags": {"0.9b1": [], "0.9b2": []}}
    assert lines(["web==1.0"], packages) == ["tags==0.9b2", "web==1.0"]


MARKERS = {
    "old Pythons": ('python_version < "3.12"', '; python_version < "3.12"'),
    "old patch releases": ('python_full_version < "3.11.3"', '; python_full_version < "3.11.3"'),
    "one system": ('sys_platform == "darwin"', '; sys_platform == "darwin"'),
    "every environment": ('python_version >= "3.8"', ""),
}


@pytest.mark.parametrize(("needed_if", "marker"), MARKERS.values(), ids=MARKERS)
def test_a_package_that_only_some_environments_need_has_a_marker(needed_if: str, marker: str) -> None:
    packages: Packages = {"web": {"1.0": [f"tags; {needed_if}"]}, "tags": {"1.0": ["more"]}, "more": {"1.0": []}}
    assert lines(["web==1.0"], packages) == [f"more==1.0{marker}", f"tags==1.0{marker}", "web==1.0"]


def test_a_package_that_no_environment_needs_is_not_locked() -> None:
    packages: Packages = {"web": {"1.0": ['tags; sys_platform == "win32"', 'text; extra == "text"']}}
    assert lines(["web==1.0"], packages) == ["web==1.0"]


def test_the_packages_of_an_extra_are_locked_if_the_extra_is_wanted() -> None:
    packages: Packages = {"web": {"1.0": ['text; extra == "text"', 'tags; extra == "tags"']}, "text": {"1.0": []}}
    assert lines(["web[text]==1.0"], packages) == ["text==1.0", "web==1.0"]


def test_a_package_that_is_wanted_keeps_its_marker() -> None:
    packages: Packages = {"loop": {"1.0": []}}
    assert lines(['loop==1.0; sys_platform != "win32"'], packages) == ['loop==1.0; sys_platform != "win32"']


def test_a_lock_does_not_repeat_the_packages_of_the_environment_that_it_adds_to() -> None:
    packages: Packages = {"lint": {"1.0": ["tags", "text"]}, "tags": {"1.0": [], "2.0": []}, "text": {"1.0": []}}
    assert lines(["lint==1.0"], packages, fixed=[Locked("tags", Version("1.0"))]) == ["lint==1.0", "text==1.0"]


def test_a_lock_notes_which_of_its_packages_need_packages_of_an_earlier_lock() -> None:
    packages: Packages = {"lint": {"1.0": ["tags", "text"]}, "tags": {"1.0": []}, "text": {"1.0": ["tags"]}}
    fixed = {"tags": Locked("tags", Version("1.0"))}
    found = resolve([Requirement("lint==1.0")], Shelf(packages), {}, fixed)
    assert [(each.name, each.needed_by, each.also_needs) for each in found] == [
        ("lint", (), ("tags",)),
        ("text", ("lint",), ("tags",)),
    ]


def test_a_lock_repeats_a_package_that_the_environment_has_on_other_systems_only() -> None:
    packages: Packages = {"lint": {"1.0": ["tags"]}, "tags": {"1.0": []}}
    fixed = [Locked("tags", Version("1.0"), 'sys_platform == "darwin"')]
    assert lines(["lint==1.0"], packages, fixed=fixed) == ["lint==1.0", "tags==1.0"]


def test_requirements_that_no_version_fulfils_are_refused_with_their_names() -> None:
    packages: Packages = {"web": {"1.0": ["tags>=2"]}, "lint": {"1.0": ["tags<2"]}, "tags": {"1.0": [], "2.0": []}}
    with pytest.raises(Conflict, match=r"no version of tags fits: lint, web need\(s\) (<2,>=2|>=2,<2)$"):
        lines(["web==1.0", "lint==1.0"], packages)
    with pytest.raises(Conflict, match=r"no version of tags fits: web need\(s\) >=2 and 1.0 is locked already"):
        lines(["web==1.0"], packages, fixed=[Locked("tags", Version("1.0"))])


def test_versions_that_exclude_each_other_in_turn_are_refused() -> None:
    """The newest version of each needs an old version of the other one."""
    packages: Packages = {
        "web": {"1.0": ["tags", "text"]},
        "tags": {"1.0": ["text>1"], "2.0": ["text<2"]},
        "text": {"1.0": ["tags<2"], "2.0": ["tags>1"]},
    }
    with pytest.raises(Conflict):
        lines(["web==1.0"], packages)


# -- the file ---------------------------------------------------------------------------------------------------------

PACKAGES = [
    Locked("built", Version("2.0"), "", ("web",), ("cd" * 32,), is_built=True),
    Locked("loop", Version("1.0"), 'sys_platform != "win32"', (), ("ab" * 32, "ef" * 32), also_needs=("tags", "text")),
    Locked("web", Version("1.0"), hashes=("01" * 32,)),
]


def test_a_lock_is_read_as_it_was_written() -> None:
    assert list(read_lock(written("demo.txt", "0", PACKAGES)).values()) == PACKAGES


def test_a_lock_permits_no_build_except_of_packages_without_wheels() -> None:
    options = [line for line in written("demo.txt", "0", PACKAGES).splitlines() if line.startswith("--")]
    assert options == ["--require-hashes", "--only-binary :all:", "--no-binary built"]


def test_a_part_of_a_lock_has_what_one_package_needs() -> None:
    locked = {package.name: package for package in PACKAGES}
    assert [package.name for package in part(locked, "web")] == ["built", "web"]
    assert [package.name for package in part(locked, "loop")] == ["loop"]


# -- the locks of this repository -------------------------------------------------------------------------------------


def test_every_lock_is_made_from_its_requirements_as_they_are_now() -> None:
    assert stale() == []


@for_each("requirements", LOCKS)
def test_a_lock_names_every_package_that_is_wanted_and_states_hashes(requirements: str) -> None:
    locked = read_lock(lock_of(requirements).read_text("utf-8"))
    for wanted in read_requirements((ROOT / requirements).read_text("utf-8")):
        found = locked[wanted.name.lower()]
        assert f"=={found.version}" == str(wanted.specifier)
        assert found.marker == str(wanted.marker or "")
    for package in locked.values():
        assert package.hashes
        assert all(re.fullmatch(r"[0-9a-f]{64}", hash_) for hash_ in package.hashes)
        locks = [lock_of(name).read_text("utf-8") for name in (*earlier(requirements), requirements)]
        assert set(package.needed_by) <= {name for lock in locks for name in read_lock(lock)}


def test_the_package_index_has_no_name_in_a_lock() -> None:
    assert [name for name in LOCKS if "://" in lock_of(name).read_text("utf-8")] == []


CHANGES = {
    "another version": ("redis==", "redis==9.", True),
    "another marker": ('; sys_platform == "linux"', '; sys_platform == "aix"', True),
    "one package more": ("tenacity==", "another==1\ntenacity==", True),
    "one package less": ("hatchling==", "# hatchling==", True),
    "another comment": ("# dependencies of sbredis", "# what sbredis needs", False),
}


@pytest.mark.parametrize(("before", "after", "is_stale"), CHANGES.values(), ids=CHANGES)
def test_a_lock_is_stale_after_a_change_of_its_requirements(
    before: str, after: str, is_stale: bool, tmp_path: Path
) -> None:
    """The locks of packages that are added to those of another lock are stale with it."""
    for name in LOCKS:
        for path in (ROOT / name, lock_of(name)):
            copy = tmp_path / path.relative_to(ROOT)
            copy.parent.mkdir(exist_ok=True)
            shutil.copy(path, copy)
    changed = tmp_path / "requirements/demo.txt"
    text = changed.read_text("utf-8")
    assert before in text
    changed.write_text(text.replace(before, after, 1), "utf-8")
    sets = ["demo", "test", "check", "docs", "spark"] if is_stale else []
    expected = [
        f"requirements/{name}.lock is not made from requirements/{name}.txt as it is now; run: make lock"
        for name in sets
    ]
    assert stale(tmp_path) == expected


def test_a_missing_lock_is_stale(tmp_path: Path) -> None:
    for name in LOCKS:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    assert len(stale(tmp_path)) == len(LOCKS)


def test_the_order_of_requirements_does_not_make_a_lock_stale() -> None:
    assert made_from("a==1\n# why\nb==2  # because\n") == made_from("b==2\na==1\n") != made_from("a==1\nb==3\n")


# -- installing -------------------------------------------------------------------------------------------------------


@for_each("script", ["tools/environment", "tools/nats", "tools/peers", "tools/spark"])
def test_a_script_installs_nothing_whose_hash_is_not_locked(script: str) -> None:
    """What has no hash is made on this machine. With --no-deps, pip fetches nothing for it."""
    text = (ROOT / script).read_text("utf-8").replace("\\\n", " ")
    commands = [line for line in text.splitlines() if re.search(r"\bpip (install|wheel)\b", line) and line[0] != "#"]
    assert commands
    assert [line for line in commands if "--require-hashes" not in line and "--no-deps" not in line] == []


def wheel(folder: Path, name: str) -> str:
    """Make a wheel with nothing in it; return its hash."""
    folder.mkdir()
    path = folder / f"{name}-1.0-py3-none-any.whl"
    info = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}.py", "")
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """Return an environment that has nothing but the pip of this one."""
    folder = tmp_path / "environment"
    run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=tmp_path)
    own = run(folder / "bin/python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=tmp_path)
    Path(own, "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n", "utf-8")
    return folder


@pytest.mark.long("it makes an environment")
def test_a_file_with_another_hash_is_refused_and_not_installed(environment: Path, tmp_path: Path) -> None:
    right = wheel(tmp_path / "index", "tiny")
    checkout = tmp_path / "checkout"
    for name in ("tools/environment", "pyproject.toml", "sbredis/_version.py"):
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, checkout / name)
    (checkout / "requirements").mkdir()
    (checkout / "requirements/demo.txt").write_text("tiny==1.0\n", "utf-8")
    lock = checkout / "requirements/demo.lock"
    wrong = "ab" * 32
    lock.write_text(written("demo.txt", "0", [Locked("tiny", Version("1.0"), hashes=(wrong,))]), "utf-8")
    settings = {
        **os.environ,
        "SBREDIS_VENV": str(environment),
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(tmp_path / "index"),
    }
    done = run_program(checkout / "tools/environment", env=settings)
    assert done.returncode == 1  # not 69, which means that there is no network
    assert done.stderr.endswith(
        "tiny==1.0\nenvironment: pip refused the package named above, because it is not the file that "
        "requirements/demo.lock names: it was changed on the index or on its way here\n"
    )
    installed = [path.name for path in environment.rglob("tiny*")]
    assert (installed, (environment / ".installed-demo").exists()) == ([], False)

    lock.write_text(lock.read_text("utf-8").replace(wrong, right), "utf-8")  # the hash alone has made the difference
    run_program(environment / "bin/python", "-m", "pip", "install", "-r", lock, env=settings).check_returncode()
    assert [path.name for path in environment.rglob("tiny.py")] == ["tiny.py"]


@pytest.mark.long("it makes environments")
def test_frameworks_that_cannot_be_installed_are_named_one_by_one(tmp_path: Path) -> None:
    """The benchmark of workers then measures the others. Here there is no index, so none can be installed."""
    requirements = "benchmarks/requirements.txt"
    for name in ("tools/peers", "tools/lock.py", "tools/repository.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / ".venv").symlink_to(ROOT / ".venv")
    (tmp_path / requirements).parent.mkdir()
    (tmp_path / requirements).write_text("# two of them\nsaq[hiredis]==0.26.4\nuvloop==0.23.0  # a loop\n", "utf-8")
    shutil.copy(lock_of(requirements), lock_of(requirements, tmp_path))
    done = run_program(tmp_path / "tools/peers", env={**os.environ, "PIP_NO_INDEX": "1"})
    assert done.stdout.splitlines() == [
        "peers: installing benchmarks/requirements.lock into .cache/peers",
        "peers: not all can be installed together, so they are installed one by one",
        "peers: saq cannot be installed, so it is not measured; .cache/peers.log says why",
        "peers: uvloop cannot be installed, so it is not measured; .cache/peers.log says why",
    ]
    assert done.stderr == ""
    assert list(read_lock((tmp_path / ".cache/peer.lock").read_text("utf-8"))) == ["uvloop"]
