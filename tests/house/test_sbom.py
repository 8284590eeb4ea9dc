"""Tests of the bill of materials that ``make dist`` writes beside the wheel."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import re
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

import sbredis
from tools.lock import LOCKS, Locked, lock_of, read_lock
from tools.repository import ROOT
from tools.sbom import NEEDED_BY_SOURCES, Bill, bill, installed_by_users, write_bill

METADATA = """Metadata-Version: 2.4
Name: shop
Version: 1.2
Summary: Sells things
License-Expression: MIT
Requires-Dist: tags<4,>=2
Requires-Dist: loop>=1; sys_platform != 'win32'
Provides-Extra: web
Requires-Dist: web[text]>=1; extra == 'web'
"""

LOCKED = {
    each.name: each
    for each in (
        Locked("lint", Version("9.0"), hashes=("0a" * 32,)),
        Locked("loop", Version("1.5"), 'sys_platform != "win32"', hashes=("0b" * 32,)),
        Locked("more", Version("0.1"), needed_by=("lint", "text"), hashes=("0c" * 32,)),
        Locked("tags", Version("3.0"), needed_by=("lint",), hashes=("0d" * 32, "01" * 32)),
        Locked("text", Version("2.0"), needed_by=("web",), hashes=("0e" * 32,)),
        Locked("web", Version("1.0"), hashes=("0f" * 32,), also_needs=("tags",)),
    )
}


def wheel(folder: Path, metadata: str, name: str = "shop-1.2") -> Path:
    """Make a wheel with these metadata and nothing else."""
    path = folder / f"{name}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(zipfile.ZipInfo(f"{name}.dist-info/METADATA"), metadata)
    return path


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    return wheel(tmp_path, METADATA)


def scopes(found: Bill) -> dict[str, str]:
    return {each["name"]: each["scope"] for each in found["components"]}


def test_it_lists_what_the_wheel_needs_and_nothing_else(shop: Path) -> None:
    assert scopes(bill(shop, LOCKED)) == {
        "loop": "required",
        "more": "optional",
        "tags": "required",
        "text": "optional",
        "web": "optional",
    }


def test_it_says_which_package_needs_which(shop: Path) -> None:
    edges = {each["ref"]: each["dependsOn"] for each in bill(shop, LOCKED)["dependencies"]}
    assert edges == {
        "pkg:pypi/shop@1.2": ["pkg:pypi/loop@1.5", "pkg:pypi/tags@3.0", "pkg:pypi/web@1.0"],
        "pkg:pypi/loop@1.5": [],
        "pkg:pypi/more@0.1": [],
        "pkg:pypi/tags@3.0": [],
        "pkg:pypi/text@2.0": ["pkg:pypi/more@0.1"],
        "pkg:pypi/web@1.0": ["pkg:pypi/tags@3.0", "pkg:pypi/text@2.0"],
    }


def test_it_names_the_extra_and_the_systems_of_a_package(shop: Path) -> None:
    properties = {each["name"]: each.get("properties") for each in bill(shop, LOCKED)["components"]}
    assert properties == {
        "loop": [{"name": "sbredis:marker", "value": 'sys_platform != "win32"'}],
        "more": None,
        "tags": None,
        "text": None,
        "web": [{"name": "sbredis:extra", "value": "web"}],
    }


def test_it_has_the_hashes_of_the_locks_and_of_the_wheel(shop: Path) -> None:
    found = bill(shop, LOCKED)
    tags = next(each for each in found["components"] if each["name"] == "tags")
    assert [hash_["content"] for hash_ in tags["externalReferences"][0]["hashes"]] == ["01" * 32, "0d" * 32]
    assert found["metadata"]["component"]["hashes"] == [
        {"alg": "SHA-256", "content": hashlib.sha256(shop.read_bytes()).hexdigest()}
    ]


def test_a_package_that_no_lock_has_is_an_error(shop: Path) -> None:
    without = {name: package for name, package in LOCKED.items() if name != "loop"}
    with pytest.raises(KeyError, match="loop"):
        bill(shop, without)


def test_the_same_wheel_has_the_same_bill_and_another_one_has_not(shop: Path, tmp_path: Path) -> None:
    text = write_bill(shop, LOCKED).read_text("utf-8")
    assert (tmp_path / "shop-1.2.cdx.json").read_text("utf-8") == text
    assert write_bill(shop, LOCKED).read_text("utf-8") == text
    number = json.loads(text)["serialNumber"]
    assert re.fullmatch(r"urn:uuid:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", number)
    assert bill(wheel(tmp_path, METADATA + "\nMore.\n"), LOCKED)["serialNumber"] != number


@pytest.fixture
def own(tmp_path: Path) -> Bill:
    """Return the bill of this release. It needs only the metadata of the wheel."""
    text = importlib.metadata.distribution("sbredis").read_text("METADATA")
    assert text is not None
    return bill(wheel(tmp_path, text, f"sbredis-{sbredis.__version__}"), installed_by_users())


def test_the_bill_of_sbredis_lists_the_packages_of_the_page_about_the_supply_chain(own: Bill) -> None:
    page = (ROOT / "docs/supply-chain.md").read_text("utf-8")
    rows = re.findall(
        r"^\| ([a-z][^|]*) \| [^|]+ \| [^|]+ \| [^|]+ \|$", page.split("\nThese packages need")[1], re.MULTILINE
    )
    needed = {name for row in rows if not row.startswith("package") for name in re.sub(r" \(.*", "", row).split(", ")}
    wanted = {Requirement(line).name.lower() for line in importlib.metadata.requires("sbredis") or []}
    assert set(scopes(own)) == wanted | needed
    assert own["metadata"]["component"]["purl"] == f"pkg:pypi/sbredis@{sbredis.__version__}"


def test_what_packages_without_wheels_need_is_written_down() -> None:
    locked = [each for path in LOCKS for each in read_lock(lock_of(path).read_text("utf-8")).values()]
    users = installed_by_users()
    assert {each.name for each in locked if each.is_built and each.name in users} == set(NEEDED_BY_SOURCES)
