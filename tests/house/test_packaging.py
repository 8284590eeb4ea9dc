"""Tests of the package that a user gets: an sdist, a wheel built from it, and an installation of the wheel."""

from __future__ import annotations

import importlib.metadata
import re
import site
import sys
import sysconfig
import tarfile
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest

import sbredis
from sbredis.engine import whole_library
from tests.house.building import SDIST, WHEEL, build, run
from tools.repository import ROOT

pytestmark = pytest.mark.long("it builds the packages, as make dist does")


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder outside the checkout with the sdist of this checkout and the wheel that was built from it."""
    return build(tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def wheel(dist: Path) -> zipfile.ZipFile:
    return zipfile.ZipFile(dist / WHEEL)


@pytest.fixture(scope="module")
def metadata(wheel: zipfile.ZipFile) -> Message:
    return Parser().parsestr(wheel.read(f"sbredis-{sbredis.__version__}.dist-info/METADATA").decode())


def sources(folder: str) -> dict[str, bytes]:
    """Return the contents of the files in a folder of the checkout, by path within that folder."""
    return {
        str(path.relative_to(ROOT / folder)): path.read_bytes()
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def shipped(wheel: zipfile.ZipFile, folder: str) -> dict[str, bytes]:
    return {
        name.removeprefix(folder + "/"): wheel.read(name) for name in wheel.namelist() if name.startswith(folder + "/")
    }


def test_a_build_makes_an_sdist_and_a_wheel(dist: Path) -> None:
    assert {path.name for path in dist.iterdir()} == {SDIST, WHEEL}


def test_a_second_build_gives_the_same_bytes(dist: Path, tmp_path: Path) -> None:
    """So everybody can verify a release by building it again (docs/supply-chain.md)."""
    again = build(tmp_path)
    assert {path.name: path.read_bytes() == (again / path.name).read_bytes() for path in dist.iterdir()} == {
        SDIST: True,
        WHEEL: True,
    }


@pytest.mark.parametrize("folder", ["lua", "workers"])
def test_the_folders_at_the_root_are_shipped_inside_sbredis_byte_for_byte(wheel: zipfile.ZipFile, folder: str) -> None:
    assert shipped(wheel, f"sbredis/{folder}") == sources(folder) != {}


def test_the_assembled_lua_in_the_wheel_is_made_from_its_files(installed: Path, tmp_path: Path) -> None:
    code = "import sys, sbredis.engine as e; print(e.whole_library().name, 'sbredis.engine._lua_files' in sys.modules)"
    assert run(installed, "-I", "-c", code, cwd=tmp_path) == f"{whole_library().name} False"


def test_the_wheel_holds_sbredis_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    """The wheel contains no top-level ``workers``, a name that many services use. It contains no tests and no leftovers
    of a build.
    """
    info = f"sbredis-{sbredis.__version__}.dist-info"
    names = wheel.namelist()
    assert {name.split("/")[0] for name in names} == {"sbredis", "pyspark_sbredis.py", info}
    assert len(names) == len(set(names))
    suffixes = {Path(name).suffix for name in names if name.startswith("sbredis/")}
    assert suffixes <= {".py", ".typed", ".lua", ".md", ".json", ".yaml"}
    own = {f"sbredis/{name}" for name in sources("sbredis")}  # rglob does not follow symbolic links
    own |= {f"sbredis/{folder}/{name}" for folder in ("lua", "workers") for name in sources(folder)}
    own.add("sbredis/cli/_demo.py")  # an example, which a command runs
    assert {name for name in names if name.startswith("sbredis/")} == own
    assert {name.removeprefix(info + "/") for name in names if name.startswith(info)} == {
        "METADATA",
        "RECORD",
        "WHEEL",
        "entry_points.txt",
        "licenses/LICENSE",
    }


def test_the_record_lists_exactly_the_files_of_the_wheel(wheel: zipfile.ZipFile) -> None:
    record = wheel.read(f"sbredis-{sbredis.__version__}.dist-info/RECORD").decode().splitlines()
    assert sorted(line.split(",")[0] for line in record) == sorted(wheel.namelist())


def test_the_sdist_holds_real_folders_instead_of_links(dist: Path) -> None:
    with tarfile.open(dist / SDIST) as archive:
        members = {member.name.partition("/")[2]: member for member in archive.getmembers()}
    assert [name for name, member in members.items() if member.issym() or member.islnk()] == []
    assert {"pyproject.toml", "LICENSE", "README.md", "workers/__init__.py", "sbredis/_version.py"} <= set(members)
    assert [name for name in members if "__pycache__" in name or name.startswith((".venv", ".cache", ".git/"))] == []


def test_the_metadata_contain_the_facts_that_users_need(metadata: Message) -> None:
    assert metadata["Name"] == "sbredis"
    assert metadata["Version"] == sbredis.__version__
    assert metadata["Requires-Python"] == ">=3.11"
    assert metadata["License-Expression"] == "MIT"
    assert metadata.get_all("License-File") == ["LICENSE"]
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert set(metadata.get_all("Provides-Extra", [])) == {
        *("cli", "embedded", "fast", "memory", "otel", "reload", "spark")
    }
    needs = [need for need in metadata.get_all("Requires-Dist", []) if "extra ==" not in need]
    assert sorted(needs) == ["anyio<5,>=4.9", "click<9,>=8.2", "msgspec<1,>=0.22", "redis<9,>=8.1", "tenacity<10,>=9"]


def test_the_metadata_claim_only_the_python_versions_that_the_suite_runs_on(metadata: Message) -> None:
    claimed = [name.rpartition(" ")[2] for name in metadata.get_all("Classifier", []) if re.search(r":: 3\.\d+$", name)]
    assert claimed == ["3.11", "3.12", "3.13"]


@pytest.fixture(scope="module")
def installed(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the Python of an environment that has the wheel and nothing from this checkout.

    The environment uses the dependencies that are installed for the tests, so that nothing is downloaded. Python
    searches a path that a ``.pth`` file lists, but does not read the ``.pth`` files in that path. So the ``.pth`` file
    of the editable installation has no effect.
    """
    folder = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder)
    python = folder / "bin" / "python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "--no-index", "--no-deps", dist / WHEEL, cwd=folder)
    own = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder))
    (own / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    return python


def test_the_installed_package_works_without_the_checkout(installed: Path, tmp_path: Path) -> None:
    code = """
import importlib.metadata, pathlib, sys
import sbredis, sbredis.aio, sbredis.servers, sbredis.transport, sbredis.workers
for module in (sbredis, sbredis.aio, sbredis.workers):
    assert pathlib.Path(module.__file__).is_relative_to(sys.prefix), module.__file__
assert importlib.metadata.version("sbredis") == sbredis.__version__
try:
    import workers
except ModuleNotFoundError:
    print("well")
"""
    assert run(installed, "-I", "-c", code, cwd=tmp_path) == "well"


@pytest.mark.long("it starts a worker in an environment of its own")
def test_the_installed_package_runs_workers(installed: Path, tmp_path: Path) -> None:
    text = """
import asyncio
from sbredis.workers import Worker
worker, done = Worker("memory://shop"), asyncio.Event()
@worker.queue("orders", create_if_missing=True)
async def place(text: str) -> None:
    print(text)
    done.set()
async def main() -> None:
    async with worker.running():
        await worker.send("orders", "well")
        await done.wait()
asyncio.run(main())
"""
    (tmp_path / "shop.py").write_text(text, encoding="utf-8")
    assert run(installed, "-I", tmp_path / "shop.py", cwd=tmp_path) == "well"
    assert "MODULE:WORKER" in run(installed, "-I", "-m", "sbredis.workers", "--help", cwd=tmp_path)


@pytest.mark.long("it starts pytest in an environment of its own")
def test_pytest_finds_the_fixtures_of_the_installed_package(installed: Path, tmp_path: Path) -> None:
    test = (
        "def test_it(sbredis_bus, sbredis_sync_bus):\n"
        "    sbredis_sync_bus.create_queue('orders')\n"
        "    assert not sbredis_sync_bus.sent('orders')\n"
    )
    (tmp_path / "test_it.py").write_text(test, encoding="utf-8")
    said = run(installed, "-I", "-m", "pytest", "-W", "error", "-p", "no:cacheprovider", cwd=tmp_path)
    assert "1 passed" in said


def test_the_installed_scripts_can_be_read_as_resources(installed: Path, tmp_path: Path) -> None:
    code = "from importlib.resources import files; print(sorted(p.name for p in (files('sbredis') / 'lua').iterdir()))"
    names = {path.partition("/")[0] for path in sources("lua")}
    assert run(installed, "-I", "-c", code, cwd=tmp_path) == str(sorted(names))


def test_sbredis_can_be_imported_from_the_wheel_without_unpacking_it(dist: Path, tmp_path: Path) -> None:
    borrowed = [path for path in {sysconfig.get_path("purelib"), *site.getsitepackages()} if Path(path).is_dir()]
    code = f"""
import sys
sys.path[:0] = [{str(dist / WHEEL)!r}]
sys.path += {borrowed!r}
import sbredis, sbredis.aio, sbredis.servers, sbredis.workers
print(sbredis.__file__)
"""
    assert str(dist / WHEEL) in run(sys.executable, "-I", "-S", "-c", code, cwd=tmp_path)


def test_these_tests_import_sbredis_from_the_checkout() -> None:
    """sbredis is installed in editable mode, so a change in the checkout takes effect at once."""
    assert Path(sbredis.__file__).resolve().is_relative_to(ROOT)
    assert importlib.metadata.version("sbredis") == sbredis.__version__
    sbredis_workers = importlib.import_module("sbredis.workers")
    assert Path(str(sbredis_workers.__file__)).resolve().is_relative_to(ROOT)
