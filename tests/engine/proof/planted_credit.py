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
from tests.engine.proof.bugs import Bug, detect_with_seeds, search

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

CREDIT_BUGS = (
    # -- the decider: counting
    Bug(
        "a gift is handed out before an earlier one",
        file=DECIDER,
        right="serial = self._seen.serial + 1\n            early",
        wrong="serial = min(self._early, default=self._seen.serial + 1)\n            early",
    ),
    Bug(
        "the limit is relative to the last one",
        file=DECIDER,
        right="limit = seen.messages + self._wanted\n",
        wrong="limit = max(self._open, seen.messages) + self._wanted\n",
    ),
    Bug(
        "a push of an earlier prefix is taken",
        file=DECIDER,
        right="if push.prefix != self._prefix or (known",
        wrong="if (known",
    ),
    Bug(
        "a failed call is not asked for again",
        file=DECIDER,
        right="self._call_ended(grant)\n        self._again = True",
        wrong="self._call_ended(grant)\n        self._again = False",
    ),
    Bug(
        "a missing serial is not asked for again",
        file=DECIDER,
        right="or now >= self._missing_since + _GAP or limit < self._open",
        wrong="or limit < self._open",
    ),
    Bug(
        "earlier prefixes are not named",
        file=DECIDER,
        right="retired=tuple([(prefix, *serials) for prefix, serials in self._retired.items()]) if self._retired else (),",  # noqa: E501
        wrong="retired=(),",
    ),
    Bug(
        "gifts are handed out although earlier prefixes are not answered",
        file=DECIDER,
        right="while not self._retired:",
        wrong="while True:",
    ),
    Bug(
        "the gifts of an earlier prefix are handed out twice",
        file=DECIDER,
        right="if self._retired.pop(prefix, None) is None:\n                continue\n",
        wrong="self._retired.pop(prefix, None)\n",
    ),
    Bug(
        "gone messages stay counted as coming",
        file=DECIDER,
        right="if reply.last.serial == self._seen.serial and reply.prefix == self._prefix:",
        wrong="if False:",
    ),
    Bug(
        "gone serials stay missing",
        file=DECIDER,
        right="gone_until=reply.last.serial if reply.again else 0",
        wrong="gone_until=0",
    ),
    Bug(
        "a prefix is always a new one",
        file=DECIDER,
        right="begins=not self._met,",
        wrong="begins=True,",
    ),
    Bug(
        "a prefix that nobody answers is used for ever",
        file=DECIDER,
        right="if not self._met and now >= self._used_at + _UNANSWERED:",
        wrong="if False:",
    ),
    Bug(
        "a new subscription keeps the prefix",
        file=DECIDER,
        right="        if event is CreditEvent.TAKEN:\n",
        wrong="        if event in (CreditEvent.TAKEN, CreditEvent.SUBSCRIBED, CreditEvent.UNSUBSCRIBED):\n",
    ),
    # -- the decider: calls
    Bug(
        "what was seen is not reported",
        file=DECIDER,
        right="self._unreported_since = min(self._unreported_since, now)",
        wrong="pass",
    ),
    Bug(
        "interest is not answered",
        file=DECIDER,
        right="self._answer_at = min(self._answer_at, now + _ANSWER)",
        wrong="pass",
    ),
    Bug(
        "nobody calls when something is due",
        file=DECIDER,
        right="self._due_at = min(self._due_at, written + reply.due)\n            self.keeps",
        wrong="self.keeps",
    ),
    # -- the dating of locks
    Bug(
        "a bound begins when the reply comes",
        file=DATES,
        right="clock + _ROUNDED - written * _SPEED",
        wrong="clock + _ROUNDED - now * _SPEED",
    ),
    Bug(
        "a leap of the clock voids no bound",
        file=DATES,
        right="            bounds.clear()\n",
        wrong="            return True\n",
    ),
    Bug(
        "a gift is handed out after the end of its lock",
        file=DECIDER,
        right="gift if gift.ends is not None and gift.ends > now else gift._replace(ends=None)",
        wrong="gift",
    ),
    # -- the partition: grants
    Bug(
        "an older grant is taken",
        file=MODEL,
        right="if grant.number <= word.number:\n",
        wrong="if grant.number == word.number:\n",
    ),
    Bug(
        "a grant for another server process is taken",
        file=MODEL,
        right="if grant.run != self.run:",
        wrong="if False:",
    ),
    Bug(
        "after an epoch a word begins with its old prefix",
        file=MODEL,
        right="(grant.number <= word.number or grant.prefix == word.prefix)",
        wrong="grant.number <= word.number",
    ),
    Bug(
        "an epoch forgets the numbers of grants",
        file=MODEL,
        right="            word.unseen.clear()\n\n    def _lapse",
        wrong="            word.number, word.prefix = 0, ''\n\n    def _lapse",
    ),
    Bug(
        "a new prefix does not count what will be given again",
        file=MODEL,
        right="grant.seen.messages + len(names)",
        wrong="grant.seen.messages",
    ),
    Bug(
        "a word is forgotten too early",
        file=MODEL,
        right="WORD_LIFE = DELIVERY_CALLS + 10_000",
        wrong="WORD_LIFE = 5_000",
    ),
    Bug(
        "too few gifts are given again",
        file=MODEL,
        right="range(seen + 1, seen + MOST_PUSHES + 2)",
        wrong="range(seen + 1, seen + 3)",
    ),
    Bug(
        "the reply counts the pushes of its own call",
        file=MODEL,
        right="            reply._replace(limit=one.word.limit,",
        wrong="            reply._replace(last=one.word.last, limit=one.word.limit,",
    ),
    Bug(
        "a message is given although nobody listens",
        file=MODEL,
        right="self.hears, self.calling, self.callers_told = hears, ",
        wrong="self.hears, self.calling, self.callers_told = lambda _: True, ",
    ),
    # -- the partition: suspects
    Bug(
        "a suspect is given with those behind it",
        file=MODEL,
        right="            room -= size\n            if self._suspect(name):\n",
        wrong="            room -= size\n            if False:\n",
    ),
    Bug(
        "a suspect is given with those before it",
        file=MODEL,
        right="if size > room or (chosen and self._suspect(name)):",
        wrong="if size > room:",
    ),
    Bug(
        "a suspect is given to a receiver that takes none",
        file=MODEL,
        right="return ready if word.suspects else",
        wrong="return ready if True else",
    ),
    # -- the partition: interest, due times, ends
    Bug(
        "interest that nobody answers is not passed on",
        file=MODEL,
        right="word.told_at, word.passed = None, True",
        wrong="pass",
    ),
    Bug(
        "what is too large to push is not announced",
        file=MODEL,
        right="while caller is None and self._announce(source, known()):",
        wrong="while False:",
    ),
    Bug(
        "receivers that are gone hide the others",
        file=MODEL,
        right="room = MOST_KNOWN - sum(word.key in known for word in able)",
        wrong="room = MOST_KNOWN - len(known)",
    ),
    Bug(
        "a receiver without credit gets no news",
        file=MODEL,
        right="return self.credit > 0 or self.announced",
        wrong="return self.credit > 0",
    ),
    Bug(
        "the next keeper is not told",
        file=MODEL,
        right="if word.told_at is not None or self._tell(word):\n                self.asked_at",
        wrong="if True:\n                self.asked_at",
    ),
    Bug(
        "if the keepers die, nobody calls",
        file=MODEL,
        right="elif self._known_due() < self.now + OTHERS_WITHIN and",
        wrong="elif False and",
    ),
    Bug(
        "a keeper is not told of an earlier time",
        file=MODEL,
        right="if one is None or one.calls_at <= due:",
        wrong="if True:",
    ),
    Bug(
        "a receiver is not told that its credit has ended",
        file=MODEL,
        right="            self.untold.append(word.key)\n",
        wrong="            pass\n",
    ),
    Bug(
        "messages stay locked when their session is free",
        file=MODEL,
        right="            elif lease.source == source:\n                del self.leases[of]\n",
        wrong="            elif lease.source == source:\n",
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
    return detect_with_seeds(range(runs), lambda seed: run(seed, texts), lambda seed: run(seed, {}))


if __name__ == "__main__":
    sys.exit(search(__doc__, CREDIT_BUGS, find))
