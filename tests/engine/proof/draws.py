"""The values that the machine draws from: settings, messages, times, and special properties of a call."""

from __future__ import annotations

from hypothesis import strategies as st

from sbredis.engine import NEVER, Content, Copy, Outgoing, PartitionSettings, encode
from tests.engine.proof.comparison import How
from tests.engine.terms import Side

LANES = ("a", "b", "c", "d", "e")
SCALES = (1, 9, 1_000, 1_000, 30_000, 60_000)
LONG = (900_001, 86_400_000, -1, -1_000, -60_000, -3_600_000)
FAR = 10**7
SEQUENCES = (0, 0, 4_093, 65_534, 2**24 - 2, 2**40 + 4_094)
"""Message numbers after which a partition continues. After some of them, the next messages are in another hash, or
their numbers have more digits.
"""

some = st.sampled_from
rarely = {weight: some([False] * weight + [True]) for weight in (2, 4, 8, 20)}

settings = st.builds(
    PartitionSettings,
    status=st.just("Active"),
    lock_duration=some([60_000, 60_000, 60_000, 5_000, 1]),
    max_delivery_count=some([10, 3, 2, 1]),
    time_to_live=some([NEVER, NEVER, 100_000, 50_000, 7_000, 500]),
    dead_letter_expired=st.booleans(),
    duplicate_window=some([None, 1_000, 40_000]),
    quota=some([1 << 30] * 5 + [200]),
    largest_message=some([1 << 20] * 5 + [6]),
    most_ids=some([0, 0, 0, 2]),
    clock=st.just("test"),
    shared=st.just(False),
    sessions=st.just(False),
    topic=st.just(False),
    forwards=st.just(False),
    forwards_dead=st.just(False),
    audited=st.just(False),
)
statuses = some(["Active"] * 9 + ["SendDisabled", "ReceiveDisabled", "Disabled"])

DEFECTS = ("incarnation", "layout", "older", "unknown", "stale", "newer", "malformed", "malformed")
breakages = st.integers(0, 200)
hows = st.builds(
    How,
    defect=some([""] * 60 + list(DEFECTS)),
    lane=some(["", *LANES]),
    unsure=rarely[20],
    breakage=breakages,
)

PAYLOADS = (b"", b"a", b"bcd", b";\x00 \xff|", b"large" * 3)
payloads = some(PAYLOADS)
outgoing = st.builds(
    Outgoing,
    payloads,
    some([None, None, 0, 1, 500, 6_000, 50_000, 10**9]),
    some([0, 0, 0, 1, 7]),
    some([b"", b"", b"x", b"y", b";\xff"]),
    st.none(),
    st.none(),
)
delays_until_due = some([None, None, None, -5, 0, 1, 400, 20_000])
messages = st.lists(st.tuples(outgoing, delays_until_due), min_size=1, max_size=4)

changes = some([b"", b"", b"new", b";d5;\x00|"])
delays = some([1, 800, 30_000, NEVER])
sides = some([Side.MAIN, Side.MAIN, Side.DEAD])
modes = some(["lock", "lock", "lock", "delete"])
rooms = some([1 << 20, 1 << 20, 1 << 20, 1, 40])

# -- sessions and topics -----------------------------------------------------------------------------------------------

SESSIONS = ("", "a", "b", "ab")
"""Few names, so that messages share sessions. One name is the beginning of another, and one is empty."""

in_sessions = st.builds(
    lambda name, text: encode(Content(text, session_id=name)), some(SESSIONS), some([b"", b"x", b"large" * 3])
)
mixed = st.one_of(*[in_sessions] * 6, payloads)
of_sessions = st.builds(
    Outgoing,
    st.one_of(*[in_sessions] * 12, payloads),
    some([None, None, None, 0, 1, 500, 6_000, 50_000]),
    some([0, 0, 0, 7]),
    some([b"", b"", b"", b"x"]),
    st.none(),
    st.none(),
)
session_messages = st.lists(st.tuples(of_sessions, delays_until_due), min_size=1, max_size=5)
states = some([None, b"", b"s", b"state" * 4])
copies = st.lists(
    st.builds(
        Copy,
        some([0, 0, 1, 2, 2]),
        some([b"", b"", b"red", b";d5;\x00|"]),
        rarely[8],
        some([None, None, None, 0, 1, 500, 40_000]),
    ),
    max_size=5,
)
