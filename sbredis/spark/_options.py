"""The options of the Spark format: their names, their values, and the operations in which each is legal. Pure.

One table, :data:`OPTIONS`, declares them. The documentation repeats the table, and a test compares the two.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, NamedTuple, TypeVar, cast

from sbredis._quoting import quoted
from sbredis.engine import entity_name, name_key, subscription_name
from sbredis.exceptions import SparkSetupError
from sbredis.registry import STALE_AFTER, path_of
from sbredis.spark import _values as values

__all__ = [
    "OPTIONS",
    "EntityChoice",
    "IncludedColumns",
    "Option",
    "QueryKind",
    "QueryOptions",
    "included",
    "nearest",
    "parse_options",
    "parse_secret",
    "reads_settlements",
    "refuse_table",
]

T = TypeVar("T")


class QueryKind(Enum):
    """What a query does with an entity. Each option is legal in some kinds of query."""

    BROWSE = "spark.read"
    """A DataFrame of the messages in an entity; they stay there."""
    BROWSE_STREAM = "spark.readStream with mode=browse"
    """A stream of the messages of an entity; they stay there."""
    CONSUME = "spark.readStream with mode=consume"
    """A stream of the messages of a reserved entity; they are removed."""
    WRITE = "write"
    """A DataFrame that is sent."""
    WRITE_STREAM = "writeStream"
    """A stream that is sent."""


READS = frozenset({QueryKind.BROWSE, QueryKind.BROWSE_STREAM, QueryKind.CONSUME})
BROWSES = frozenset({QueryKind.BROWSE, QueryKind.BROWSE_STREAM})
STREAMS = frozenset({QueryKind.BROWSE_STREAM, QueryKind.CONSUME})
WRITES = frozenset({QueryKind.WRITE, QueryKind.WRITE_STREAM})
ALL = READS | WRITES


@dataclass(frozen=True, slots=True)
class Option(Generic[T]):
    """One option: how its text is read, where it is legal, and its value if it is not given."""

    name: str
    parse: Callable[[str], T]
    legal: frozenset[QueryKind] = ALL
    default: T | None = None
    secret: bool = False
    """Whether errors must not quote its value."""


OPTIONS: tuple[Option[Any], ...] = (
    Option("url", values.text, secret=True),
    Option("urlEnv", values.text),
    Option("urlFile", values.text),
    Option("urlProvider", values.text),
    Option("namespace", values.text),
    Option("queue", values.text),
    Option("queues", values.names, READS),
    Option("queuePattern", values.pattern, READS),
    Option("topic", values.text),
    Option("subscription", values.text, READS),
    Option("records", values.one_of("messages", "settlements"), frozenset({QueryKind.BROWSE}), "messages"),
    Option("subQueue", values.one_of("deadLetter", "transferDeadLetter"), BROWSES),
    Option("mode", values.one_of("browse", "consume"), READS, "browse"),
    Option("consumer", values.text, frozenset({QueryKind.CONSUME})),
    Option("reserveTimeout", values.duration, frozenset({QueryKind.CONSUME}), 300.0),
    Option("reservationStaleAfter", values.duration, frozenset({QueryKind.CONSUME}), STALE_AFTER),
    Option("startingOffsets", values.offsets, BROWSES),
    Option("startingTimestamp", values.moment, BROWSES),
    Option("endingOffsets", values.offsets, frozenset({QueryKind.BROWSE})),
    Option("endingTimestamp", values.moment, frozenset({QueryKind.BROWSE})),
    Option("maxMessagesPerTrigger", values.count(), STREAMS),
    Option("maxBytesPerTrigger", values.count(), STREAMS),
    Option("minMessagesPerTrigger", values.count(), STREAMS),
    Option("minBytesPerTrigger", values.count(), STREAMS),
    Option("maxTriggerDelay", values.duration, STREAMS, 900.0),
    Option("minPollIntervalMs", values.count(0, 3_600_000), STREAMS, 100),
    Option("minPartitions", values.count(1, 100_000), READS),
    Option("maxTasks", values.count(1, 100_000), READS),
    Option("maxRecordsPerPartition", values.count(), READS),
    Option("pageMessages", values.count(1, 1000), READS, 600),
    Option("pageBytes", values.count(1, 64 * 1024 * 1024), READS, 256 * 1024),
    Option("maxBytesPerSecond", values.count(), READS),
    Option("readFrom", values.one_of("master", "replica"), frozenset({QueryKind.BROWSE}), "master"),
    Option("failOnDataLoss", values.boolean, STREAMS, True),
    Option("columns", values.names, READS),
    Option("pushFilters", values.boolean, frozenset({QueryKind.BROWSE}), False),
    Option("includeBody", values.boolean, READS, True),
    Option("includeProperties", values.boolean, READS, True),
    Option("writeId", values.text, frozenset({QueryKind.WRITE})),
    Option("writeVersion", values.count(0, (1 << 63) - 1), frozenset({QueryKind.WRITE})),
    Option("tasks", values.count(1, 100_000), WRITES),
    Option("taskColumn", values.text, WRITES),
    Option("idColumn", values.text, WRITES),
    Option("refusedPath", values.text, WRITES),
    Option("callTimeout", values.duration, ALL, 60.0),
)

_BY_NAME: dict[str, Option[Any]] = {option.name.lower(): option for option in OPTIONS}
_SPARKS_OWN = {"checkpointlocation", "queryname", "outputmode"}
"""Options of Spark's own writers of streams, which reach the sink with ours."""
_URLS = ("url", "urlEnv", "urlFile", "urlProvider")


