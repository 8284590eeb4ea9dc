"""Bugs to plant in the removal of unused entities: a name, a Lua file or a module, a text and its replacement."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["BUGS", "Bug"]

_REMOVAL, _STEPS = "sbredis.registry._removal", "sbredis.registry._steps"


class Bug(NamedTuple):
    """A plausible programming mistake."""

    name: str
    file: str
    right: str
    wrong: str


BUGS = (
    Bug("the minute of the last use is not waited for", "close", "quiet >= idle + 60000", "quiet >= idle"),
    Bug("a scheduled message is no use", "close", "holds(SIDES[''].scheduled)\n", ""),
    Bug("a transfer is no use", "close", "holds(SIDES[''].transfer)\n", ""),
    Bug("dead letters that are to be forwarded are no use", "close", "holds(p.forwards_dead and SIDES.d.ready)\n", ""),
    Bug("a batch is no use", "close", "  holds(SIDES[prefix].frozen)\n", ""),
    Bug("an entity that forwards is idle", "close", "p.used, p.forwards", "p.used, false"),
    Bug("a closed partition stays open", "close", "if now_closed then", "if false then"),
    Bug("asking counts as a use", "close", "if used == 0 then", "if used < p.now then"),
    Bug("a peek is not noted", "touch", "finish(p, '')\n", ""),
    Bug("a peek is noted once in ten minutes", "touch", "< 60000", "< 600000"),
    Bug("a use is noted once in ten minutes", "includes/finish", "p.used >= 60000", "p.used >= 600000"),
    Bug(
        "a use of a subscription is no use of its topic",
        "includes/finish",
        "redis.call('HSET', p.store, 'used', p.now)",
        "local _ = 1",
    ),
    Bug("a grant is no use", "includes/finish", "not p.upkeep", "not p.upkeep and p.name ~= 'grant'"),
    Bug("an update is no use", "configure", "(ARGV[10] == '1' or", "("),
    Bug("a topic is quiet while its subscriptions are used", "quiet", "if topic == '1' then", "if false then"),
    Bug("a topic tells a use twice as old", "quiet", "now - last)", "(now - last) * 2)"),
    Bug(
        "a removal does not see that it was taken back",
        _REMOVAL,
        "\n    record = await steps.deleting(record, until)\n",
        "\n    seen = await steps.ask(steps.registry.read(record.path), until, record.path)\n"
        "    record = await steps.deleting(seen or record, until)\n",
    ),
    Bug(
        "the subscriptions of a topic stay open",
        _REMOVAL,
        'if quiet is None and record.kind == "topic":',
        "if False:",
    ),
    Bug(
        "unreachable partitions are idle",
        _REMOVAL,
        "        await partitions.everywhere(record, ask, min(until, loop_time() + PATIENCE))\n",
        "        with suppress(*UNREACHABLE):\n"
        "            await partitions.everywhere(record, ask, min(until, loop_time() + PATIENCE))\n",
    ),
    Bug(
        "a remover makes the partitions of a deleted entity again",
        _REMOVAL,
        "        await steps.restored(record, until)\n",
        "        await partitions.everywhere(record, partitions.make, until)\n",
    ),
    Bug(
        "partitions are only asked",
        _REMOVAL,
        "record, idle, record.version + 1, until)\n        if quiet is None and",
        "record, idle, record.version, until)\n        if quiet is None and",
    ),
    Bug(
        "a subscription is opened without its topic",
        _STEPS,
        "await self._topic_kept(record, record.parent, until)",
        "pass",
    ),
    Bug("taking back gives the same version", _STEPS, 'state="active", version=record.version + 1)', 'state="active")'),
)
