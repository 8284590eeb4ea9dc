"""The folder of an embedded server gives other users nothing, and leads the server to no other file."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from sbredis.exceptions import ServerUnsuitableError
from sbredis.servers import acquire
from sbredis.servers._folder import open_folder
from tests.servers.processes import LINUX
from tools.repository import ROOT

pytestmark = pytest.mark.skipif(not LINUX, reason="embedded servers are tested on Linux")

STRANGER = 54_321
"""A user that no system has."""


def modes(folder: Path) -> dict[str, int]:
    found = {str(each.relative_to(folder)): stat.S_IMODE(each.lstat().st_mode) for each in folder.rglob("*")}
    return {".": stat.S_IMODE(folder.stat().st_mode), **found}


@pytest.mark.parametrize(
    "name", ["server.log", "server.conf", "owner.lock", "clients.lock", "appendonlydir", ".keeper.log"]
)
def test_a_folder_with_a_link_is_refused_and_the_file_is_not_touched(tmp_path: Path, name: str) -> None:
    """Somebody who could write to the folder before may have put a link there."""
    folder, precious = tmp_path / "bus", tmp_path / "precious"
    precious.write_text("kept", "utf-8")
    folder.mkdir(mode=0o777)
    (folder / name).symlink_to(precious)
    if name != "owner.lock":
        (folder / "owner.lock").touch()
    with pytest.raises(ServerUnsuitableError, match=f"contains the link '{name}'"):
        acquire(folder)
    assert precious.read_text("utf-8") == "kept"
    assert {each.name for each in folder.iterdir()} == {name, "owner.lock"}


def test_the_folder_itself_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "bus").symlink_to("data")
    with acquire(tmp_path / "bus") as lease:
        assert lease.socket_path.startswith(str(tmp_path / "data"))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")
def test_the_folder_of_another_user_is_refused_and_keeps_its_mode(tmp_path: Path) -> None:
    folder = tmp_path / "bus"
    folder.mkdir(mode=0o755)
    os.chown(folder, STRANGER, -1)
    with pytest.raises(ServerUnsuitableError, match=f"belongs to the user with the number {STRANGER}"):
        acquire(folder)
    assert modes(folder) == {".": 0o755}


def test_a_home_folder_is_refused_and_keeps_its_mode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o755)
    (home / ".profile").touch(mode=0o644)
    monkeypatch.setenv("HOME", str(home))
    for path in (home, home / ".." / "home", Path("/")):
        with pytest.raises(ServerUnsuitableError, match=r"is a home folder.*such as"):
            open_folder(path)
    assert modes(home) == {".": 0o755, ".profile": 0o644}


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o377])
def test_only_this_user_can_read_the_files_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    folder = tmp_path / "bus"
    program = (
        f"import os; os.umask({umask}); from sbredis.servers import acquire; import pathlib\n"
        f"with acquire({str(folder)!r}): print(sorted(os.listdir({str(folder)!r})))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert "server.sock" in done.stdout, done.stderr
    found = modes(folder)
    assert found.pop(".") == 0o700
    assert {name: mode for name, mode in found.items() if mode & 0o077} == {}
    files = [name for name in found if (folder / name).is_file()]
    assert {"server.conf", "server.log", "owner.lock"} <= set(files)
    assert {name: found[name] for name in files if found[name] != 0o600} == {}