@dataclass(frozen=True, slots=True)
class EntityChoice:
    """The entities that a read names: their paths, or a pattern of the names of queues."""

    paths: tuple[str, ...] = ()
    pattern: str | None = None

    def __str__(self) -> str:
        if self.pattern is not None:
            return f"the queues with names like {quoted(self.pattern)}"
        return " and ".join(f"'{path}'" for path in self.paths)

    def includes(self, path: str) -> bool:
        """Return whether an entity is among them."""
        if self.pattern is not None:
            return re.fullmatch(self.pattern, path, re.IGNORECASE) is not None
        return name_key(path) in map(name_key, self.paths)

    def fits(self, paths: Sequence[str]) -> bool:
        """Return whether these are the entities, as far as the options tell: a pattern may have found new ones."""
        all_known = self.pattern is not None or len(paths) == len(self.paths)
        return all_known and all(map(self.includes, paths))


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryOptions:
    """The checked options of one query. The names are those of :data:`OPTIONS`, in Python's spelling."""

    kind: QueryKind
    entity: str | None = None
    """The path of the queue or topic to which a write sends; ``None`` if each row names its own."""
    entities: EntityChoice = EntityChoice()
    """The entities that are read."""
    records: str = "messages"
    """Whether the query reads ``messages`` or ``settlements``."""
    sub_queue: str | None = None
    consumer: str | None = None
    reserve_timeout: float = 300.0
    stale_after: float = STALE_AFTER
    starting: values.At | None = None
    starting_time: int | None = None
    ending: values.At | None = None
    ending_time: int | None = None
    most_rows: int | None = None
    most_bytes: int | None = None
    least_rows: int | None = None
    least_bytes: int | None = None
    longest_delay: float = 900.0
    poll_interval: float = 0.1
    least_tasks: int | None = None
    most_tasks: int | None = None
    most_task_rows: int | None = None
    page_rows: int = 600
    page_bytes: int = 256 * 1024
    most_bytes_a_second: int | None = None
    from_replica: bool = False
    """Whether replicas give the messages, which may not have the last ones."""
    fail_on_loss: bool = True
    columns: tuple[str, ...] | None = None
    """The names of the columns to read; ``None`` for all."""
    body: bool = True
    properties: bool = True
    push_filters: bool = False
    write_id: str | None = None
    write_version: int | None = None
    tasks: int | None = None
    """The number of tasks of a write, or of each batch of a stream."""
    task_column: str | None = None
    """The name of the column with the number of the task of each row."""
    id_column: str | None = None
    refused_path: str | None = None
    timeout: float = 60.0

    @property
    def mode(self) -> str:
        """Whether a read does ``browse`` or ``consume``."""
        return "consume" if self.kind is QueryKind.CONSUME else "browse"


