"""The administration client for code without an event loop: its pages, and its end."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sbredis.management import ServiceBusAdministrationClient


@pytest.fixture
def admin(url: str) -> Iterator[ServiceBusAdministrationClient]:
    with ServiceBusAdministrationClient(url, slot_count=2) as admin:
        yield admin


def test_queues_are_listed_page_by_page(admin: ServiceBusAdministrationClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sbredis.aio.management._calls.PAGE", 5)
    assert list(admin.list_queues()) == []
    names = [f"q{number:03}" for number in range(8)]
    for name in names:
        admin.create_queue(name)
    paged = admin.list_queues()
    assert next(paged).name == "q000"
    assert [queue.name for queue in paged] == names[1:]
    pages = admin.list_queues().by_page()
    assert len(list(next(pages))) == 5
    assert pages.continuation_token is not None
    rest = admin.list_queues().by_page(pages.continuation_token)
    assert [queue.name for page in rest for queue in page] == names[5:]
    assert rest.continuation_token is None
    with pytest.raises(StopIteration):
        rest.next_page()


def test_a_client_can_be_made_with_from_connection_string(url: str) -> None:
    with ServiceBusAdministrationClient.from_connection_string(url, slot_count=1) as admin:
        assert admin.get_namespace_properties().slot_count == 1
        assert repr(admin).endswith(", namespace 'default', open>")
    assert repr(admin).endswith(", closed>")


def test_a_closed_client_cannot_be_used(url: str) -> None:
    unused = ServiceBusAdministrationClient(url)
    unused.close()
    with ServiceBusAdministrationClient(url) as used:
        used.ensure_queue("orders")
        queues = used.list_queues()
    for use in (lambda: unused.get_queue("orders"), lambda: used.get_queue("orders"), lambda: list(queues)):
        with pytest.raises(ValueError, match="closed"):
            use()


def test_an_option_of_azures_library_causes_a_warning_at_the_callers_line() -> None:
    with pytest.warns(UserWarning, match="ignores keywords of Azure's library: retry_total") as seen:
        ServiceBusAdministrationClient("memory://unused", retry_total=3)  # type: ignore[call-arg]
    assert [warning.filename for warning in seen] == [__file__]
