"""Bugs that are planted in the scripts of credit, one at a time: the twin of the machine of credit must find each.

python -m tests.engine.proof.planted_grants [NAME...]
"""

from __future__ import annotations

import sys

from sbredis.servers import LocalServer
from tests.engine.proof.bugs import Bug, detect_with_seeds, search, with_bug
from tests.engine.proof.credit_twin import prove, unhurried
from tests.engine.proof.hosts import USUAL, Address, host, source_at_start

__all__ = ["GRANT_BUGS", "find"]

SEEDS = 60
GRANT_BUGS = (
    # -- grants
    Bug(
        "a repeated grant is taken again",
        file="includes/take_grant",
        right="    if g.number <= w.number then",
        wrong="    if g.number < w.number then",
    ),
    Bug(
        "a word of an earlier epoch lives",
        file="includes/take_grant",
        right="if w and w.epoch == c.epochs then",
        wrong="if w then",
    ),
    Bug(
        "a word of an earlier epoch begins again with its prefix",
        file="includes/take_grant",
        right="not g.begins or w and (g.number <= w.number or g.prefix == w.prefix)",
        wrong="not g.begins",
    ),
    Bug(
        "what an earlier prefix holds does not count",
        file="includes/take_grant",
        right="g.messages + messages",
        wrong="g.messages",
    ),
    Bug(
        "a receiver that was passed over stays so",
        file="includes/take_grant",
        right="w.told, w.passed, w.open_until, w.forget_at = 0, false,",
        wrong="w.told, w.passed, w.open_until, w.forget_at = 0, w.passed,",
    ),
    Bug(
        "the news of a grant that was repeated is lost",
        file="includes/take_grant",
        right="        w.announced = g.announced -- the news",
        wrong="        -- the news",
    ),
    Bug(
        "a word is forgotten while its calls may be repeated",
        file="includes/take_grant",
        right="math.max(w.forget_at or 0, p.now + 70000)",
        wrong="math.max(w.forget_at or 0, p.now + 7000)",
    ),
    Bug(
        "a grant that is now stays open",
        file="includes/take_grants",
        right="      if g.now then",
        wrong="      if false then",
    ),
    Bug(
        "what a call gave back goes to its caller",
        file="includes/take_grants",
        right="if gave_back and not g.now then",
        wrong="if false then",
    ),
    Bug(
        "an epoch leaves the grants open",
        file="includes/open_credit",
        right="c.epochs + 1, false, false, false, '', ''",
        wrong="c.epochs, c.open, c.rest, false, '', ''",
    ),
    Bug(
        "newer settings leave the grants open",
        file="includes/end_credit",
        right="c.ends + 1",
        wrong="c.ends",
    ),
    # -- gifts
    Bug(
        "the reply gives all that is there",
        file="includes/reply_gift",
        right="math.floor(there / (1 + rivals))",
        wrong="there",
    ),
    Bug(
        "a reply gives without a bound of unseen gifts",
        file="includes/reply_gift",
        right="w.serial - w.seen <= 16",
        wrong="w.serial - w.seen <= 99",
    ),
    Bug(
        "the limit of bytes is not kept",
        file="includes/reply_gift",
        right="math.min(w.most_bytes - w.bytes, c.left)",
        wrong="c.left",
    ),
    Bug(
        "a grant that is once stays open",
        file="includes/give",
        right="  if w.once then",
        wrong="  if false then",
    ),
    Bug(
        "a gift leaves the turn as it is",
        file="includes/give",
        right="w.turn, w.forget_at, w.marked = c.turn,",
        wrong="w.turn, w.forget_at, w.marked = w.turn,",
    ),
    Bug(
        "the last unseen gift is not shown again",
        file="includes/gifts_again",
        right="  for i = 1, 17 do\n    tokens[i]",
        wrong="  for i = 1, 16 do\n    tokens[i]",
    ),
    # -- pushes
    Bug(
        "without a listener a gift is given",
        file="includes/push_to",
        right="redis.call('SPUBLISH', w.channel, text) > 0",
        wrong="redis.call('SPUBLISH', w.channel, text) >= 0",
    ),
    Bug(
        "a seventeenth gift is pushed",
        file="includes/push_gift",
        right="w.serial - w.seen >= 16",
        wrong="w.serial - w.seen >= 17",
    ),
    Bug(
        "a receiver gets more than its portion",
        file="includes/distribute",
        right="math.max(1, math.floor(left / math.max(1, rivals)))",
        wrong="left",
    ),
    Bug(
        "a call makes any number of pushes",
        file="includes/distribute",
        right="left ~= 0 and c.pushes > 0 do",
        wrong="left ~= 0 do",
    ),
    Bug(
        "a push that nobody hears leaves only suspects",
        file="includes/push_gift",
        right="    return nil\n",
        wrong="    return nil, nil, chosen.dry\n",
    ),
    Bug(
        "an announced grant gets pushes",
        file="includes/push_gift",
        right="or w.announced or",
        wrong="or",
    ),
    Bug(
        "all receivers are told of one message",
        file="includes/distribute",
        right="waiting = waiting - math.max(1, math.min(w.limit - w.messages, 16, math.floor(waiting / #some)))",
        wrong="waiting = waiting + 0",
    ),
    Bug(
        "interest is never passed on",
        file="includes/words_of",
        right="w.told, w.passed = 0, true",
        wrong="w.told = 0",
    ),
    Bug(
        "a receiver that reports nothing is not passed over",
        file="includes/words_of",
        right="w.late or w.unseen[1] ~= nil and w.unseen[1].time < p.now - 1000",
        wrong="false",
    ),
    Bug(
        "what an earlier call left is forgotten",
        file="includes/serve_credit",
        right="(p.moved or rest) and",
        wrong="p.moved and",
    ),
    Bug(
        "a changed rank is not written",
        file="includes/serve_credit",
        right="if rank and rank ~= w.ranked then",
        wrong="if rank and not w.ranked then",
    ),
    Bug(
        "stock comes before waiting callers",
        file="includes/rank_of",
        right="(w.callers > w.messages and 0 or RANKS.stock)",
        wrong="(w.callers > w.messages and RANKS.stock or 0)",
    ),
    Bug(
        "of equal ranks the last key comes first",
        file="includes/comes_before",
        right="key < other_key",
        wrong="key > other_key",
    ),
    # -- many receivers
    Bug(
        "receivers that are gone hide the others",
        file="includes/open_grants",
        right="      ranked_keys(p, source, i)\n",
        wrong="",
    ),
    Bug(
        "a receiver that is gone counts once for each look",
        file="includes/open_grants",
        right="stored.gone + redis.call('ZREM', p.grants, key)",
        wrong="stored.gone + redis.call('ZREM', p.grants, key) * 0 + 1",
    ),
    Bug(
        "a call looks at all receivers",
        file="includes/distribute",
        right="left == 1 and 1 or 32",
        wrong="left == 1 and 1 or 99",
    ),
    Bug(
        "others are not told in place of receivers that are gone",
        file="includes/distribute",
        right="      return deaf\n",
        wrong="      return false\n",
    ),
    # -- suspects
    Bug(
        "a lapse counts what was not begun",
        file="includes/lapse_lease",
        right="other or not begun or begun.left > 0",
        wrong="true",
    ),
    Bug(
        "a lapse counts nothing",
        file="includes/lapse_lease",
        right="other or not begun or begun.left > 0",
        wrong="false",
    ),
    Bug(
        "each lapse has all hands",
        file="includes/lapse_lease",
        right="begun.left, begun.changed = begun.left - 1, true",
        wrong="begun.changed = true",
    ),
    Bug(
        "what was reported as begun does not count whole",
        file="includes/lapse_lease",
        right="if begun and serial_of(token) <= begun.begun then",
        wrong="if false then",
    ),
    Bug(
        "the hands that lapses have counted are not written",
        file="includes/apply_due",
        right="w.hands, p.credits.dirty[w.key] = begun.left, w",
        wrong="p.credits.dirty[w.key] = w",
    ),
    Bug(
        "of an earlier prefix everything was begun",
        file="includes/take_grant",
        right="string.format('%.0f %.0f ', w.begun, w.hands) .. w.key)",
        wrong="'0 99999 ' .. w.key)",
    ),
    Bug(
        "one lapse makes a suspect",
        file="includes/lapse_message",
        right="lapses == 1 and p.deliveries <= 2 and",
        wrong="lapses == 1 and",
    ),
    Bug(
        "a receipt clears the mark of a suspect",
        file="includes/choose_messages",
        right="entered[n] = token .. string.sub(text, 12)",
        wrong="entered[n] = held .. string.sub(text, 13)",
    ),
    Bug(
        "a suspect is given with those behind it",
        file="includes/choose_messages",
        right="if n == most or suspect then",
        wrong="if n == most then",
    ),
    Bug(
        "a suspect is given with those before it",
        file="includes/choose_messages",
        right="elseif suspect and n > 0 then",
        wrong="elseif false then",
    ),
    Bug(
        "a suspect is given to a receiver that takes none",
        file="includes/choose_gift",
        right="pushes, w.suspects)",
        wrong="pushes, true)",
    ),
    Bug(
        "a reply does not say that suspects wait",
        file="includes/take_grants",
        right="(passed and 's' or '')",
        wrong="''",
    ),
    Bug(
        "suspects count as there for a receiver that takes none",
        file="includes/ready_for",
        right="      if not mark or mark ~= 48 and mark < 50 then",
        wrong="      if true then",
    ),
    Bug(
        "nobody is told that a message has become a suspect",
        file="includes/distribute",
        right="if suspect and p.suspected and",
        wrong="if false and",
    ),
    # -- sessions
    Bug(
        "a session has two holders",
        file="includes/give",
        right="    redis.call('ZADD', p.turns, TURNS.locked, 's' .. chosen.session)\n",
        wrong="",
    ),
    Bug(
        "the first messages come without a word",
        file="includes/give",
        right="c.words[held.key], c.dirty[held.key] = held, held",
        wrong="c.words[held.key] = held",
    ),
    Bug(
        "more first messages come than the receiver wants",
        file="includes/choose_gift",
        right="choose_gift(p, held, side, w.first, room, pushes)",
        wrong="choose_gift(p, held, side, w.first + 1, room, pushes)",
    ),
    Bug(
        "a session is shown again without its messages",
        file="includes/gifts_again",
        right="for j = 1, #firsts do",
        wrong="for j = 1, 0 do",
    ),
    Bug(
        "the gifts of a session are forgotten in an epoch",
        file="includes/take_grant",
        right="gifts = g.session and (w and w.gifts or {}),",
        wrong="gifts = g.session and {},",
    ),
    Bug(
        "gifts of a session that were seen are kept",
        file="includes/take_grant",
        right="        table.remove(w.gifts, i)\n",
        wrong="",
    ),
    Bug(
        "a grant at a lost session is taken",
        file="includes/take_grant",
        right="not session_lock_end(p, g.session, g.receiver)",
        wrong="false",
    ),
    Bug(
        "a session is left with messages in the hands of its holder",
        file="includes/take_grants",
        right="and count_held(p, g.session) == 0\n      and ready_count",
        wrong="and ready_count",
    ),
    Bug(
        "a session is left although messages are ready",
        file="includes/take_grants",
        right="== 0\n      and ready_count(p, w) == 0 then",
        wrong="== 0 then",
    ),
    Bug(
        "a session that is kept does not count",
        file="includes/take_grants",
        right="math.max(g.messages, g.limit - kept)",
        wrong="g.limit",
    ),
    Bug(
        "the holder is not told that its session ends",
        file="includes/unlock_session",
        right="    push_to(p, w)\n",
        wrong="",
    ),
    Bug(
        "the word of a session outlives its lock",
        file="includes/unlock_session",
        right="  redis.call('HDEL', p.words, key)\n",
        wrong="",
    ),
    Bug(
        "a keeper whose session has ended stays keeper",
        file="includes/unlock_session",
        right="c.keeper ~= key and c.keeper or ''",
        wrong="c.keeper",
    ),
    Bug(
        "the holder of a session gets no push",
        file="includes/distribute",
        right="  if p.roused then\n    rest = serve_held",
        wrong="  if false then\n    rest = serve_held",
    ),
    Bug(
        "a gift whose prefix begins with a digit is not kept",
        file="includes/words_of",
        right="in string.gmatch(more, '([%w_-]+):(%d+):([%d,-]+)') do",
        wrong="in string.gmatch((string.gsub(more, '^%d[^;]*', '')), '([%w_-]+):(%d+):([%d,-]+)') do",
    ),
    Bug(
        "a message in a session stays in its order when it is given",
        file="includes/give",
        right="    index_remove(p, w.session, 'a', numbers[i])\n",
        wrong="",
    ),
    Bug(
        "a holder with messages in its hands is told that others wait",
        file="includes/roused_holders",
        right="left == 0 and count_held(p, w.session) == 0",
        wrong="left == 0",
    ),
    Bug(
        "all holders are told of one session",
        file="includes/tell_holders",
        right="left, w.marked = left - 1, true",
        wrong="left, w.marked = left, true",
    ),
    Bug(
        "a holder is told again of what it has declined",
        file="includes/may_let_go",
        right="w.marked == (w.told > 0)",
        wrong="(w.marked or w.told == 0)",
    ),
    Bug(
        "holders that do not yield hide those that do",
        file="includes/rank_of",
        right="w.session and not may_let_go(w) and",
        wrong="false and",
    ),
    Bug(
        "a holder does not come first when its session becomes empty",
        file="includes/serve_credit",
        right="    roused_holders(p)\n",
        wrong="",
    ),
    Bug(
        "the next call does not look whether a holder lets go",
        file="includes/tell_holders",
        right="  c.rest = true -- the next",
        wrong="  -- the next",
    ),
    # -- due times
    Bug(
        "the deputy calls with the keeper",
        file="includes/keep_due_time",
        right="due + 5000, w.open_until, due + 5000 - p.now",
        wrong="due, w.open_until, due - p.now",
    ),
    Bug(
        "the deputy dies with the keeper",
        file="includes/keep_due_time",
        right="c.deputy_client == c.keeper_client and client_of(w) ~= c.keeper_client",
        wrong="false",
    ),
    Bug(
        "if the keepers die, nobody calls",
        file="includes/keep_due_time",
        right="elseif w and known < p.now + 110000",
        wrong="elseif w and false",
    ),
    Bug(
        "the keeper is not told of an earlier time",
        file="includes/keep_due_time",
        right="if keeper and c.keeper_at > due then",
        wrong="if false then",
    ),
    Bug(
        "nobody is asked to become the keeper",
        file="includes/keep_due_time",
        right="  elseif c.open or next(c.dirty) then",
        wrong="  elseif false then",
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
