"""``sbredis queue``, ``topic``, ``subscription`` and ``rule``: the same commands for the four kinds of entity.

The commands and their options follow from the table of kinds and from the properties of each kind.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from click.shell_completion import CompletionItem

from sbredis._arguments import ParamType, examples_text
from sbredis.cli._commands import LazyGroup, command, wrong_arguments
from sbredis.cli._invocation import Invocation
from sbredis.cli._output import Output, TableColumn
from sbredis.cli._parameters import RULE_VALUE, names_of
from sbredis.exceptions import DataLayoutError, ServiceBusError
from sbredis.model import (
    Choice,
    CorrelationRuleFilter,
    Described,
    Duration,
    FalseRuleFilter,
    Field,
    Flag,
    RuleProperties,
    SqlRuleAction,
    SqlRuleFilter,
    TrueRuleFilter,
    Whole,
    WholeOrNone,
)
from sbredis.operating import (
    KINDS,
    RULE,
    STATES,
    SUBSCRIPTION,
    TOPIC,
    EntityKind,
    MessageCount,
    Names,
    filter_text,
    first_sentence,
    inspect_entity,
    messages_in,
    path_of,
    read_text,
    sql_text,
    written,
)

if TYPE_CHECKING:
    from sbredis.aio.management import ServiceBusAdministrationClient

__all__ = ["queues", "rules", "subscriptions", "topics"]

_COMPARED = [name for name in CorrelationRuleFilter.__slots__ if name != "properties"]


class _Given(NamedTuple):
    """A value that an option has; ``None`` is the property's default, and not an option that was left out."""

    value: Any


class _FieldType(ParamType):
    """The values of a property."""

    def __init__(self, field: Field[Any, Any]) -> None:
        self.field = field
        number = isinstance(field, Whole | WholeOrNone)
        self.name = "duration" if isinstance(field, Duration) else "number" if number else "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> _Given:
        """Read the value, or refuse it."""
        if isinstance(value, _Given):
            return value
        try:
            return _Given(read_text(self.field, value))
        except (ValueError, TypeError) as error:
            self.fail(str(error), param, ctx)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Offer the names of a choice."""
        del ctx, param
        found = [str(each.value) for each in self.field.settable] if isinstance(self.field, Choice) else []
        return [CompletionItem(name) for name in found if name.lower().startswith(incomplete.lower())]


def _options(kind: EntityKind, *, new: bool) -> Sequence[click.Parameter]:
    """Return an option for each property that can be set."""
    if kind is RULE:
        return _RULE_OPTIONS
    return [_option(kind, name, field) for name, field in kind.settable(new=new).items()]


def _option(kind: EntityKind, name: str, field: Field[Any, Any]) -> click.Option:
    text, option = first_sentence(kind.documentation(name)), name.replace("_", "-")
    if isinstance(field, Flag):
        return click.Option([f"--{option}/--no-{option}"], default=None, help=f"{text}.")
    metavar = "|".join(str(each.value) for each in field.settable) if isinstance(field, Choice) else None
    return click.Option([f"--{option}"], type=_FieldType(field), metavar=metavar, help=f"{text}.")


def _names(kind: EntityKind, words: Sequence[str]) -> list[click.Argument]:
    return [click.Argument([word], metavar=word.upper(), shell_complete=names_of(kind)) for word in words]


def _pop_names(words: Sequence[str], given: dict[str, Any]) -> Names:
    return tuple(given.pop(word) for word in words)


def _properties(kind: EntityKind, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the properties that the options set."""
    if kind is RULE:
        return _rule_properties(given)
    set_ = {name: value for name, value in given.items() if value is not None}
    return {name: value.value if isinstance(value, _Given) else value for name, value in set_.items()}


def _pairs(name: str, text: str) -> click.Option:
    metavar = "NAME=TEXT|NAME:=JSON"
    return click.Option([name], type=RULE_VALUE, metavar=metavar, multiple=True, help=f"{text} Repeatable.")


_RULE_OPTIONS: Sequence[click.Parameter] = (
    click.Option(["--filter"], metavar="SQL", help='The messages to match, such as "priority >= 8".'),
    _pairs("--parameter", "The value of a @parameter of the filter, such as least:=8."),
    _pairs("--match", f"Match messages by a property: {', '.join(_COMPARED)}."),
    _pairs("--match-property", "Match messages by an application property, such as size:=3."),
    click.Option(["--match-all"], is_flag=True, help="Match all messages."),
    click.Option(["--match-none"], is_flag=True, help="Match no message."),
    click.Option(["--action"], metavar="SQL", help="What to change in the copy; an empty text removes the action."),
    _pairs("--action-parameter", "The value of a @parameter of the action."),
)


