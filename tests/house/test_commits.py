"""Tests of the check of commits, with small repositories."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.children import run_module, run_program
from tools.check_commits import LONGEST, UncheckedHistoryError, findings, problems
from tools.repository import ROOT

AUTHOR = {
    "GIT_AUTHOR_NAME": "A",
    "GIT_AUTHOR_EMAIL": "a@example.com",
    "GIT_COMMITTER_NAME": "A",
    "GIT_COMMITTER_EMAIL": "a@example.com",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
}
LONG = "Say in a subject that no list of commits shows whole what its body should say"


def git(folder: Path, *arguments: str) -> str:
    done = run_program("git", "-C", folder, *arguments, env={**os.environ, **AUTHOR})
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def commit(folder: Path, message: str) -> str:
    """Make an empty commit, and return its hash."""
    git(folder, "commit", "--allow-empty", "--quiet", "-m", message)
    return git(folder, "rev-parse", "HEAD")


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """Return a repository with one commit, whose subject is too long."""
    folder = tmp_path / "clone"
    folder.mkdir()
    git(folder, "init", "--quiet", "--initial-branch=main")
    commit(folder, LONG)
    return folder


def why_unchecked(folder: Path) -> str:
    with pytest.raises(UncheckedHistoryError) as raised:
        findings(folder)
    return str(raised.value)


@pytest.mark.parametrize(
    "message", ["Cut a name", "C" * LONGEST, "Cut a name\n", "Cut a name\n\nIt was long. " + "x" * 100, "é" * LONGEST]
)
def test_a_good_message_passes(message: str) -> None:
    assert list(problems(message)) == []


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        ("C" * (LONGEST + 1), "its subject has 73 characters, and 72 are allowed"),
        ("Cut a name\nIt was long.", "an empty line is missing between its subject and its body"),
        ("fixup! Cut a name", "it is still to be joined with another one (git rebase --autosquash)"),
        ("Cut a name.", "its subject ends with a full stop"),
    ],
)
def test_a_bad_message_is_found(message: str, problem: str) -> None:
    assert list(problems(message)) == [problem]


def test_the_commits_since_a_base_are_checked(clone: Path) -> None:
    commit(clone, "Cut a name\n\nIt was long.")
    bad = commit(clone, LONG)
    assert findings(clone, "HEAD~1") == (
        1,
        [f"{git(clone, 'rev-parse', '--short', bad)} its subject has 77 characters, and 72 are allowed: {LONG}"],
    )
    assert findings(clone, "HEAD~2")[0] == 2
    assert findings(clone, "HEAD") == (0, [])


def test_a_base_that_is_no_commit_is_refused(clone: Path) -> None:
    with pytest.raises(ValueError, match="BASE=nowhere is no commit of this clone"):
        findings(clone, "nowhere")


def test_the_commits_since_the_beginning_of_the_rule_are_checked(clone: Path) -> None:
    beginning = git(clone, "rev-parse", "HEAD")
    commit(clone, "Cut a name")
    assert findings(clone, beginning=beginning) == (1, [])


def test_the_commits_since_the_last_release_are_checked(clone: Path) -> None:
    git(clone, "tag", "v0.1.0")
    commit(clone, LONG)
    git(clone, "tag", "-a", "v0.2.0", "-m", "0.2.0")
    commit(clone, "Cut a name")
    git(clone, "tag", "verified")  # no release
    assert findings(clone) == (1, [])


def test_published_commits_are_not_checked(clone: Path, tmp_path: Path) -> None:
    git(tmp_path, "clone", "--quiet", str(clone), "mine")
    commit(tmp_path / "mine", "Cut a name")
    assert findings(tmp_path / "mine") == (1, [])


def test_a_merge_is_not_checked(clone: Path) -> None:
    """git writes its message, with the names of branches."""
    git(clone, "checkout", "--quiet", "-b", "side")
    commit(clone, "Cut a name")
    git(clone, "checkout", "--quiet", "main")
    git(clone, "merge", "--quiet", "--no-ff", "-m", LONG, "side")
    assert findings(clone, "HEAD~1") == (1, [])


def test_a_detached_head_is_checked(clone: Path) -> None:
    git(clone, "tag", "v0.1.0")
    git(clone, "checkout", "--quiet", "--detach")
    commit(clone, "Cut a name")
    assert findings(clone) == (1, [])


def test_a_shallow_clone_is_not_checked(clone: Path, tmp_path: Path) -> None:
    commit(clone, "Cut a name")
    git(tmp_path, "clone", "--quiet", "--depth=1", clone.as_uri(), "shallow")
    assert why_unchecked(tmp_path / "shallow") == "this clone is shallow (git fetch --unshallow)"


def test_a_folder_without_git_is_not_checked(tmp_path: Path) -> None:
    assert why_unchecked(tmp_path) == "git sees no clone in this folder"


def test_a_folder_inside_another_clone_is_not_checked(clone: Path) -> None:
    (clone / "unpacked").mkdir()
    assert why_unchecked(clone / "unpacked") == "git sees no clone in this folder"


def test_a_clone_without_commits_is_not_checked(tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet")
    assert why_unchecked(tmp_path) == "there is no commit"


def test_a_history_without_a_beginning_is_not_checked(clone: Path) -> None:
    assert why_unchecked(clone) == "nothing says where it begins: no release, no remote, and no BASE=…"


def test_a_machine_without_git_passes_the_check(tmp_path: Path) -> None:
    done = run_module("tools.check_commits", cwd=ROOT, PATH=str(tmp_path))
    assert (done.returncode, done.stdout, done.stderr) == (0, "no commit was checked: git is not installed\n", "")
