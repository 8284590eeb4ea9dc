"""Bugs that are planted in the scripts of moves, one at a time; the machine of moves must find each of them."""

from __future__ import annotations

from hypothesis.errors import FlakyFailure

from sbredis.engine._scripts import read_source
from sbredis.servers import LocalServer
from tests.engine.model import Refused
from tests.engine.proof.hosts import Read, host, with_texts_replaced
from tests.engine.proof.moves_run import prove

__all__ = ["BUGS", "changed", "found"]

BUGS: dict[str, tuple[str, str, str]] = {
    "a take leaves no record": (
        "take",
        "  redis.call('HSET', p.lasting, field, string.format('%.0f %s ', number, held) .. verdict)\n",
        "",
    ),
    "a refusal leaves no record": (
        "take",
        "    return answer(refused.err, taken or '-')",
        "    return { 0, code, '', '', {} }",
    ),
    "an older batch is taken": ("take", "  elseif number < tonumber(last) then", "  elseif false then"),
    "a batch of a forgotten source is taken": ("take", "  if ARGV[10] ~= door then", "  if false then"),
    "messages of a lost freeze are stored twice": ("take", "  if #here > 0 then", "  if false then"),
    "the names of an earlier take are forgotten": (
        "take",
        "    return answer('again ' .. name_runs(here), taken)",
        "    return answer('again ' .. name_runs(here), '-')",
    ),
    "a settlement does not look at the number": ("settle_batch", "tonumber(number) ~= wanted or", "not number or"),
    "batches are numbered anew after a failover": (
        "freeze",
        "p.dead_seq = p.dead_seq + 1\n",
        "p.dead_seq = tonumber(redis.call('HGET', p.state, 'dead_seq')) + 1\n",
    ),
    "a freeze replaces the outstanding batch": ("freeze", "if number then", "if false then"),
    "a freeze takes messages that a receiver holds": (
        "includes/movable_messages",
        "movable = main and not p.index or",
        "movable = score >= 0 and not p.index or",
    ),
    "a withdrawal takes messages that a receiver holds": (
        "includes/check_withdraw",
        "  if #gone > 0 then",
        "  if false then",
    ),
    "a frozen message expires": ("includes/stop_expiry", "      if found.main[i] then", "      if false then"),
    "an expired message is withdrawn": ("includes/check_withdraw", "    if late[i] or", "    if"),
    "a returned message never expires": (
        "settle_batch",
        "make_ready(p, name, side, own, e, expires < NEVER)",
        "make_ready(p, name, side, own, e, false)",
    ),
    "the bytes of moved messages still count": (
        "includes/delete_moved",
        "  drop_record(p, record, size, changes)\n",
        "",
    ),
    "settled messages keep their entries": ("includes/delete_moved", "    p.forgotten[#p.forgotten + 1] = name\n", ""),
    "a call for a mover is not withdrawn": ("outgoing", "waits and '1' or '', waits", "'1', true"),
    "a settled batch stays": ("settle_batch", "redis.call('HDEL', p.lasting, 'b:' .. destination)\n", ""),
    "a forgotten source keeps its verdict": ("forget_source", "redis.call('HDEL', p.lasting, unpack(fields))", "1"),
    "forgetting does not change the door": ("forget_source", "if known > 0 then", "if false then"),
    "a batch forgets its purpose": (
        "freeze",
        "{ number, ARGV[8], runs, ARGV[10] }, ' ')",
        "{ number, ARGV[8], runs, '' }, ' ')",
    ),
    "a freeze gives the outstanding batch its own purpose": (
        "freeze",
        "return { 0, number, incarnation, runs, purpose }",
        "return { 0, number, incarnation, runs, ARGV[10] }",
    ),
    "a repeated freeze forgets the purpose": (
        "freeze",
        "table.concat({ number, incarnation, runs, purpose }, ' ')",
        "table.concat({ number, incarnation, runs, '' }, ' ')",
    ),
    "the batch of a redrive calls for no mover": (
        "freeze",
        "p.awaits_mover = ARGV[10] ~= ''",
        "p.awaits_mover = false",
    ),
    "a source does not tell its destinations": ("freeze", "  told = told .. id .. ' '\n", ""),
}
"""Mistakes that the machine must find, each as a file, a text in it, and what takes its place."""


def changed(bug: str) -> Read:
    """Return a function that reads the scripts with a planted bug."""
    file, right, wrong = BUGS[bug]
    return with_texts_replaced({file: [(right, wrong)]}, read_source)


def found(bug: str, server: LocalServer, *, examples: int) -> str | None:
    """Return how the machine finds a planted bug; None if it does not."""
    with host("server", changed(bug), server=server) as on:
        try:
            prove(on, examples=examples, derandomize=True)
        except (AssertionError, AttributeError, Refused, TypeError, ValueError, FlakyFailure) as error:
            return str(error) or type(error).__name__
        return None
