"""``sbredis server``: a server on a folder of this machine."""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING, Any, cast

import click

from sbredis._counting import counted
from sbredis.cli._commands import command, group
from sbredis.cli._exit_codes import ExitCode
from sbredis.cli._invocation import Invocation
from sbredis.cli._parameters import WholeRange, confirmed

if TYPE_CHECKING:
    from sbredis.servers import Damage, LocalServer

__all__ = ["servers"]

_AT_ONCE = 1000

servers = group(
    "server",
    "Run a server on a folder of this machine; back up, restore and repair its data.",
    examples=["sbredis server start bus", "sbredis server status bus"],
)

_FOLDER = click.Argument(["folder"], type=click.Path(file_okay=False))
_SHAPE = (
    click.Option(
        ["--port"],
        type=WholeRange(1, 65_535),
        help="Listen on this port of 127.0.0.1 too, for all users of this machine. Without it, only you can connect.",
    ),
    click.Option(["--cluster"], type=WholeRange(1, 16), metavar="M", help="A cluster of M masters, without data."),
    click.Option(["--replicas"], type=WholeRange(0, 4), metavar="R", help="With --cluster: R replicas each."),
)


def _shape(port: int | None, cluster: int | None, replicas: int | None) -> dict[str, Any]:
    if cluster is None and replicas is not None:
        raise click.UsageError("--replicas needs --cluster.")
    if cluster is not None and port is not None:
        raise click.UsageError("--port is for one server. A cluster chooses its ports.")
    return {"port": port, "masters": cluster or 0, "replicas": replicas or 0}


@command("run", into=servers, connects=False, params=[_FOLDER, *_SHAPE], examples=[
    "sbredis server run bus",
    "sbredis server run bus --port 6380",
    "sbredis server run cluster --cluster 3 --replicas 1",
])  # fmt: skip
def run(invocation: Invocation, folder: str, **shape: Any) -> int:
    """Run a server on FOLDER until Ctrl-C, and print the connection string.

    Its data stay in the folder, except those of a cluster.
    """
    from sbredis.servers import KeptServer, ServerOrder, keep

    def ready(kept: KeptServer) -> None:
        invocation.out.done(kept.url, url=kept.url, folder=kept.folder, pid=kept.pid)

    keep(ServerOrder(folder, **_shape(**shape)), ready)
    invocation.out.remark("stopped; nothing is left running")
    return ExitCode.DONE


@command("start", into=servers, connects=False, params=[_FOLDER, *_SHAPE], examples=[
    "sbredis server start bus",
    "sbredis server start bus --port 6380",
])  # fmt: skip
def start(invocation: Invocation, folder: str, **shape: Any) -> None:
    """Start a server on FOLDER that runs until 'stop', and print the connection string."""
    from sbredis.servers import start_kept

    kept = start_kept(folder, **_shape(**shape))
    invocation.out.done(kept.url, url=kept.url, folder=kept.folder, pid=kept.pid)


@command("stop", into=servers, connects=False, params=[_FOLDER], examples=["sbredis server stop bus"])
def stop(invocation: Invocation, folder: str) -> int:
    """Stop the server that 'start' or 'run' keeps on FOLDER. Clients that still use it keep it until they leave."""
    from sbredis.servers import stop_kept

    kept = stop_kept(folder)
    if kept is None:
        invocation.out.done(f"no server is kept on {folder}", stopped=False, folder=folder)
        return ExitCode.DIFFERENT
    invocation.out.done(f"stopped {kept.url}", stopped=True, folder=kept.folder, url=kept.url, pid=kept.pid)
    return ExitCode.DONE


