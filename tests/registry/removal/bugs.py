"""Bugs to plant in the removal of unused entities, in Lua files and in modules."""

from __future__ import annotations

from tests.engine.proof.bugs import bugs_in

__all__ = ["BUGS"]

BUGS = (
    *bugs_in(
        "close",
        ("the minute of the last use is not waited for", "quiet >= idle« + 60000→»"),
        ("a scheduled message is no use", "«holds(SIDES[''].scheduled)\n→»"),
        ("a transfer is no use", "«holds(SIDES[''].transfer)\n→»"),
        ("dead letters that are to be forwarded are no use", "«holds(p.forwards_dead and SIDES.d.ready)\n→»"),
        ("a batch is no use", "«  holds(SIDES[prefix].frozen)\n→»"),
        ("an entity that forwards is idle", "p.used, «p.forwards→false»"),
        ("a closed partition stays open", "if «now_closed→false» then"),
        ("asking counts as a use", "if used «== 0→< p.now» then"),
    ),
    *bugs_in(
        "touch",
        ("a peek is not noted", "«finish(p, '')\n→»"),
        ("a peek is noted once in ten minutes", "< «60000→600000»"),
    ),
    *bugs_in(
        "includes/finish",
        ("a use is noted once in ten minutes", "p.used >= «60000→600000»"),
        ("a use of a subscription is no use of its topic", "«redis.call('HSET', p.store, 'used', p.now)→»"),
        ("a grant is no use", "not p.upkeep«→ and p.name ~= 'grant'»"),
    ),
    *bugs_in("configure", ("an update is no use", "(«ARGV[10] == '1' or→»")),
    *bugs_in(
        "quiet",
        ("a topic is quiet while its subscriptions are used", "if «topic == '1'→false» then"),
        ("a topic tells a use twice as old", "«now - last)→(now - last) * 2)»"),
    ),
    *bugs_in(
        "sbredis.registry._removal",
        (
            "a removal does not see that it was taken back",
            "deleting(«record→await steps.read(record.path, until) or record», until)\n    await steps",
        ),
        ("the subscriptions of a topic stay open", 'if «quiet is None and record.kind == "topic"→False»:'),
        (
            "unreachable partitions are idle",
            "«→with suppress(*UNREACHABLE):\n            »await partitions.everywhere(record, ask, min(",
        ),
        (
            "a remover makes the partitions of a deleted entity again",
            "        await «steps.restored(record, until)→partitions.everywhere(record, partitions.make, until)»\n",
        ),
        ("partitions are only asked", "record, idle, record.version« + 1→», until)\n        if quiet is None and"),
    ),
    *bugs_in(
        "sbredis.registry._steps",
        ("a subscription is opened without its topic", "«await self._topic_kept(record, record.parent, until)→pass»"),
        ("taking back gives the same version", 'state="active"«, version=record.version + 1→»)'),
    ),
)
