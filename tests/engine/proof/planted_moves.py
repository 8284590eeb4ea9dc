"""Bugs of moves between partitions."""

from __future__ import annotations

from tests.engine.proof.bugs import bugs_in

__all__ = ["OF_MOVES"]

OF_MOVES = (
    *bugs_in(
        "take",
        ("a take leaves no record", "  redis.call('HSET', p.lasting, «'in:' .. b.origin→'in'», string"),
        (
            "a refusal leaves no record",
            "      return «answer(b, refused.err, taken or '-', strangers)→{ code, '', '', {} }»",
        ),
        ("an older batch is taken", "    elseif «b.number < tonumber(last)→false» then"),
        ("a batch of a forgotten source is taken", "    if «b.door ~= door→false» then"),
        ("messages of a lost freeze are stored twice", "    if «#here > 0→false» then"),
        (
            "the names of an earlier take are forgotten",
            "      return answer(b, 'again ' .. name_runs(here), «taken→'-'»)",
        ),
    ),
    *bugs_in(
        "settle_batch",
        ("a settlement does not look at the number", "«tonumber(number) ~= wanted→not number» or"),
        ("a returned message never expires", "make_ready(p, name, side, own, e, «expires < NEVER→false»)"),
    ),
    *bugs_in(
        "includes/freeze_messages",
        (
            "batches are numbered anew after a failover",
            "p.dead_seq = «p.dead_seq→string.match(redis.call('HGET', p.state, 'marks'), ' (%d+)')» + 1\n",
        ),
        ("a batch forgets its purpose", "{ number, holder, runs, «purpose→''» }, ' ')"),
        ("a source does not tell its destinations", "«    told = told .. id .. ' '\n→»"),
        (
            "a source tells a destination with each batch",
            "if «not string.find(told, ' ' .. id .. ' ', 1, true)→true» then",
        ),
    ),
    *bugs_in(
        "freeze",
        ("a freeze replaces the outstanding batch", "if «number→false» then"),
        (
            "a freeze gives the outstanding batch its own purpose",
            "return { 0, number, incarnation, runs, «purpose→ARGV[10]» }",
        ),
        ("a repeated freeze forgets the purpose", "table.concat({ number, incarnation, runs, «purpose→''» }, ' ')"),
        ("the batch of a redrive calls for no mover", "p.awaits_mover = «ARGV[10] ~= ''→false»", "redrive_elsewhere"),
        (
            "messages of a former source are frozen",
            "if «redis.call('HGET', p.state, 'birth') ~= ARGV[9]→false» then",
            "freeze_messages_of_a_former_source",
        ),
    ),
    *bugs_in(
        "includes/movable_messages",
        ("a freeze takes messages that a receiver holds", "place >= 0 and« place < LEVELS * BAND and→»"),
    ),
    *bugs_in(
        "includes/check_withdraw",
        ("a withdrawal takes messages that a receiver holds", "  if «#gone > 0→false» then"),
        ("an expired message is withdrawn", "    if« late[i] or→»"),
    ),
    *bugs_in("includes/leave_places", ("a frozen message expires", "    if «awaited→false» and")),
    *bugs_in(
        "includes/delete_moved",
        ("the bytes of moved messages still count", "«  drop_record(p, record, size, changes)\n→»"),
        ("settled messages keep their entries", "«    p.forgotten[#p.forgotten + 1] = name\n→»"),
    ),
    *bugs_in("outgoing", ("a call for a mover is not withdrawn", "«waits and '1' or '', waits→'1', true»")),
    *bugs_in(
        "includes/end_batch",
        ("a settled batch stays", "redis.call('HDEL', p.lasting, «'b:' .. destination, 'batches'→'batches'»)\n"),
    ),
    *bugs_in(
        "forget_source",
        ("a forgotten source keeps its verdict", "«redis.call('HDEL', p.lasting, unpack(fields))→1»"),
        ("forgetting does not change the door", "if «known > 0→false» then"),
    ),
    *bugs_in(
        "sweep",
        ("a sweep does not look at the number of the batch", "  if «tonumber(number) ~= source.taken→not number» then"),
        (
            "a sweep settles a batch of a former source",
            "    if source.taken «and kept.birth == source.birth →»then",
            "sweep_for_a_former_source",
        ),
        ("a sweep leaves the messages that were taken", "«    delete_moved(p, names[i], entries[i])\n→»"),
        (
            "a sweep leaves the batch that was taken",
            "  kept.batch, kept.batches = nil, «end_batch(p, source.destination, kept.batches)→''»\n",
        ),
        ("a sweep does not withdraw the call for a mover", "«      p.changed.calling, p.calling = '', false\n→»"),
        ("a sweep overlooks transfers", "    for i = main and «2 or 1→3 or 2», #ranges do"),
        ("a sweep overlooks the batches for other destinations", "  if «(kept.batches or '') ~= ''→false» then"),
        ("a sweep takes the batch of a redrive for its own", " «or purpose ~= '' →»then", "sweep_after_a_redriver"),
    ),
)
