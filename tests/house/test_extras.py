"""Tests that the wheel works with each extra alone: with the packages that this extra needs, and no others.

The demonstration needs two of them. The packages come from the environment of the tests, so nothing is downloaded.
``make dist`` does the same with pip.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from sbredis.servers import LocalServer
from tests.children import run_program
from tests.house.building import WHEEL, build, run
from tools.dist import TRIALS, try_out
from tools.repository import ROOT

EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
HEAVY = {"spark"}
"""The extras that only ``make dist`` tries, because the environment of the tests may lack them."""


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an environment with the wheel and nothing else."""
    folder = tmp_path_factory.mktemp("environment")
    wheel = build(tmp_path_factory.mktemp("dist")) / WHEEL
    run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder)
    python = folder / "bin" / "python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "--no-index", "--no-deps", wheel, cwd=folder)
    return folder


def needed(name: str, extras: set[str], found: dict[str, Distribution]) -> dict[str, Distribution]:
    """Add what a package needs with these extras to the packages found, by name."""
    for line in distribution(name).requires or []:
        requirement = Requirement(line)
        wanted = requirement.marker is None or any(
            requirement.marker.evaluate({"extra": extra}) for extra in extras | {""}
        )
        own = canonicalize_name(requirement.name)
        if wanted and own not in found:
            found[own] = distribution(requirement.name)
            needed(requirement.name, requirement.extras, found)
    return found


def top_level(package: Distribution) -> Iterator[Path]:
    """Yield the files and folders of a package in the environment of the tests."""
    root = Path(str(package.locate_file("")))
    names = {Path(str(file)).parts[0] for file in package.files or []}
    yield from (root / name for name in names if not name.startswith("..") and (root / name).exists())


def with_extra(environment: Path, extra: str) -> Path:
    """Link the packages of an extra or of several, and no others, into the environment. Return the folder of its
    programs.
    """
    binaries = environment / "bin"
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    site = Path(run(binaries / "python", "-c", code, cwd=environment))
    for path in site.iterdir():
        if path.is_symlink():
            path.unlink()
    for package in needed("sbredis", {*extra.split(",")}, {}).values():
        for path in top_level(package):
            if not (site / path.name).exists():
                (site / path.name).symlink_to(path)
    return binaries


def test_every_extra_has_a_trial_of_its_own() -> None:
    assert {"", *EXTRAS} <= set(TRIALS)
    assert {extra for extras in TRIALS for extra in extras.split(",")} == {"", *EXTRAS}
    assert all(TRIALS.values())


@pytest.mark.long("it makes an environment for each extra")
@pytest.mark.parametrize("extra", sorted(set(TRIALS) - HEAVY))
def test_the_wheel_works_with_one_extra_alone(
    extra: str, empty: Path, server: LocalServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("PYTHONPATH", "PYTHONHOME"):
        monkeypatch.delenv(variable, raising=False)
    try_out(extra, with_extra(empty, extra), tmp_path, server.url)


@pytest.mark.long("it makes an environment, for the test above")
def test_a_package_of_another_extra_is_not_there(empty: Path, tmp_path: Path) -> None:
    """The environments of these tests have only what the wheel asks for."""
    python = with_extra(empty, "cli") / "python"
    code = "import click, rich, yaml, anyio, redis\nimport fakeredis"
    done = run_program(python, "-c", code, cwd=tmp_path, env={})
    assert "No module named 'fakeredis'" in done.stderr
