"""The work of ``sbredis server backup``, ``restore`` and ``repair``."""

from __future__ import annotations

import shlex
import sys
from typing import Any, cast

from sbredis._counting import counted
from sbredis.cli._exit_codes import ExitCode
from sbredis.cli._invocation import Invocation
from sbredis.engine import ENTITIES_PATTERN, namespace_of
from sbredis.servers import Damage, LocalServer, back_up, repairing, restoring

__all__ = ["back_up_folder", "repair_folder", "restore_folder"]

_AT_ONCE = 1000


def back_up_folder(invocation: Invocation, folder: str, backup: str) -> None:
    """Copy the data of a server."""
    made = back_up(folder, backup)
    text = f"copied {counted(made.size, 'byte')} of {folder} into {backup}"
    invocation.out.done(text, folder=folder, backup=str(made.path), bytes=made.size)


def restore_folder(invocation: Invocation, backup: str, folder: str) -> None:
    """Restore a backup, and show what it has."""
    with restoring(backup, folder) as restored:
        keys, namespaces = _contents(restored.server)
    facts = {
        "folder": str(restored.folder),
        "backup": backup,
        "changed": restored.changed,
        "bytes": restored.size,
        "cut_bytes": restored.cut_bytes,
        "keys": keys,
        "entities": sum(namespaces.values()),
        "namespaces": namespaces if invocation.out.as_json else sorted(namespaces),
    }
    invocation.out.record(facts)


def _contents(server: LocalServer) -> tuple[int, dict[str, int]]:
    """Return the number of keys, and the number of entities of each namespace."""
    keys, namespaces, cursor = 0, dict[str, int](), "0"
    for line in str(server.ask("INFO", "keyspace")).splitlines():
        if line.startswith("db"):
            keys += int(line.partition("keys=")[2].partition(",")[0])
    while True:
        answer = server.ask("SCAN", cursor, "MATCH", ENTITIES_PATTERN, "COUNT", _AT_ONCE, timeout=60)
        cursor, found = cast("tuple[str, list[str]]", answer)
        for key in found:
            if (namespace := namespace_of(key)) is not None:
                namespaces[namespace] = int(str(server.ask("HLEN", key)))
        if cursor == "0":
            return keys, namespaces


def repair_folder(invocation: Invocation, folder: str, *, lose_readable: bool, dry_run: bool, yes: bool) -> int:
    """Show the damage of a folder, and cut it off after a yes. Return the exit code."""
    with repairing(folder) as damage:
        if damage is None:
            invocation.out.done(f"nothing to repair in {folder}", folder=folder, damage=None, copy=None)
            return ExitCode.DONE
        loses = damage.readable > 0 and not lose_readable
        if not invocation.out.as_json:
            invocation.out.record(_facts(damage))
        copy = None
        if not dry_run and not loses and (yes or sys.stdin.isatty()):
            if not yes:
                invocation.ask(f"Cut {counted(damage.cut_bytes, 'byte')} off {damage.file}?")
            copy = str(damage.cut())
        if invocation.out.as_json:
            invocation.out.json({"folder": folder, "damage": _facts(damage), "copy": copy})
    if copy is not None:
        invocation.out.remark(
            f"cut; the whole file is kept as {copy}\nto start the server: sbredis server start {shlex.quote(folder)}"
        )
        return ExitCode.DONE
    if loses:
        invocation.out.remark(
            f"nothing was changed: {counted(damage.readable, 'whole command')} behind the damage would be lost. Restore"
            " a backup if there is one. To cut here nevertheless, add --lose-readable."
        )
        return ExitCode.FAILED if yes and not dry_run else ExitCode.DIFFERENT
    invocation.out.remark(f"nothing was changed; to cut: sbredis server repair {shlex.quote(folder)} --yes")
    return ExitCode.DIFFERENT


def _facts(damage: Damage) -> dict[str, Any]:
    return {
        "file": str(damage.file),
        "size": damage.size,
        "damage": _described(damage),
        "damaged_at": damage.damaged_at,
        "cut_at": damage.cut_at,
        "cut_bytes": damage.cut_bytes,
        "commands_kept": damage.commands,
        "unfinished_commands_cut": damage.unfinished,
        "readable_commands_lost": damage.readable,
        "first_commands_cut": list(damage.first_commands),
        "last_time_kept": damage.time,
    }


def _described(damage: Damage) -> str:
    if damage.ending == "torn":
        return "the last command is cut off"
    if damage.ending == "transaction":
        return "the last transaction has no end"
    if damage.zeros:
        return f"{counted(damage.size - damage.damaged_at, 'zero byte')}, as a loss of power can leave them"
    return f"this is no command: {damage.sample!r}"
