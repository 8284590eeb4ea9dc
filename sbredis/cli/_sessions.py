"""``sbredis session``: the sessions of an entity, and their states."""

from __future__ import annotations

import click

from sbredis.cli._commands import command, group
from sbredis.cli._exit_codes import ExitCode
from sbredis.cli._invocation import Invocation
from sbredis.cli._output import TableColumn
from sbredis.cli._parameters import WholeRange, entity_argument
from sbredis.operating import bytes_field

__all__ = ["sessions"]

_FEW = 100

sessions = group(
    "session",
    "List sessions, and show the state of one.",
    examples=["sbredis session list chats", "sbredis session show chats ann"],
)


@command("list", into=sessions, examples=[
    "sbredis session list chats",
    "sbredis session list news/subscriptions/all --count 1000 --output json",
])  # fmt: skip
@entity_argument()
@click.option("--count", type=WholeRange(1), metavar="N", help=f"List N sessions at most. [{_FEW}]")
async def list_(invocation: Invocation, *, entity: str, count: int | None) -> int:
    """List the sessions that have messages to receive, or a state.

    Nothing is locked. Sessions that a receiver has locked are listed too.
    """
    most = count or _FEW
    async with invocation.client() as client, invocation.looking_for(entity):
        info = await client.describe_entity(entity)
        if info.topic_name is None:
            listed = client.list_queue_sessions(info.path, top=most + 1)
        else:
            listed = client.list_subscription_sessions(info.topic_name, info.name, top=most + 1)
        found = [each async for each in listed]
    invocation.out.table([TableColumn("session")], [{"session": each} for each in found[:most]], empty="no sessions")
    if len(found) > most and count is None:
        invocation.out.remark(f"There are more sessions: --count {10 * _FEW} shows more of them.")
    return ExitCode.DONE if found else ExitCode.DIFFERENT


@command("show", into=sessions, examples=[
    "sbredis session show chats ann",
    "sbredis session show chats ann --output json",
])  # fmt: skip
@entity_argument()
@click.argument("session", metavar="ID")
async def show(invocation: Invocation, *, entity: str, session: str) -> int:
    """Show the state of a session, without a lock on it: a receiver that holds the session may change it at any time.

    Exit code 3: the session has no state.
    """
    async with invocation.client() as client, invocation.looking_for(entity):
        state = await client.peek_session_state(entity, session)
    if state is None:
        invocation.out.record({"session": session, "bytes": None, "state": None})
        return ExitCode.DIFFERENT
    invocation.out.record({"session": session, "bytes": len(state), **bytes_field("state", state)}, whole=True)
    return ExitCode.DONE
