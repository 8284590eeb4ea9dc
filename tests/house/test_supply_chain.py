"""Tests of the page about the supply chain against the package, and of what it promises."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

from sbredis.engine._assembled import as_json, assembled
from tests.house.modules import Module, modules
from tests.offenders import for_each
from tools.lock import LOCKS, lock_of, read_lock
from tools.repository import ROOT

PAGE = (ROOT / "docs/supply-chain.md").read_text("utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
WITHOUT_UPPER_BOUND = {"pyarrow", "uvloop"}
"""The page says why."""

FETCHING = {"ensurepip", "ftplib", "http.client", "httpx", "pip", "requests", "urllib.request", "xmlrpc"}


def section(title: str) -> str:
    """Return the section of the page whose title begins so."""
    return next(part for part in PAGE.split("\n## ") if part.startswith(title))


def declared() -> dict[tuple[str, str], str]:
    """Return the ranges in pyproject.toml by extra, which is empty for a dependency, and by package."""
    lines = [("", line) for line in PROJECT["dependencies"]]
    lines += [(extra, line) for extra, wanted in PROJECT["optional-dependencies"].items() for line in wanted]
    wanted = [(extra, Requirement(line)) for extra, line in lines]
    return {(extra, each.name): ",".join(sorted(map(str, each.specifier), reverse=True)) for extra, each in wanted}


def test_the_page_lists_every_dependency_and_extra_with_its_range() -> None:
    rows = re.findall(
        r"^\| (?:`(\w+)` \| )?([\w-]+)(?: \([\w-]+\))? \| `([^`]+)` \|", section("Dependencies"), re.MULTILINE
    )
    assert {(extra, name): range_ for extra, name, range_ in rows} == declared()


def test_every_range_has_an_upper_bound_unless_the_page_says_why_not() -> None:
    unbounded = {name for (_, name), range_ in declared().items() if "<" not in range_}
    assert unbounded == WITHOUT_UPPER_BOUND
    reasons = dict(re.findall(r"^\| ([\w-]+) \| .* \| ([^|]+) \|$", section("Why each range"), re.MULTILINE))
    assert {name for name, reason in reasons.items() if reason.startswith("none")} == WITHOUT_UPPER_BOUND
    assert {name for _, name in declared()} == set(reasons) - {"package"}


def test_the_page_lists_every_folder_of_the_wheel() -> None:
    folders = {f"sbredis/{path.name}" for path in (ROOT / "sbredis").iterdir() if path.is_dir()}
    listed = re.findall(r"^\| `([\w/.]+)` \|", section("The wheel"), re.MULTILINE)
    assert set(listed) == {path for path in folders if "__pycache__" not in path} | {"pyspark_sbredis.py"}


def test_the_page_says_how_large_each_folder_of_the_wheel_is() -> None:
    listed = re.findall(r"^\| `(sbredis/\w+)` \| .* \| ([0-9]+) KB \|$", section("The wheel"), re.MULTILINE)
    sizes = {folder: sum(path.stat().st_size for path in files_in(folder)) / 1000 for folder, _ in listed}
    sizes["sbredis/lua"] += len(as_json(assembled())) / 1000  # the file that the build writes
    wrong = [folder for folder, size in listed if not 0.8 < (10 + int(size)) / (10 + sizes[folder]) < 1.25]
    assert wrong == [], sizes


def files_in(folder: str) -> list[Path]:
    """Return the files of a folder of the wheel, without what a build or a run may have written there."""
    found = [path for path in (ROOT / folder).resolve().rglob("*.*") if path.is_file() and path.suffix != ".pyc"]
    return [path for path in found if not path.match("lua/assembled.*")]


def test_the_page_lists_every_lock() -> None:
    listed = re.findall(r"^\| `([\w/.]+\.lock)` \|", section("Packages for development"), re.MULTILINE)
    assert listed == [lock_of(name).relative_to(ROOT).as_posix() for name in LOCKS]


def test_pip_builds_only_the_packages_that_the_page_names() -> None:
    locked = [each for path in LOCKS for each in read_lock(lock_of(path).read_text("utf-8")).values()]
    assert {each.name for each in locked if each.is_built} == {"pyspark", "crontab"}
    assert "PySpark and crontab have no wheels." in PAGE


@for_each("module", modules(), ids=lambda module: module.name)
def test_no_module_of_the_product_can_download_anything(module: Module) -> None:
    assert {name for name in module.imports() if any(f"{name}.".startswith(f"{each}.") for each in FETCHING)} == set()