@command("status", into=servers, connects=False, params=[_FOLDER], examples=["sbredis server status bus"])
def status(invocation: Invocation, folder: str) -> int:
    """Show whether a server is kept on FOLDER. Exit code 3: none is."""
    from sbredis.servers import find_kept

    kept = find_kept(folder)
    if kept is None:
        invocation.out.done(f"no server is kept on {folder}", running=False, folder=folder)
        return ExitCode.DIFFERENT
    told = kept.information()
    version = told.get("valkey_version") or told.get("redis_version")
    invocation.out.record(
        {
            "running": True,
            "url": kept.url,
            "folder": kept.folder,
            "pid": kept.pid if invocation.out.as_json else str(kept.pid),
            "servers": kept.nodes,
            "version": version,
            "used_memory": told.get("used_memory_human"),
            "clients": int(told["connected_clients"]) if "connected_clients" in told else None,
        }
    )
    return ExitCode.DONE


_BACKUP = click.Path(exists=True, readable=True)


@command("backup", into=servers, connects=False, examples=[
    "sbredis server backup bus bus-monday",
])  # fmt: skip
@click.argument("folder", type=click.Path(exists=True, file_okay=False))
@click.argument("backup", type=click.Path())
def backup(invocation: Invocation, folder: str, backup: str) -> None:
    """Copy the data of FOLDER into the new folder BACKUP. The server may run and be used meanwhile.

    The backup has everything that the server acknowledged before the command began. FOLDER may also be the folder of
    another server on this machine, with its 'appendonlydir'.
    """
    from sbredis.servers import back_up

    made = back_up(folder, backup)
    text = f"copied {counted(made.size, 'byte')} of {folder} into {backup}"
    invocation.out.done(text, folder=folder, backup=str(made.path), bytes=made.size)


@command("restore", into=servers, connects=False, examples=[
    "sbredis server restore bus-monday bus",
    "sbredis server restore dump.rdb bus",
])  # fmt: skip
@click.argument("backup", type=_BACKUP)
@click.argument("folder", type=click.Path(file_okay=False))
def restore(invocation: Invocation, backup: str, folder: str) -> None:
    """Restore BACKUP into the new folder FOLDER, for 'sbredis server start FOLDER' and embedded://FOLDER.

    BACKUP is what 'backup' makes, a copy of an 'appendonlydir', or a snapshot (an RDB file). A server loads it once, to
    check it. FOLDER must have no data. If anything fails, nothing is changed.
    """
    from sbredis.servers import restoring

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


@command("repair", into=servers, connects=False, examples=[
    "sbredis server repair bus",
    "sbredis server repair bus --yes",
])  # fmt: skip
@click.argument("folder", type=click.Path(exists=True, file_okay=False))
@click.option("--lose-readable", is_flag=True, help="Cut even if whole commands are behind the damage. They are lost.")
@confirmed
def repair(invocation: Invocation, folder: str, *, lose_readable: bool, dry_run: bool, yes: bool) -> int:
    """Show what is damaged at the end of the append-only file of FOLDER, and cut it off after a yes.

    Use it if the server does not start after a loss of power. Only the file to which the server wrote is cut, after its
    last whole command, and a copy of it is kept. Without --yes and without a terminal, nothing is changed. Exit code 3:
    there is damage, and nothing was changed.
    """
    from sbredis.servers import repairing

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


def _contents(server: LocalServer) -> tuple[int, dict[str, int]]:
    """Return the number of keys, and the number of entities of each namespace."""
    from sbredis.engine import ENTITIES_PATTERN, namespace_of

    keys, namespaces, cursor = 0, dict[str, int](), "0"
    for line in str(server.ask("INFO", "keyspace")).splitlines():
        if line.startswith("db"):
            keys += int(line.partition("keys=")[2].partition(",")[0])
    while True:
        answer = server.ask("SCAN", cursor, "MATCH", ENTITIES_PATTERN, "COUNT", _AT_ONCE, timeout=60)
        cursor, found = cast("tuple[str, list[str]]", answer)
        for key in found:
            if (namespace := namespace_of(key)) is not None:
                namespaces[namespace] = namespaces.get(namespace, 0) + int(str(server.ask("HLEN", key)))
        if cursor == "0":
            return keys, namespaces


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
