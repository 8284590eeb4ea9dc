"""Tests of queues for an administrator: creating, finding, changing, listing and deleting them.

A refused call changes nothing.
"""

# Made by tools/make_sync from tests/management/test_queues.py.
# Change one of these two, and run `make sync`; a change in this file is lost.

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from sbredis.management import ItemPaged, QueueProperties, ServiceBusAdministrationClient

pytestmark = [pytest.mark.memory("the asynchronous test runs on servers")]


in_memory = pytest.mark.parametrize("target", ["memory"], indirect=True)
Admin = ServiceBusAdministrationClient


# -- changing ----------------------------------------------------------------------------------------------------------


def test_an_update_by_mapping_keeps_the_changes_of_other_clients(admin: Admin) -> None:
    admin.create_queue("q", max_delivery_count=3, user_metadata="x")
    admin.update_queue({"name": "Q", "lock_duration": "PT30S"})
    admin.update_queue({"name": "q"}, user_metadata="y")
    assert admin.get_queue("q") == QueueProperties("q", max_delivery_count=3, lock_duration="PT30S", user_metadata="y")


def test_an_update_accepts_all_properties_of_a_queue_as_a_mapping(admin: Admin) -> None:
    queue = admin.create_queue("q", requires_duplicate_detection=True)
    admin.update_queue({**dict(queue), "lock_duration": "PT30S", "availability_status": "Limited"})
    assert admin.get_queue("q") == QueueProperties("q", requires_duplicate_detection=True, lock_duration="PT30S")


@in_memory
def test_an_entity_of_another_kind_is_not_updated_as_a_queue(admin: Admin) -> None:
    for wrong, error in (("q", TypeError), (None, TypeError), ({}, ValueError), ({"name": 5}, TypeError)):
        with pytest.raises(error):
            admin.update_queue(wrong)  # type: ignore[arg-type]


# -- listing -----------------------------------------------------------------------------------------------------------


LISTS: dict[str, Callable[..., ItemPaged[Any]]] = {
    "queues": Admin.list_queues,
    "queues, counted": Admin.list_queues_runtime_properties,
    "topics": Admin.list_topics,
    "topics, counted": Admin.list_topics_runtime_properties,
    "subscriptions": lambda admin, **part: admin.list_subscriptions("topic0", **part),
    "subscriptions, counted": lambda admin, **part: admin.list_subscriptions_runtime_properties("topic0", **part),
    "rules": lambda admin, **part: admin.list_rules("topic0", "sub0", **part),
    "partitions": lambda admin, **part: admin.list_partitions("wide", **part),
    "reservations": Admin.list_reservations,
    "unreadable entities": Admin.list_unreadable_entities,
}


@pytest.mark.parametrize("listing", LISTS)
@pytest.mark.parametrize(
    ("name", "value", "kind"),
    [
        ("skip", -1, ValueError),
        ("skip", True, TypeError),
        ("skip", 1.5, TypeError),
        ("skip", None, TypeError),
        ("top", 0, ValueError),
        ("top", -5, ValueError),
        ("top", "5", TypeError),
    ],
)
def test_a_part_of_a_list_that_cannot_be_is_refused_at_once(
    admin: Admin, listing: str, name: str, value: object, kind: type[Exception]
) -> None:
    with pytest.raises(kind, match=f"^{name} must be "):
        LISTS[listing](admin, **{name: value})


@in_memory
@pytest.mark.parametrize("listing", [name for name in LISTS if name not in {"reservations", "unreadable entities"}])
def test_skip_and_top_select_a_part_of_a_list(admin: Admin, listing: str) -> None:
    admin.create_queue("wide", enable_partitioning=True)
    for number in range(4):
        admin.create_topic(f"topic{number}")
        admin.create_subscription("topic0", f"sub{number}")
    for number in range(3):
        admin.create_queue(f"queue{number}")
        admin.create_rule("topic0", "sub0", f"rule{number}")
    paged = LISTS[listing]
    whole = [repr(each) for each in paged(admin)]
    assert len(whole) == 4
    for skip, top in itertools.product(range(6), (None, 1, 2, 3, 4, 9)):
        end = None if top is None else skip + top
        assert [repr(each) for each in paged(admin, skip=skip, top=top)] == whole[skip:end]


@in_memory
def test_a_part_of_a_list_has_pages(admin: Admin) -> None:
    """A page after a continuation token goes on in the part, whichever client asks for it."""
    admin.create_topic("topic0")
    admin.create_subscription("topic0", "sub0")
    admin.delete_rule("topic0", "sub0", "$Default")
    names = sorted(f"r{number}" for number in range(250))
    for name in names:
        admin.create_rule("topic0", "sub0", name)
    for skip, top, sizes in (
        (0, None, [100, 100, 50]),
        (20, None, [100, 100, 30]),
        (120, None, [100, 30]),
        (0, 200, [100, 100]),
        (30, 201, [100, 100, 1]),
        (130, 101, [100, 1]),
        (149, 500, [100, 1]),
        (250, None, [0]),
        (1000, 1, [0]),
    ):
        pages = admin.list_rules("topic0", "sub0", skip=skip, top=top).by_page()
        found = [[rule.name for rule in next(pages)]]
        while pages.continuation_token is not None:
            pages = admin.list_rules("topic0", "sub0", skip=skip, top=top).by_page(pages.continuation_token)
            found.append([rule.name for rule in next(pages)])
        assert list(map(len, found)) == sizes
        assert list(itertools.chain(*found)) == names[skip : None if top is None else skip + top]


def test_an_invalid_continuation_token_is_refused(admin: Admin) -> None:
    for token in ("!!", "a b", "a\ud800", "0:a", "-1:a", "x:a", ":a", "1:", "1:a b"):
        for listing in (admin.list_queues(), admin.list_queues_runtime_properties(), admin.list_topics()):
            with pytest.raises(ValueError, match="is not a continuation_token of this list, because it is not a "):
                next(listing.by_page(token))
    with pytest.raises(TypeError, match=r"^continuation_token must be the .* of an earlier page, .*, not int$"):
        admin.list_queues().by_page(5)  # type: ignore[arg-type]
