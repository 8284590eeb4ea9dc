"""Bugs that are planted in the scripts of credit, one at a time: the twin of the machine of credit must find each.

python -m tests.engine.proof.planted_grants [NAME...]
"""

from __future__ import annotations

import sys

from sbredis.servers import LocalServer
from tests.engine.proof.bugs import Bug, bugs_in, detect_with_seeds, search, with_bug
from tests.engine.proof.credit_twin import prove, unhurried
from tests.engine.proof.hosts import USUAL, Address, host, source_at_start

__all__ = ["GRANT_BUGS", "find"]

SEEDS = 60
GRANT_BUGS = (
    # -- grants
    *bugs_in(
        "includes/take_grant",
        ("a repeated grant is taken again", "    if g.number «<=→<» w.number then"),
        ("a word of an earlier epoch lives", "if w «and w.epoch == c.epochs →»then"),
        (
            "a word of an earlier epoch begins again with its prefix",
            "not g.begins« or w and (g.number <= w.number or g.prefix == w.prefix)→»",
        ),
        ("what an earlier prefix holds does not count", "g.messages« + messages→»"),
        (
            "a receiver that was passed over stays so",
            "w.told, w.passed, w.open_until, w.forget_at = 0, «false→w.passed»,",
        ),
        ("the news of a grant that was repeated is lost", "        «w.announced = g.announced →»-- the news"),
        ("a word is forgotten while its calls may be repeated", "math.max(w.forget_at or 0, p.now + «70000→7000»)"),
    ),
    *bugs_in(
        "includes/take_grants",
        ("a grant that is now stays open", "      if «g.now→false» then"),
        ("what a call gave back goes to its caller", "if «gave_back and not g.now→false» then"),
    ),
    *bugs_in(
        "includes/open_credit",
        ("an epoch leaves the grants open", "c.epochs« + 1, false, false→, c.open, c.rest», false, '', ''"),
    ),
    *bugs_in("includes/end_credit", ("newer settings leave the grants open", "c.ends« + 1→»")),
    # -- gifts
    *bugs_in(
        "includes/reply_gift",
        ("the reply gives all that is there", "«math.floor(there / (1 + rivals))→there»"),
        ("a reply gives without a bound of unseen gifts", "w.serial - w.seen <= «16→99»"),
        ("the limit of bytes is not kept", "«math.min(w.most_bytes - w.bytes, c.left)→c.left»"),
    ),
    *bugs_in(
        "includes/give",
        ("a grant that is once stays open", "  if «w.once→false» then"),
        ("a gift leaves the turn as it is", "w.turn, w.forget_at, w.marked = «c→w».turn,"),
    ),
    *bugs_in(
        "includes/gifts_again", ("the last unseen gift is not shown again", "  for i = 1, «17→16» do\n    tokens[i]")
    ),
    # -- pushes
    *bugs_in(
        "includes/push_to", ("without a listener a gift is given", "redis.call('SPUBLISH', w.channel, text) «>→>=» 0")
    ),
    *bugs_in(
        "includes/push_gift",
        ("a seventeenth gift is pushed", "w.serial - w.seen >= «16→17»"),
        ("a push that nobody hears leaves only suspects", "    return nil«→, nil, chosen.dry»\n"),
        ("an announced grant gets pushes", "or« w.announced or→»"),
    ),
    *bugs_in(
        "includes/distribute",
        ("a receiver gets more than its portion", "«math.max(1, math.floor(left / math.max(1, rivals)))→left»"),
        ("a call makes any number of pushes", "left ~= 0 «and c.pushes > 0 →»do"),
        (
            "all receivers are told of one message",
            "waiting = waiting «- math.max(1, math.min(w.limit - w.messages, 16, math.floor(waiting / #some)))→+ 0»",
        ),
    ),
    *bugs_in(
        "includes/words_of",
        ("interest is never passed on", "w.told«, w.passed = 0, true→ = 0»"),
        (
            "a receiver that reports nothing is not passed over",
            "«w.late or w.unseen[1] ~= nil and w.unseen[1].time < p.now - 1000→false»",
        ),
    ),
    *bugs_in(
        "includes/serve_credit",
        ("what an earlier call left is forgotten", "«(p.moved or rest)→p.moved» and"),
        ("a changed rank is not written", "if rank and «rank ~=→not» w.ranked then"),
    ),
    *bugs_in(
        "includes/rank_of",
        ("stock comes before waiting callers", "(w.callers > w.messages and «0 or RANKS.stock→RANKS.stock or 0»)"),
    ),
    *bugs_in("includes/comes_before", ("of equal ranks the last key comes first", "key «<→>» other_key")),
    # -- many receivers
    *bugs_in(
        "includes/open_grants",
        ("receivers that are gone hide the others", "«      ranked_keys(p, source, i)\n→»"),
        (
            "a receiver that is gone counts once for each look",
            "stored.gone + redis.call('ZREM', p.grants, key)«→ * 0 + 1»",
        ),
    ),
    *bugs_in(
        "includes/distribute",
        ("a call looks at all receivers", "left == 1 and 1 or «32→99»"),
        ("others are not told in place of receivers that are gone", "      return «deaf→false»\n"),
    ),
    # -- suspects
    *bugs_in(
        "includes/lapse_lease",
        ("a lapse counts what was not begun", "«other or not begun or begun.left > 0→true»"),
        ("a lapse counts nothing", "«other or not begun or begun.left > 0→false»"),
        ("each lapse has all hands", "begun.«left, begun.changed = begun.left - 1,→changed =» true"),
        (
            "what was reported as begun does not count whole",
            "if «begun and serial_of(token) <= begun.begun→false» then",
        ),
    ),
    *bugs_in(
        "includes/apply_due",
        (
            "the hands that lapses have counted are not written",
            "«w.hands, p.credits.dirty[w.key] = begun.left,→p.credits.dirty[w.key] =» w",
        ),
    ),
    *bugs_in(
        "includes/take_grant",
        (
            "of an earlier prefix everything was begun",
            "«string.format('%.0f %.0f ', w.begun, w.hands)→'0 99999 '» .. w.key)",
        ),
    ),
    *bugs_in("includes/lapse_message", ("one lapse makes a suspect", "lapses == 1 and« p.deliveries <= 2 and→»")),
    *bugs_in(
        "includes/choose_messages",
        (
            "a receipt clears the mark of a suspect",
            "entered[n] = «token .. string.sub(text, 12)→held .. string.sub(text, 13)»",
        ),
        ("a suspect is given with those behind it", "if n == most «or suspect →»then"),
        ("a suspect is given with those before it", "elseif «suspect and n > 0→false» then"),
    ),
    *bugs_in(
        "includes/apply_send",
        ("a message is given with a record that is not the stored one", "[name] = record« → .. 'y' »}"),
    ),
    *bugs_in(
        "includes/choose_gift", ("a suspect is given to a receiver that takes none", "pushes, «w.suspects→true»)")
    ),
    *bugs_in("includes/take_grants", ("a reply does not say that suspects wait", "«(passed and 's' or '')→''»")),
    *bugs_in(
        "includes/ready_for",
        (
            "suspects count as there for a receiver that takes none",
            "      if «not mark or mark ~= 48 and mark < 50→true» then",
        ),
    ),
    *bugs_in(
        "includes/distribute",
        ("nobody is told that a message has become a suspect", "if «suspect and p.suspected→false» and"),
    ),
    # -- sessions
    *bugs_in(
        "includes/give",
        ("a session has two holders", "«    redis.call('ZADD', p.turns, TURNS.locked, 's' .. chosen.session)\n→»"),
        ("the first messages come without a word", "c.words[held.key]«, c.dirty[held.key] = held,→ =» held"),
        (
            "a message in a session stays in its order when it is given",
            "«    index_remove(p, w.session, 'a', numbers[i])\n→»",
        ),
    ),
    *bugs_in(
        "includes/choose_gift",
        (
            "more first messages come than the receiver wants",
            "choose_gift(p, held, side, w.first«→ + 1», room, pushes)",
        ),
    ),
    *bugs_in("includes/gifts_again", ("a session is shown again without its messages", "for j = 1, «#firsts→0» do")),
    *bugs_in(
        "includes/take_grant",
        ("the gifts of a session are forgotten in an epoch", "gifts = g.session and «(w and w.gifts or {})→{}»,"),
        ("gifts of a session that were seen are kept", "«        table.remove(w.gifts, i)\n→»"),
        ("a grant at a lost session is taken", "«not session_lock_end(p, g.session, g.receiver)→false»"),
    ),
    *bugs_in(
        "includes/take_grants",
        (
            "a session is left with messages in the hands of its holder",
            "and «count_held(p, g.session) == 0\n      and →»ready_count",
        ),
        ("a session is left although messages are ready", "== 0«\n      and ready_count(p, w) == 0→» then"),
        ("a session that is kept does not count", "«math.max(g.messages, g.limit - kept)→g.limit»"),
    ),
    *bugs_in(
        "includes/unlock_session",
        ("the holder is not told that its session ends", "«    push_to(p, w)\n→»"),
        ("the word of a session outlives its lock", "«  redis.call('HDEL', p.words, key)\n→»"),
        ("a keeper whose session has ended stays keeper", "c.keeper« ~= key and c.keeper or ''→»"),
    ),
    *bugs_in(
        "includes/distribute",
        ("the holder of a session gets no push", "  if «p.roused→false» then\n    rest = serve_held"),
    ),
    *bugs_in(
        "includes/words_of",
        (
            "a gift whose prefix begins with a digit is not kept",
            "in string.gmatch(«more→(string.gsub(more, '^%d[^;]*', ''))», '([%w_-]+):(%d+):([%d,-]+)') do",
        ),
    ),
    *bugs_in(
        "includes/roused_holders",
        (
            "a holder with messages in its hands is told that others wait",
            "left == 0« and count_held(p, w.session) == 0→»",
        ),
    ),
    *bugs_in(
        "includes/tell_holders",
        ("all holders are told of one session", "left, w.marked = left« - 1→», true"),
        ("the next call does not look whether a holder lets go", "  «c.rest = true →»-- the next"),
    ),
    *bugs_in(
        "includes/may_let_go",
        ("a holder is told again of what it has declined", "«w.marked == (w.told > 0)→(w.marked or w.told == 0)»"),
    ),
    *bugs_in(
        "includes/rank_of",
        ("holders that do not yield hide those that do", "«w.session and not may_let_go(w)→false» and"),
    ),
    *bugs_in(
        "includes/serve_credit",
        ("a holder does not come first when its session becomes empty", "«    roused_holders(p)\n→»"),
    ),
    # -- due times
    *bugs_in(
        "includes/keep_due_time",
        ("the deputy calls with the keeper", "due« + 5000, w.open_until, due + 5000→, w.open_until, due» - p.now"),
        (
            "the deputy dies with the keeper",
            "«c.deputy_client == c.keeper_client and client_of(w) ~= c.keeper_client→false»",
        ),
        ("if the keepers die, nobody calls", "elseif w and «known < p.now + 110000→false»"),
        ("the keeper is not told of an earlier time", "if «keeper and c.keeper_at > due→false» then"),
        ("nobody is asked to become the keeper", "  elseif «c.open or next(c.dirty)→false» then"),
    ),
)


def find(bug: Bug, server: Address | None = None, seeds: int = SEEDS) -> str:
    """Return how the twin finds a bug; an empty text if it does not. Without the bug, the same run has no complaint."""
    with (
        host(USUAL, unhurried(with_bug(bug)), server=server) as changed,
        host(USUAL, unhurried(source_at_start), server=server) as usual,
    ):
        return detect_with_seeds(range(seeds), lambda seed: prove([seed], changed), lambda seed: prove([seed], usual))


def main() -> int:
    with LocalServer() as server:
        return search(__doc__, GRANT_BUGS, lambda bug: find(bug, Address(server.host, server.port)))


if __name__ == "__main__":
    sys.exit(main())