def nearest(name: str, names: Iterable[str]) -> str:
    """Return the end of a sentence that names the most similar valid name, or all names."""
    spelled = {each.lower(): each for each in names}
    found = difflib.get_close_matches(name.lower(), spelled, n=1, cutoff=0.6)
    return f"did you mean {spelled[found[0]]}?" if found else f"the names are {', '.join(spelled.values())}."


def parse_secret(given: Mapping[str, str]) -> dict[str, str]:
    """Return the options that say where the connection string is, after a check that there is exactly one."""
    known = {name.lower(): value for name, value in given.items()}
    named = {name: known[name.lower()] for name in _URLS if name.lower() in known}
    if len(named) != 1:
        many = f"{' and '.join(named)} are given" if named else "none is given"
        raise SparkSetupError(f"The connection string comes from one of {', '.join(_URLS)}, but {many}.")
    if "namespace" in known:
        named["namespace"] = known["namespace"]
    return named


class IncludedColumns(NamedTuple):
    """What the options say about the columns of a read."""

    body: bool
    properties: bool
    columns: tuple[str, ...] | None


def included(given: Mapping[str, str]) -> IncludedColumns:
    """Return which columns a read includes.

    Spark asks for the columns before it says whether the query is a batch or a stream, so only the values are checked.
    """
    found = _parsed(given)
    return IncludedColumns(found.get("includeBody", True), found.get("includeProperties", True), found.get("columns"))


def reads_settlements(given: Mapping[str, str]) -> bool:
    """Return whether a read is of settlements, which have other columns than messages."""
    return _parsed(given).get("records") == "settlements"


def parse_options(given: Mapping[str, str], *, stream: bool, write: bool) -> QueryOptions:
    """Return the options of a query. Raise :class:`SparkSetupError` for the first one that is wrong."""
    found = _parsed(given)
    if not given:
        raise SparkSetupError(f"The query has no options. If it is of a table of CREATE TABLE: {_NO_TABLES}")
    kind = _kind_of(found, stream=stream, write=write)
    _refuse_misplaced(found, kind)
    parse_secret(given)
    entities = _entities_of(found, kind)
    _refuse_contradictions(found, kind)
    _refuse_other_places(found, entities)

    def value(name: str) -> Any:
        return found.get(name, _BY_NAME[name.lower()].default)

    return QueryOptions(
        kind=kind,
        entity=entities.paths[0] if kind in WRITES and entities.paths else None,
        entities=entities if kind in READS else EntityChoice(),
        records=value("records"),
        sub_queue=value("subQueue"),
        consumer=value("consumer"),
        reserve_timeout=value("reserveTimeout"),
        stale_after=value("reservationStaleAfter"),
        starting=value("startingOffsets"),
        starting_time=value("startingTimestamp"),
        ending=value("endingOffsets"),
        ending_time=value("endingTimestamp"),
        most_rows=value("maxMessagesPerTrigger"),
        most_bytes=value("maxBytesPerTrigger"),
        least_rows=value("minMessagesPerTrigger"),
        least_bytes=value("minBytesPerTrigger"),
        longest_delay=value("maxTriggerDelay"),
        poll_interval=value("minPollIntervalMs") / 1000,
        least_tasks=value("minPartitions"),
        most_tasks=value("maxTasks"),
        most_task_rows=value("maxRecordsPerPartition"),
        page_rows=value("pageMessages"),
        page_bytes=value("pageBytes"),
        most_bytes_a_second=value("maxBytesPerSecond"),
        from_replica=value("readFrom") == "replica",
        fail_on_loss=value("failOnDataLoss"),
        columns=value("columns"),
        body=value("includeBody"),
        properties=value("includeProperties"),
        push_filters=value("pushFilters"),
        write_id=value("writeId"),
        write_version=value("writeVersion"),
        tasks=value("tasks"),
        task_column=value("taskColumn"),
        id_column=value("idColumn"),
        refused_path=value("refusedPath"),
        timeout=value("callTimeout"),
    )


