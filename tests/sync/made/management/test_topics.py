"""Tests of topics for an administrator: creating, finding, changing, listing and deleting them.

A refused call changes nothing.
"""

# Made by tools/make_sync from tests/management/test_topics.py.
# Change one of these two, and run `make sync`; a change in this file is lost.

from __future__ import annotations

import pytest

from sbredis.management import EntityStatus, ServiceBusAdministrationClient, TopicProperties

pytestmark = [pytest.mark.memory("the asynchronous test runs on servers")]


in_memory = pytest.mark.parametrize("target", ["memory"], indirect=True)
Admin = ServiceBusAdministrationClient


def test_a_new_topic_has_azures_defaults(admin: Admin) -> None:
    created = admin.create_topic("Billing/News")
    assert created == TopicProperties("Billing/News")
    assert admin.get_topic("BILLING/news") == created
    assert [topic for topic in admin.list_topics()] == [created]
    assert [each for each in admin.list_subscriptions("billing/news")] == []


# -- listing and deleting ----------------------------------------------------------------------------------------------


@in_memory
def test_a_disabled_topic_is_shown_with_the_status_disabled(admin: Admin) -> None:
    topic = admin.create_topic("t", status=EntityStatus.DISABLED)
    assert topic.status is EntityStatus.DISABLED
    topic.status = EntityStatus.ACTIVE
    admin.update_topic(topic)
    assert (admin.get_topic("t")).status is EntityStatus.ACTIVE
