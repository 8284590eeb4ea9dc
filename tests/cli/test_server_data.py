"""The commands that back up, restore and repair the data of a server on a folder."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from sbredis.servers import find_server, stop_kept
from tests.cli.children import Child
from tests.cli.conftest import Bus, Command
from tests.servers.data import content, last_increment, write_data
from tests.servers.processes import processes_in
from tests.waiting import wait_until


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "bus"
    yield path
    stop_kept(path)
    wait_until(lambda: not processes_in(path), what="a process was left behind")


@pytest.fixture
def damaged(folder: Path) -> Path:
    """The file of a server that does not start."""
    last = write_data(folder)
    with last.open("ab") as file:
        file.write(b"garbage")
    return last


def test_a_server_in_use_is_backed_up_and_restored(sbredis: Command, folder: Path, tmp_path: Path) -> None:
    backup, restored = str(tmp_path / "monday"), str(tmp_path / "restored")
    url = sbredis("server", "start", str(folder), "-o", "json").json["url"]
    for namespace, queues in {"shop": ["orders", "bills"], "post": ["letters"]}.items():
        for queue in queues:
            assert sbredis("queue", "create", queue, "--url", url, "--namespace", namespace).code == 0
    assert sbredis("send", "orders", "one", "--url", url, "--namespace", "shop").code == 0
    made = sbredis("server", "backup", str(folder), backup)
    assert (made.code, made.err) == (0, "")
    assert re.fullmatch(rf"copied [\d,]+ bytes of {folder} into {backup}\n", made.out)
    shown = sbredis("server", "restore", backup, restored, "-o", "json").json
    assert (shown["folder"], shown["backup"], shown["cut_bytes"]) == (restored, backup, 0)
    assert (shown["entities"], shown["namespaces"]) == (3, {"post": 1, "shop": 2})
    assert shown["keys"] > 6
    peeked = sbredis("peek", "orders", "--url", f"embedded://{restored}", "--namespace", "shop", "-o", "json")
    assert [row["body"] for row in peeked.rows] == ["one"]
    again = sbredis("server", "restore", backup, str(tmp_path / "second"))
    assert re.search(r"^namespaces +post, shop$", again.out, re.MULTILINE)
    assert re.search(r"^entities +3$", again.out, re.MULTILINE)


def test_a_backup_that_is_none_and_a_folder_with_data_are_refused(
    sbredis: Command, folder: Path, tmp_path: Path
) -> None:
    write_data(folder)
    (tmp_path / "nothing").mkdir()
    before = content(tmp_path)
    target = str(tmp_path / "new")
    refused = {
        ("restore", str(tmp_path / "missing"), target): (2, "does not exist"),
        ("restore", str(tmp_path / "nothing"), target): (1, "is not a backup"),
        ("restore", str(folder), str(folder)): (1, "has data already"),
        ("backup", str(tmp_path / "nothing"), target): (1, "has no append-only file"),
        ("backup", str(folder), str(folder)): (1, "exists already"),
        ("backup", str(tmp_path / "missing"), target): (2, "does not exist"),
        ("repair", str(tmp_path / "missing")): (2, "does not exist"),
        ("repair", str(tmp_path / "nothing"), "--yes"): (1, "has no append-only file"),
    }
    for arguments, (code, text) in refused.items():
        ran = sbredis("server", *arguments)
        assert (ran.code, text in ran.err, ran.out) == (code, True, ""), (arguments, ran)
    assert content(tmp_path) == before


def test_an_interrupted_restore_leaves_nothing(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_data(folder)
    program = tmp_path / "hanging-server"
    program.write_text(
        f"#!/bin/sh\n[ \"$1\" = --version ] && exec '{find_server(None).path}' --version\n"
        f"touch '{tmp_path}/begun'\nexec sleep 3600\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("SBREDIS_SERVER", str(program))
    with Child("server", "restore", str(folder), str(tmp_path / "new")) as child:
        wait_until((tmp_path / "begun").exists)
        child.signal(signal.SIGINT)
        assert child.end()[0] == 130
    assert not (tmp_path / "new").exists()


# -- repair ------------------------------------------------------------------------------------------------------------


def test_data_without_damage_need_no_repair(sbredis: Command, folder: Path) -> None:
    write_data(folder)
    before = content(folder)
    for options in ([], ["--yes"], ["--dry-run"]):
        assert sbredis("server", "repair", str(folder), *options) == (0, f"nothing to repair in {folder}\n", "")
    assert sbredis("server", "repair", str(folder), "-o", "json").json == {
        "folder": str(folder),
        "damage": None,
        "copy": None,
    }
    assert content(folder) == before


@pytest.mark.parametrize("options", [[], ["--dry-run"], ["--dry-run", "--yes"]])
def test_without_a_yes_damage_is_only_shown(sbredis: Command, folder: Path, damaged: Path, options: list[str]) -> None:
    before = content(folder)
    ran = sbredis("server", "repair", str(folder), *options)
    size = damaged.stat().st_size
    assert ran.code == 3
    assert re.sub(r" +", " ", ran.out) == (
        f"file {damaged}\nsize {size:,}\ndamage this is no command: b'garbage'\ndamaged at {size - 7:,}\n"
        f"cut at {size - 7:,}\ncut bytes 7\ncommands kept 11\nunfinished commands cut 0\nreadable commands lost 0\n"
        "first commands cut -\nlast time kept -\n"
    )
    assert ran.err == f"nothing was changed; to cut: sbredis server repair {folder} --yes\n"
    shown = sbredis("server", "repair", str(folder), *options, "-o", "json")
    assert (shown.code, shown.json["copy"], shown.json["damage"]["cut_bytes"]) == (3, None, 7)
    assert content(folder) == before


def test_a_yes_cuts_and_the_server_starts(sbredis: Command, folder: Path, damaged: Path) -> None:
    whole = damaged.read_bytes()
    refused = sbredis("server", "start", str(folder))
    assert (refused.code, f"sbredis server repair {folder}" in refused.err) == (1, True)
    ran = sbredis("server", "repair", str(folder), "--yes", "-o", "json")
    assert ran.code == 0
    assert Path(ran.json["copy"]).read_bytes() == whole
    assert damaged.read_bytes() == whole.removesuffix(b"garbage")
    assert f"kept as {ran.json['copy']}" in ran.err
    assert sbredis("server", "start", str(folder)).code == 0
    running = sbredis("server", "repair", str(folder), "--yes")
    assert (running.code, "is using" in running.err) == (1, True)


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("n\n", 1), ("\n", 1)])
def test_on_a_terminal_the_command_asks(bus: Bus, folder: Path, damaged: Path, answer: str, code: int) -> None:
    before = content(folder)
    ran = bus.typed(answer, "server", "repair", str(folder))
    assert (ran.code, f"Cut 7 bytes off {damaged}?" in ran.err) == (code, True)
    assert (content(folder) == before) == (code == 1)
    if code:
        assert "nothing was changed" in ran.err


def test_whole_commands_are_cut_only_with_an_option_of_its_own(sbredis: Command, folder: Path) -> None:
    last = write_data(folder)
    whole = last.read_bytes()
    place = whole.index(b"*3\r\n$3\r\nSET\r\n$2\r\nk5")
    last.write_bytes(whole[:place] + b"+" + whole[place + 1 :])
    before = content(folder)
    for options, code in {(): 3, ("--dry-run",): 3, ("--yes",): 1}.items():
        ran = sbredis("server", "repair", str(folder), *options)
        assert (ran.code, "4 whole commands behind the damage would be lost" in ran.err) == (code, True)
        assert re.search(r"^first commands cut +SET k6, SET k7, SET k8, SET k9$", ran.out, re.MULTILINE)
    assert content(folder) == before
    ran = sbredis("server", "repair", str(folder), "--yes", "--lose-readable")
    assert (ran.code, last_increment(folder).read_bytes()) == (0, whole[:place])
