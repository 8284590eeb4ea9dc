"""``sbredis acl``: the rights that users of the server need."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from sbredis.cli._commands import command, group
from sbredis.cli._invocation import Invocation
from sbredis.cli._parameters import entity_names
from sbredis.operating import entity_of

if TYPE_CHECKING:
    from sbredis.engine import AccessTo, Loads

__all__ = ["acl"]

_NAME = re.compile(r"[^\s\x00-\x1f\x7f]{1,200}")
_user = click.option("--user", metavar="NAME", help="The name of the user. [the name of the namespace]")
_loaded = click.option(
    "--scripts-loaded",
    is_flag=True,
    help="Permit only the scripts and functions of this release, which another user must have loaded.",
)
_may_load = click.option(
    "--may-load-library",
    is_flag=True,
    help="Permit also to load and delete libraries of functions. Such a user can change what all users of the server "
    "call, so all of them must trust it.",
)

acl = group(
    "acl",
    "Print the rights that a user of the server needs, as a command for the server.",
    examples=["sbredis acl namespace orders", "sbredis acl entity orders audit/subscriptions/all --user shop"],
)


@command("namespace", into=acl, connects=False, examples=[
    "sbredis acl namespace orders",
    "sbredis acl namespace orders --user shop --output json",
])  # fmt: skip
@click.argument("name")
@_user
@_loaded
@_may_load
def namespace(
    invocation: Invocation, *, name: str, user: str | None, scripts_loaded: bool, may_load_library: bool
) -> None:
    """Print the rights of a user that may do everything in a namespace.

    The command needs no server. Run what it prints on every server as an administrator, with a password in the place of
    PASSWORD, and save it with ACL SAVE or in the file of users.
    """
    from sbredis.engine import namespace_name, namespace_rules

    loads = _loads(scripts_loaded=scripts_loaded, may_load_library=may_load_library)
    try:
        name = namespace_name(name)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="NAME") from None
    _print(invocation, _user_of(user, name), namespace_rules(name, loads))


@command("entity", into=acl, examples=[
    "sbredis acl entity orders --user shop",
    "sbredis acl entity orders audit audit/subscriptions/all --user shop",
])  # fmt: skip
@click.argument("paths", metavar="ENTITY...", nargs=-1, required=True, shell_complete=entity_names)
@_user
@_loaded
@_may_load
async def entity(
    invocation: Invocation, *, paths: Sequence[str], user: str | None, scripts_loaded: bool, may_load_library: bool
) -> None:
    """Print the rights of a user that may use some entities, and neither change them nor use others.

    The user may send to these entities, receive from them and settle messages. Of a topic, the user may send to all
    subscriptions that it has now: print the rights again after you have created one. The user may read which entities
    the namespace has, but no messages of others. An entity that is deleted and created again needs new rights.
    """
    from sbredis.engine import entity_rules

    loads = _loads(scripts_loaded=scripts_loaded, may_load_library=may_load_library)
    async with invocation.looking_for(*map(entity_of, paths)):
        name, found = await _found(invocation, paths)
    _print(invocation, _user_of(user, name), entity_rules(name, found, loads))


async def _found(invocation: Invocation, paths: Sequence[str]) -> tuple[str, list[AccessTo]]:
    """Return the namespace, and the entities at the paths, with each topic its subscriptions."""
    from sbredis.engine import AccessTo

    found: list[AccessTo] = []
    async with invocation.client() as client, invocation.administration() as administration:
        for path in paths:
            info = await client.describe_entity(entity_of(path))
            if info.kind == "subscription":
                assert info.topic_name is not None  # every subscription has a topic
                found.append(AccessTo(info.id, (await client.describe_entity(info.topic_name)).id))
                continue
            found.append(AccessTo(info.id))
            if info.kind == "topic":
                async for each in administration.list_subscriptions(info.path):
                    subscription = await client.describe_entity(f"{info.path}/subscriptions/{each.name}")
                    found.append(AccessTo(subscription.id, info.id))
        return client.namespace, found


def _loads(*, scripts_loaded: bool, may_load_library: bool) -> Loads:
    if scripts_loaded and may_load_library:
        raise click.UsageError("--scripts-loaded and --may-load-library exclude each other")
    return "nothing" if scripts_loaded else "library" if may_load_library else "scripts"


def _user_of(user: str | None, namespace: str) -> str:
    name = namespace if user is None else user
    if not _NAME.fullmatch(name):
        raise click.BadParameter("a user has 1 to 200 characters without blanks", param_hint="--user")
    return name


def _print(invocation: Invocation, user: str, rules: Sequence[str]) -> None:
    if invocation.out.as_json:
        invocation.out.json({"user": user, "rules": list(rules)})
    else:
        invocation.out.line(" ".join(["ACL", "SETUSER", user, "on", ">PASSWORD", *rules]))
