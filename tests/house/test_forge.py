"""Tests of the files for the forge: workflows, Dependabot and the forms of issues."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.offenders import for_each
from tools.lock import LOCKS
from tools.repository import ROOT

FORGE = ROOT / ".github"
WORKFLOWS = sorted((FORGE / "workflows").glob("*.yml"))
FORMS = sorted(path for path in (FORGE / "ISSUE_TEMPLATE").glob("*.yml") if path.stem != "config")
TARGETS = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))


def read(path: Path) -> Any:
    # `on` is a boolean in the YAML that this library reads.
    return yaml.safe_load(re.sub(r"^on:", '"on":', path.read_text("utf-8"), count=1, flags=re.MULTILINE))


def jobs(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = read(path)["jobs"]
    return found


def steps(path: Path) -> Iterator[dict[str, Any]]:
    for job in jobs(path).values():
        yield from job.get("steps", [])


def made(path: Path) -> list[str]:
    """Return the targets that a workflow makes, in its order."""
    return [target for step in steps(path) for target in re.findall(r"\bmake ([a-z][\w-]*)", step.get("run", ""))]


def test_the_workflows_make_targets_that_exist() -> None:
    targets = [target for path in WORKFLOWS for target in made(path)]
    assert set(targets) <= TARGETS
    assert made(FORGE / "workflows/ci.yml") == ["check", "test", "test-rest"]
    assert made(FORGE / "workflows/release.yml") == ["dist"]


def test_the_tests_run_on_each_python_that_the_package_claims() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    claimed = [found[1] for each in project["classifiers"] if (found := re.search(r":: (3\.\d+)$", each))]
    assert jobs(FORGE / "workflows/ci.yml")["test"]["strategy"]["matrix"]["python"] == claimed


@for_each("path", WORKFLOWS, ids=lambda path: path.name)
def test_an_action_is_named_by_its_commit_and_its_version(path: Path) -> None:
    used = re.findall(r"uses: +(?!\./)(.*)", path.read_text("utf-8"))
    assert used
    assert [line for line in used if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line)] == []


@for_each("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_has_only_the_permissions_that_it_needs(path: Path) -> None:
    assert read(path)["permissions"] in ({}, {"contents": "read"})
    allowed = [{"contents": "read"}, *([{"id-token": "write"}] if path.stem == "release" else [])]
    assert [
        name for name, job in jobs(path).items() if "permissions" in job and job["permissions"] not in allowed
    ] == []
    checkouts = [step for step in steps(path) if "actions/checkout@" in step.get("uses", "")]
    assert [step for step in checkouts if step["with"]["persist-credentials"] is not False] == []


@for_each("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_job_that_hangs_ends(path: Path) -> None:
    assert [name for name, job in jobs(path).items() if "steps" in job and "timeout-minutes" not in job] == []


@for_each("path", WORKFLOWS, ids=lambda path: path.name)
def test_no_text_from_outside_gets_into_a_command(path: Path) -> None:
    """The names of branches and titles are written by anybody. They may stand in the environment of a command."""
    assert [step["run"] for step in steps(path) if "${{" in step.get("run", "")] == []


def test_only_the_publishing_job_can_prove_who_it_is_and_it_runs_no_code_of_the_checkout() -> None:
    release = jobs(FORGE / "workflows/release.yml")
    assert [name for name, job in release.items() if "id-token" in job.get("permissions", {})] == ["publish"]
    assert release["publish"]["environment"] == "pypi"
    assert [step for step in release["publish"]["steps"] if "run" in step or "checkout" in step["uses"]] == []
    assert (release["publish"]["needs"], release["build"]["needs"]) == ("build", "ci")


def test_dependabot_looks_into_folders_that_exist() -> None:
    updates = read(FORGE / "dependabot.yml")["updates"]
    assert [each["package-ecosystem"] for each in updates] == ["pip", "github-actions"]
    folders = [folder for each in updates for folder in (each.get("directories") or [each["directory"]])]
    assert [folder for folder in folders if not (ROOT / folder.strip("/")).is_dir()] == []
    assert {f"/{Path(requirements).parent}" for requirements in LOCKS} == set(updates[0]["directories"])


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_a_form_asks_for_what_an_answer_needs(path: Path) -> None:
    form = read(path)
    assert form["name"]
    assert form["description"]
    asked = [part for part in form["body"] if part["type"] != "markdown"]
    assert len({part["id"] for part in asked}) == len(asked) > 0
    assert all(part["attributes"]["label"] and part["validations"]["required"] for part in asked)


def test_the_files_that_the_forms_name_exist() -> None:
    named = {name for path in FORMS for name in re.findall(r"`([\w./]+\.md)`", path.read_text("utf-8"))}
    assert {"SECURITY.md", "docs/index.md"} <= named
    assert [name for name in named if not (ROOT / name).is_file()] == []