def _parsed(given: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in given.items():
        if name.lower() in _SPARKS_OWN:
            continue
        option = _BY_NAME.get(name.lower())
        if option is None and name.lower() == "path":
            raise SparkSetupError("The Spark format sbredis has no path: name the entity by the option queue or topic.")
        if option is None:
            raise SparkSetupError(
                f"The Spark format sbredis has no option {quoted(name)}: "
                f"{nearest(name, (each.name for each in OPTIONS))} (Spark tells a format the names in lower case.)"
            )
        try:
            found[option.name] = option.parse(value)
        except ValueError as error:
            raise SparkSetupError(f"The option {option.name} is wrong: {str(error).removesuffix('.')}.") from None
    return found


def refuse_table(given: Mapping[str, str]) -> None:
    """Refuse ``CREATE TABLE``, which gives the format its own name as an option."""
    if any(name.lower() == "provider" for name in given):
        raise SparkSetupError(_NO_TABLES)


_NO_TABLES = (
    "Spark gives a format in Python the options of a table only when it is created, not when it is read or written. "
    "Use CREATE TEMPORARY VIEW … USING sbredis OPTIONS (…), from which SELECT reads and into which INSERT INTO writes."
)


def _kind_of(found: Mapping[str, Any], *, stream: bool, write: bool) -> QueryKind:
    if write:
        return QueryKind.WRITE_STREAM if stream else QueryKind.WRITE
    if found.get("mode", "browse") == "browse":
        return QueryKind.BROWSE_STREAM if stream else QueryKind.BROWSE
    if not stream:
        raise SparkSetupError(
            "mode=consume removes messages batch by batch, which only a stream can do exactly once: use "
            "spark.readStream with trigger(availableNow=True), or mode=browse."
        )
    return QueryKind.CONSUME


def _refuse_misplaced(found: Mapping[str, Any], kind: QueryKind) -> None:
    for name in found:
        legal = _BY_NAME[name.lower()].legal
        if kind in legal:
            continue
        why = ""
        if kind is QueryKind.CONSUME and name.startswith("starting"):
            why = " A consuming query always begins with the oldest message: beginning later would discard the rest."
        if name == "readFrom":
            why = " A stream would go past messages that a replica does not have yet, and miss them for good."
        places = ", ".join(each.value for each in QueryKind if each in legal)
        raise SparkSetupError(f"The option {name} has no meaning for {kind.value}; it is for {places}.{why}")


_PLACES = ("queue", "queues", "queuePattern", "topic")
"""The options of which one names what is read."""


def _entities_of(found: Mapping[str, Any], kind: QueryKind) -> EntityChoice:
    named = [name for name in _PLACES if name in found]
    if len(named) > 1:
        each = "Both" if len(named) == 2 else "All of"
        raise SparkSetupError(f"{each} {' and '.join(named)} are given: name the entities by one of them.")
    queues = cast("tuple[str, ...]", found.get("queues", (found["queue"],) if "queue" in found else ()))
    topic, subscription = cast("str | None", found.get("topic")), cast("str | None", found.get("subscription"))
    try:
        queues = tuple(map(entity_name, queues))
        topic = None if topic is None else entity_name(topic)
        subscription = None if subscription is None else subscription_name(subscription)
    except ValueError as error:
        raise SparkSetupError(f"The options name no entity: {str(error).removesuffix('.')}.") from None
    if kind in WRITES:
        return EntityChoice(queues if topic is None else (topic,))
    if subscription is not None and topic is None:
        raise SparkSetupError(
            "The option subscription needs topic: a subscription belongs to a topic. Without them, name a queue."
        )
    if topic is not None:
        if subscription is None:
            raise SparkSetupError("The option subscription is missing: it says which messages of the topic to read.")
        return EntityChoice((path_of(topic, subscription),))
    if not named:
        raise SparkSetupError(
            "Nothing says which messages to read: give the option queue, queues or queuePattern, or topic and "
            "subscription."
        )
    return EntityChoice(queues, found.get("queuePattern"))


def _refuse_other_places(found: Mapping[str, Any], entities: EntityChoice) -> None:
    """Refuse offsets of entities that are not read, and offsets that do not say which entity they belong to."""
    for name in ("startingOffsets", "endingOffsets"):
        at = found.get(name)
        if not isinstance(at, Mapping):
            continue
        for path in cast("Mapping[str, Any]", at):
            if path == values.ONLY_ENTITY and (entities.pattern is not None or len(entities.paths) > 1):
                raise SparkSetupError(
                    f'{name} must name entities, because the query reads several: {{"orders": {{"0": 17}}}}.'
                )
            if path != values.ONLY_ENTITY and not entities.includes(path):
                raise SparkSetupError(f"{name} names {quoted(path)}, but the query reads {entities}.")


def _refuse_contradictions(found: Mapping[str, Any], kind: QueryKind) -> None:
    if kind is QueryKind.CONSUME and "consumer" not in found:
        raise SparkSetupError(
            "mode=consume needs the option consumer: a name for this query, under which it reserves the entity. Keep "
            "the name as long as you keep the checkpoint."
        )
    _refuse_columns(found)
    _refuse_ends(found)
    _refuse_limits(found)
    _refuse_unrepeatable(found, kind)


def _refuse_columns(found: Mapping[str, Any]) -> None:
    if found.get("records") == "settlements":
        for name in (
            "subQueue",
            "columns",
            "pushFilters",
            "readFrom",
            "startingOffsets",
            "startingTimestamp",
            "endingOffsets",
            "endingTimestamp",
        ):
            if name in found:
                raise SparkSetupError(f"{name} has no meaning with records=settlements: all settlements are read.")
    for name in ("includeBody", "includeProperties"):
        if name in found and "columns" in found:
            raise SparkSetupError(f"Both columns and {name} are given: columns alone says which columns to read.")


def _refuse_ends(found: Mapping[str, Any]) -> None:
    if found.get("endingOffsets") == "earliest" or values.EARLIEST in _numbers(found.get("endingOffsets")):
        raise SparkSetupError("endingOffsets cannot be earliest, or -2: nothing would be read.")
    for one, other in (("startingOffsets", "startingTimestamp"), ("endingOffsets", "endingTimestamp")):
        if one in found and other in found:
            raise SparkSetupError(f"Both {one} and {other} are given: give one of them.")
    for name in ("startingTimestamp", "endingTimestamp"):
        if name in found and "subQueue" in found:
            raise SparkSetupError(
                f"{name} has no meaning with subQueue: the numbers of dead letters do not follow their enqueued times. "
                "Filter by the column enqueued_time instead."
            )


def _refuse_limits(found: Mapping[str, Any]) -> None:
    for what in ("MessagesPerTrigger", "BytesPerTrigger"):
        if found.get(f"min{what}", 0) > found.get(f"max{what}", 1 << 60):
            raise SparkSetupError(f"min{what} is greater than max{what}.")
    if "minPartitions" in found and found["minPartitions"] > found.get("maxTasks", 1 << 60):
        raise SparkSetupError("minPartitions is greater than maxTasks.")
    if "maxRecordsPerPartition" in found and "maxTasks" in found:
        raise SparkSetupError(
            "Both maxRecordsPerPartition and maxTasks are given: the number of tasks follows from one of them."
        )


def _numbers(at: values.At | None) -> list[int]:
    """Return the numbers of offsets."""
    if not isinstance(at, Mapping):
        return []
    return [number for by_partition in at.values() for number in by_partition.values()]


def _refuse_unrepeatable(found: Mapping[str, Any], kind: QueryKind) -> None:
    """Refuse a write that is to be repeatable, but does not say what a repetition needs, or says more."""
    if "idColumn" in found:
        for name in ("writeVersion", "tasks", "taskColumn", "writeId"):
            if name in found:
                raise SparkSetupError(f"{name} has no meaning with idColumn: the entity recognises each row by its id.")
    elif "tasks" in found and "taskColumn" in found:
        raise SparkSetupError("Both tasks and taskColumn are given: where each row says its task, any number is right.")
    elif "writeId" in found and "tasks" not in found and "taskColumn" not in found:
        raise SparkSetupError(
            "writeId needs the option tasks: the number of tasks of the DataFrame, which must be the same if the write "
            "is repeated. Fix it, and the order of the rows, with "
            'repartition(8, "order_id").sortWithinPartitions("order_id") and tasks=8 for example. Or name a column '
            "with the task of each row by taskColumn."
        )
    if kind is QueryKind.WRITE and "writeId" not in found:
        for name in ("writeVersion", "tasks", "taskColumn"):
            if name in found:
                raise SparkSetupError(f"{name} needs the option writeId: the name under which the write is repeated.")