def _rule_properties(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the filter and the action that the options set. Raises :class:`click.UsageError` if they contradict."""
    sql, action, compared = given["filter"], given["action"], dict(given["match"])
    by_property = dict(given["match_property"])
    if sum((sql is not None, bool(compared or by_property), given["match_all"], given["match_none"])) > 1:
        raise click.UsageError("Give one of --filter, --match with --match-property, --match-all and --match-none.")
    if given["parameter"] and sql is None:
        raise click.UsageError("--parameter needs --filter.")
    if given["action_parameter"] and not action:
        raise click.UsageError("--action-parameter needs --action.")
    if unknown := [name for name in compared if name not in _COMPARED]:
        raise click.UsageError(f"--match compares {', '.join(_COMPARED)}, and not {unknown[0]!r}.")
    found: dict[str, Any] = {}
    if sql is not None:
        found["filter"] = SqlRuleFilter(sql, _parameters(given["parameter"]))
    elif compared or by_property:
        found["filter"] = CorrelationRuleFilter(**compared, properties=by_property or None)
    elif given["match_all"] or given["match_none"]:
        found["filter"] = TrueRuleFilter() if given["match_all"] else FalseRuleFilter()
    if action is not None:
        found["action"] = SqlRuleAction(action, _parameters(given["action_parameter"])) if action else None
    return found


def _parameters(given: Sequence[tuple[str, Any]]) -> dict[str, Any] | None:
    return {f"@{name.removeprefix('@')}": value for name, value in given} or None


def entity_commands(kind: EntityKind) -> LazyGroup:
    """Make the commands for a kind of entity."""
    example = " ".join(kind.example)
    makers = {"create": _create, "list": _list, "show": _show, "update": _update, "delete": _delete}
    texts = _texts(kind)
    return LazyGroup(
        kind.word,
        parts={
            verb: (partial(make, kind, texts[verb], example), f"{first_sentence(texts[verb])}.")
            for verb, make in makers.items()
        },
        help=f"Create, list, show, change and delete {kind.plural}.",
        epilog=examples_text([f"sbredis {kind.word} create {example}", f"sbredis {kind.word} show {example}"]),
    )


def _texts(kind: EntityKind) -> Mapping[str, str]:
    """Return the help of each command for a kind of entity."""
    word = kind.word
    if kind is RULE:
        more = {
            "create": "Create a rule. Without a filter it matches all messages.",
            "list": "List the rules of a subscription.",
            "show": "Show a rule: its filter and its action.",
            "delete": "Delete a rule. Messages that are sent later do not match it any more.",
        }
    else:
        more = {
            "create": f"Create a {word}. Durations are written as 30s, 5m, 1h30m, P1DT2H, or none for no limit.",
            "list": f"List the {kind.plural}, with their numbers of messages.",
            "show": f"Show a {word}: its properties, its messages by state and by partition, and who uses it.",
            "delete": f"Delete a {word} with all its messages.",
        }
    update = f"Change properties of a {word}. What is not given stays as it is; an empty text removes a text."
    return {**more, "update": update}


_RELATED = ("forward_to", "forward_dead_lettered_messages_to", "colocate_with")
"""The properties that name other entities."""
_EXAMPLES = {
    "queue": ("--lock-duration 30s --max-delivery-count 5", "--default-message-time-to-live 1h30m"),
    "topic": ("--default-message-time-to-live 1d", "--status Disabled"),
    "subscription": ("--lock-duration 30s", "--status ReceiveDisabled"),
    "rule": ("--filter \"priority >= 8 AND colour = 'red'\"", '--action "SET urgent = true"'),
}


def _create(kind: EntityKind, text: str, example: str) -> click.Command:
    async def create(invocation: Invocation, **given: Any) -> None:
        entity = _pop_names(kind.arguments, given)
        with wrong_arguments():
            properties = _properties(kind, given)
            kind.check(entity[-1])
            paths = path_of(entity[:-1]), *_named_in(properties)
            async with invocation.administration() as administration, invocation.looking_for(*paths):
                await kind.call(administration, "create")(*entity, **properties)
        path = path_of(entity)
        invocation.out.done(f"{kind.word} {path} is created", created=True, kind=kind.word, name=path)

    return command(
        "create",
        text=text,
        params=[*_names(kind, kind.arguments), *_options(kind, new=True)],
        examples=[
            f"sbredis {kind.word} create {example}",
            f"sbredis {kind.word} create {example} {_EXAMPLES[kind.word][0]}",
        ],
    )(create)


def _named_in(properties: Mapping[str, Any]) -> list[str]:
    """Return the names of other entities among properties."""
    return [str(properties[name]) for name in _RELATED if properties.get(name)]


def _list(kind: EntityKind, text: str, example: str) -> click.Command:
    async def list_(invocation: Invocation, **given: Any) -> None:
        parents = _pop_names(kind.parents, given)
        with wrong_arguments():
            async with invocation.administration() as administration, invocation.looking_for(path_of(parents)):
                rows, incomplete = await _rows(administration, kind, parents)
        if incomplete is None or rows:
            invocation.out.table(_columns(kind), rows, empty=f"no {kind.plural}")
        if incomplete is not None:
            raise incomplete

    return command(
        "list",
        text=text,
        params=_names(kind, kind.parents),
        examples=[f"sbredis {kind.word} list {example.rpartition(' ')[0]}".rstrip()],
    )(list_)


def _columns(kind: EntityKind) -> list[TableColumn]:
    """Return the columns of a list. The counts matter in the order in which they are shown."""
    if kind is RULE:
        return [TableColumn("name"), TableColumn("filter", 1, shortest=20), TableColumn("action", 2, shortest=20)]
    counts = [TableColumn(name, rank) for rank, name in enumerate(kind.counts, 1)]
    return [TableColumn("name"), TableColumn("status", 3), *counts]


async def _rows(
    administration: ServiceBusAdministrationClient, kind: EntityKind, parents: Names
) -> tuple[list[dict[str, Any]], ServiceBusError | None]:
    """Return the rows of a list, and the error that the list lacks entities, if it does."""
    from sbredis.registry import read_to_end

    listed, incomplete = await read_to_end(kind.call(administration, "list")(*parents))
    if kind is RULE:
        return [{"name": each.name, **_rule_row(each)} for each in listed], incomplete
    if not listed:
        return [], incomplete
    counted, _ = await read_to_end(kind.call(administration, "list", of="_runtime_properties")(*parents))
    counts = {each.name: each for each in counted}
    rows = [
        {
            "name": each.name,
            "status": written(each["status"]),
            **{column: getattr(counts.get(each.name), field, None) for column, field in kind.counts.items()},
        }
        for each in listed
    ]
    return rows, incomplete


def _rule_row(rule: Described) -> dict[str, Any]:
    assert isinstance(rule, RuleProperties)
    return {"filter": filter_text(rule.filter), "action": None if rule.action is None else sql_text(rule.action)}


def _show(kind: EntityKind, text: str, example: str) -> click.Command:
    async def show(invocation: Invocation, **given: Any) -> None:

        entity = _pop_names(kind.arguments, given)
        with wrong_arguments():
            async with invocation.administration() as administration, invocation.looking_for(path_of(entity)):
                found = await inspect_entity(administration, kind, entity)
        _print(invocation.out, found)

    return command(
        "show",
        text=text,
        params=_names(kind, kind.arguments),
        examples=[f"sbredis {kind.word} show {example}"],
    )(show)


_PARTITION_COLUMNS = (
    TableColumn("partition"),
    TableColumn("server", 12),
    TableColumn("active", 1),
    TableColumn("locked", 3),
    TableColumn("delayed", 6),
    TableColumn("deferred", 5),
    TableColumn("scheduled", 4),
    TableColumn("transfer", 7),
    TableColumn("dead_letter", 2),
    TableColumn("transfer_dead_letter", 8),
    TableColumn("bytes", 11),
    TableColumn("oldest", 9),
    TableColumn("waiting_receivers", 10),
)


def _print(out: Output, found: Mapping[str, Any]) -> None:
    """Print what :func:`inspect_entity` has found."""
    if out.as_json:
        out.json(found)
        return
    out.line(f"{found['kind']} {found['name']}")
    groups: dict[str, dict[str, Any]] = {name: value for name, value in found.items() if isinstance(value, dict)}
    facts = {name: value for name, value in found.items() if not isinstance(value, dict | list)}
    groups["use"] = {name: value for name, value in facts.items() if name not in {"kind", "name"}}
    for title, values in groups.items():
        if values:
            out.line(f"\n{title}")
            out.record({f"  {name}": value for name, value in values.items()})
    if partitions := found.get("partitions"):
        used = [state for state in STATES if state == "active" or found["messages"][state]]
        out.line("")
        out.table([each for each in _PARTITION_COLUMNS if each.name not in STATES or each.name in used], partitions)
    if lost := found.get("partitions_without_an_answer"):
        out.remark(f"these partitions do not answer, and are not counted: {', '.join(map(str, lost))}")


def _update(kind: EntityKind, text: str, example: str) -> click.Command:
    async def update(invocation: Invocation, **given: Any) -> None:
        entity = _pop_names(kind.arguments, given)
        with wrong_arguments():
            properties = _properties(kind, given)
            if not properties:
                raise click.UsageError("Nothing to change: give at least one property.")
            kind.check(entity[-1])
            paths = path_of(entity), *_named_in(properties)
            async with invocation.administration() as administration, invocation.looking_for(*paths):
                await kind.call(administration, "update")(*entity[:-1], {"name": entity[-1]}, **properties)
        path = path_of(entity)
        changed = {name: written(value) for name, value in properties.items()}
        invocation.out.done(
            f"{kind.word} {path} is updated", updated=True, kind=kind.word, name=path, properties=changed
        )

    return command(
        "update",
        text=text,
        params=[*_names(kind, kind.arguments), *_options(kind, new=False)],
        examples=[f"sbredis {kind.word} update {example} {_EXAMPLES[kind.word][1]}"],
    )(update)


def _delete(kind: EntityKind, text: str, example: str) -> click.Command:
    async def delete(invocation: Invocation, *, yes: bool, dry_run: bool, **given: Any) -> None:
        entity = _pop_names(kind.arguments, given)
        path = path_of(entity)
        with wrong_arguments():
            async with invocation.administration() as administration, invocation.looking_for(path):
                stored = await _deletable(administration, kind, entity)
                what = f"{kind.word} {path}" + ("" if kind is RULE else f" with {stored}")
                facts: dict[str, Any] = {"kind": kind.word, "name": path, "messages": stored.number}
                if dry_run:
                    invocation.out.done(f"would delete the {what}", deleted=False, **facts)
                    return
                invocation.confirm(f"Delete the {what}?", typed=path, yes=yes)
                await kind.call(administration, "delete")(*entity)
        invocation.out.done(f"{what} is deleted", deleted=True, **facts)

    return command(
        "delete",
        text=text,
        params=[
            *_names(kind, kind.arguments),
            click.Option(["--yes", "-y"], is_flag=True, help="Do not ask."),
            click.Option(["--dry-run"], is_flag=True, help="Say what would be deleted, and delete nothing."),
        ],
        examples=[f"sbredis {kind.word} delete {example}", f"sbredis {kind.word} delete {example} --yes"],
    )(delete)


async def _deletable(administration: ServiceBusAdministrationClient, kind: EntityKind, entity: Names) -> MessageCount:
    """Count the messages in an entity that is to be deleted, and refuse if it is protected.

    If its record is damaged, neither is known, and it can be deleted all the same. If another release has written the
    record, the entity cannot be deleted by this one.
    """
    try:
        await _require_unprotected(administration, kind, entity)
        return await messages_in(administration, kind, entity)
    except DataLayoutError as error:
        if error.layout is not None:
            raise
        return MessageCount(0, silent=None)


async def _require_unprotected(administration: ServiceBusAdministrationClient, kind: EntityKind, entity: Names) -> None:
    """Refuse to delete an entity that is protected, or a topic of which a subscription is."""
    found: Described = await kind.call(administration, "get")(*entity)
    path = path_of(entity)
    if found.get("protected"):
        raise click.ClickException(
            f"The {kind.word} {path} is protected. To delete it, first run: {_unprotecting(kind, entity)}"
        )
    if kind is not TOPIC:
        return
    guarded = [each.name async for each in administration.list_subscriptions(*entity) if each.protected]
    if guarded:
        what = f"{'subscription' if len(guarded) == 1 else 'subscriptions'} {', '.join(guarded)}"
        commands = "; ".join(_unprotecting(SUBSCRIPTION, (*entity, name)) for name in guarded)
        raise click.ClickException(
            f"The topic {path} has the protected {what}. To delete the topic, first run: {commands}"
        )


def _unprotecting(kind: EntityKind, entity: Names) -> str:
    return f"sbredis {kind.word} update {' '.join(entity)} --no-protected"


queues, topics, subscriptions, rules = map(entity_commands, KINDS)
