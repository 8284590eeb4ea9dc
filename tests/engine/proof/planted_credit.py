"""Bugs that are planted in the decider of credit and in its model, one at a time: the machine must find each of them.

python -m tests.engine.proof.planted_credit [NAME...]

A bug is a text in a module and its replacement. The modules are loaded with this text into memory, never onto a disk.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import sbredis.client
from tests.engine.proof.bugs import Bug, bugs_in, detect_with_seeds, search

__all__ = ["CREDIT_BUGS", "find", "text_of"]

ROOT = Path(__file__).parents[3]
DECIDER, DATES, MODEL = (
    "sbredis/receiving/_credit.py",
    "sbredis/client/_server_clock.py",
    "tests/engine/model/credit.py",
)
LOADED = (DATES, DECIDER, MODEL, "tests/engine/proof/credit_machine.py")
"""The modules of a search, each after those that it imports."""
RUNS, STEPS = 600, 400
FIRST = {
    "gone serials stay missing": 108,
    "a prefix that nobody answers is used for ever": 228,
    "interest is not answered": 296,
}
"""The run to begin with, for bugs that are found late. If it finds a bug no more, the search begins with run 0."""

CREDIT_BUGS = (
    # -- the decider: counting
    *bugs_in(
        DECIDER,
        (
            "a gift is handed out before an earlier one",
            "serial = «self._seen.serial + 1→min(self._early, default=self._seen.serial + 1)»\n            early",
        ),
        (
            "the limit is relative to the last one",
            "limit = «seen.messages→max(self._open, seen.messages)» + self._wanted\n",
        ),
        ("a push of an earlier prefix is taken", "if «push.prefix != self._prefix or →»(known"),
        ("a failed call is not asked for again", "self._call_ended(grant)\n        self._again = «True→False»"),
        ("a missing serial is not asked for again", "or «now >= self._missing_since + _GAP or →»limit < self._open"),
        (
            "earlier prefixes are not named",
            "«tuple([(prefix, *serials) for prefix, serials in self._retired.items()]) if self._retired else →»(),",
        ),
        ("gifts are handed out although earlier prefixes are not answered", "while «not self._retired→True»:"),
        (
            "the gifts of an earlier prefix are handed out twice",
            "«if self._retired.pop(prefix, None) is None:\n                continue→self._retired.pop(prefix, None)»\n",
        ),
        (
            "gone messages stay counted as coming",
            "if «reply.last.serial == self._seen.serial and reply.prefix == self._prefix→False»:",
        ),
        ("gone serials stay missing", "gone_until=«reply.last.serial if reply.again else →»0"),
        ("a prefix is always a new one", "begins=«not self._met→True»,"),
        (
            "a prefix that nobody answers is used for ever",
            "if «not self._met and now >= self._used_at + _UNANSWERED→False»:",
        ),
        (
            "a new subscription keeps the prefix",
            (
                "        if event «is CreditEvent.TAKEN"
                "→in (CreditEvent.TAKEN, CreditEvent.SUBSCRIBED, CreditEvent.UNSUBSCRIBED)»:\n"
            ),
        ),
    ),
    # -- the decider: calls
    *bugs_in(
        DECIDER,
        ("what was seen is not reported", "«self._unreported_since = min(self._unreported_since, now)→pass»"),
        ("interest is not answered", "«self._answer_at = min(self._answer_at, now + _ANSWER)→pass»"),
        (
            "nobody calls when something is due",
            "self.«_due_at = min(self._due_at, written + reply.due)\n            self.→»keeps",
        ),
    ),
    # -- the dating of locks
    *bugs_in(
        DATES,
        ("a bound begins when the reply comes", "clock + _ROUNDED - «written→now» * _SPEED"),
        ("a leap of the clock voids no bound", "            «bounds.clear()→return True»\n"),
    ),
    *bugs_in(
        DECIDER,
        (
            "a gift is handed out after the end of its lock",
            "gift« if gift.ends is not None and gift.ends > now else gift._replace(ends=None)→»",
        ),
    ),
    # -- the partition: grants
    *bugs_in(
        MODEL,
        ("an older grant is taken", "if grant.number «<=→==» word.number:\n"),
        ("a grant for another server process is taken", "if «grant.run != self.run→False»:"),
        (
            "after an epoch a word begins with its old prefix",
            "«(grant.number <= word.number or grant.prefix == word.prefix)→grant.number <= word.number»",
        ),
        (
            "an epoch forgets the numbers of grants",
            "            word.«unseen.clear()→number, word.prefix = 0, ''»\n\n    def _lapse",
        ),
        ("a new prefix does not count what will be given again", "grant.seen.messages« + len(names)→»"),
        ("a word is forgotten too early", "WORD_LIFE = «DELIVERY_CALLS + 10_000→5_000»"),
        ("too few gifts are given again", "range(seen + 1, seen + «MOST_PUSHES + 2→3»)"),
        (
            "the reply counts the pushes of its own call",
            "            reply._replace(«limit→last=one.word.last, limit»=one.word.limit,",
        ),
        (
            "a message is given although nobody listens",
            "self.hears, self.calling, self.callers_told = «hears→lambda _: True», ",
        ),
    ),
    # -- the partition: suspects
    *bugs_in(
        MODEL,
        (
            "a suspect is given with those behind it",
            "            room -= size\n            if «self._suspect(name)→False»:\n",
        ),
        ("a suspect is given with those before it", "if size > room« or (chosen and self._suspect(name))→»:"),
        ("a suspect is given to a receiver that takes none", "return ready if «word.suspects→True» else"),
    ),
    # -- the partition: interest, due times, ends
    *bugs_in(
        MODEL,
        ("interest that nobody answers is not passed on", "«word.told_at, word.passed = None, True→pass»"),
        (
            "what is too large to push is not announced",
            "while «caller is None and self._announce(source, known())→False»:",
        ),
        (
            "receivers that are gone hide the others",
            "room = MOST_KNOWN - «sum(word.key in known for word in able)→len(known)»",
        ),
        ("a receiver without credit gets no news", "return self.credit > 0« or self.announced→»"),
        (
            "the next keeper is not told",
            "if «word.told_at is not None or self._tell(word)→True»:\n                self.asked_at",
        ),
        ("if the keepers die, nobody calls", "elif «self._known_due() < self.now + OTHERS_WITHIN→False» and"),
        ("a keeper is not told of an earlier time", "if «one is None or one.calls_at <= due→True»:"),
        ("a receiver is not told that its credit has ended", "            «self.untold.append(word.key)→pass»\n"),
        (
            "messages stay locked when their session is free",
            "            elif lease.source == source:\n«                del self.leases[of]\n→»",
        ),
    ),
)


def text_of(bug: Bug) -> str:
    """Return the text of the module of a bug, with the bug."""
    text = (ROOT / bug.file).read_text(encoding="utf-8")
    if text.count(bug.right) != 1:
        raise LookupError(f"{bug.file} has the text of the bug {bug.name!r} {text.count(bug.right)} times")
    return text.replace(bug.right, bug.wrong)


@contextmanager
def _machine_with(texts: Mapping[str, str]) -> Iterator[Any]:
    """Load the machine and what it imports, with these texts. Other modules keep what they have imported."""
    names = {file: file.removesuffix(".py").replace("/", ".") for file in LOADED}
    before = {name: sys.modules.get(name) for name in names.values()}
    clock = sbredis.client.ServerClock
    try:
        for file, name in names.items():
            module = sys.modules[name] = ModuleType(name)
            text = texts.get(file) or (ROOT / file).read_text(encoding="utf-8")
            exec(compile(text, file, "exec"), vars(module))  # noqa: S102 - our own text, with a bug
            if file == DATES:  # the others import it from its package
                setattr(sbredis.client, "ServerClock", vars(module)["ServerClock"])  # noqa: B010
        yield sys.modules[names[LOADED[-1]]]
    finally:
        setattr(sbredis.client, "ServerClock", clock)  # noqa: B010
        for name, module_before in before.items():
            sys.modules.pop(name)
            if module_before is not None:
                sys.modules[name] = module_before


def find(bug: Bug | None, runs: int = RUNS) -> str:
    """Return how the machine finds a bug; an empty text if it finds none, which is right without a bug.

    Without the bug, the run that finds it must have no complaint.
    """
    texts = {bug.file: text_of(bug)} if bug else {}

    def run(seed: int, texts: Mapping[str, str]) -> None:
        with _machine_with(texts) as machine:
            machine.run(seed, STEPS)

    if bug is None:
        return detect_with_seeds(range(runs), lambda seed: run(seed, {}), lambda _: None)
    seeds = [*([FIRST[bug.name]] if bug.name in FIRST else []), *range(runs)]
    return detect_with_seeds(seeds, lambda seed: run(seed, texts), lambda seed: run(seed, {}))


if __name__ == "__main__":
    sys.exit(search(__doc__, CREDIT_BUGS, find))
