"""Bugs of reserved ranges."""

from __future__ import annotations

from tests.engine.proof.bugs import bugs_in

__all__ = ["OF_RESERVED"]

OF_RESERVED = (
    *bugs_in(
        "includes/find_due",
        ("a pinned message expires", "«p.head <= p.now and p.reserved and pinned_up_to(p) + 1 or →»0"),
    ),
    *bugs_in(
        "includes/grow_pin",
        ("the event of a pinned message stays", "«    p.unawaited[#p.unawaited + 1] = due_name('e', names[i])\n→»"),
        ("the whole range is pinned with the first events", "pin.last = «#names < 1000 and pin.upto or last→pin.upto»"),
        (
            "events of delayed messages count as those of expiry",
            "if redis.call('ZCARD', p.due) «== others→<= others + 1» then",
        ),
    ),
    *bugs_in(
        "purge",
        ("a purge takes pinned messages", "«pinned_up_to(p) + →»1"),
        ("a purge leaves a message above the pin", "pinned_up_to(p) + «1→2»"),
    ),
    *bugs_in(
        "includes/take_grant",
        ("a receiver gets messages of a reserved partition", "«or p.reserved and 'RESERVED receive'→»"),
    ),
    *bugs_in(
        "receive_deferred",
        ("a receiver gets messages by number", "elseif «p.reserved and tonumber(members[i])→false» then"),
    ),
    *bugs_in(
        "configure",
        ("a partition is opened while messages are pinned", "«pin.upto > pin.floor or →»committed > 0"),
        ("a partition is opened while committed messages are there", "pin.upto > pin.floor« or committed > 0→»"),
    ),
    *bugs_in(
        "includes/open_pin",
        ("a lower fence is not refused", "if «fence < pin.fence→false» then"),
        ("a higher fence is not stored", "pin.«fence, pin.birth, pin.at = fence,→birth, pin.at =» found[2], p.now"),
    ),
    *bugs_in(
        "plan",
        ("another birth is not noticed", "if «ARGV[8] ~= pin.birth and not begins→false» then"),
        ("a rollback is not noticed", "elseif «plan > pin.plan or committed > pin.upto→false» then"),
        ("an older position is not noticed", "then\n  loss = «'older'→nil»\n"),
        (
            "a plan that is not pinned is committed",
            "or committed < pin.upto «or pin.last < pin.upto →»then",
            "fail_over_to_a_growing_pin",
        ),
        ("a commit does not move the floor", "«  pin.floor = committed\n→»"),
        ("a plan that is not committed is lost", "if «not outstanding and →»rows > 0 then"),
        (
            "a reader that begins skips the plan of its predecessor",
            "«outstanding and pin.plan - 1 or pin.plan, pin.floor→pin.plan, pin.upto»",
        ),
        (
            "committed messages above the pin expire",
            "local catches_up = «loss ~= 'birth' and committed > pin.last→false»",
        ),
        ("a plan is made while committed messages are left", "local removes = «removable > 0→false»"),
    ),
    *bugs_in("includes/choose_end", ("a plan passes a message that may come back", "local away = «first_away(p)→nil»")),
    *bugs_in("includes/end_of_range", ("a plan takes one message too many", "if count <= most «→+ 1 »then")),
    *bugs_in(
        "includes/ready_messages",
        ("a range skips the other levels", "«LEVELS - 1→0» or -1"),
        ("a range is in the order of levels", "if «mixed→false» then"),
    ),
    *bugs_in(
        "includes/remove_committed",
        ("the bytes of removed messages still count", "«        dropped[n], dropped_sizes[n] = name, sizes[i]\n→»"),
        ("a share removes more messages than their records", "first + «tonumber(names[#sizes])→pin.floor»"),
        ("entries of removed messages stay", "«has_entries and read_entries(p, names, room) or →»{}"),
    ),
    *bugs_in(
        "unpin",
        ("an unpinned message never expires", "if «expires ~= NEVER_TEXT→false» then", "release"),
        ("a message is left pinned", "pin.«upto, pin.plan = pin.last,→plan =»", "release"),
        ("an ended plan keeps its number", "pin.last, pin.plan« + 1→»", "release"),
        ("unpinning forgets the committed messages", "local more = «remove_committed(p, pin)→false»", "release"),
    ),
    *bugs_in("read_range", ("a part of a range ends too early", "fit < #names« or beyond > 0→»")),
)
