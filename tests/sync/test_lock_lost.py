"""A thread notices that its session lock is lost; a renewer can be closed although its callback hangs."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest

from sbredis import AutoLockRenewer, ServiceBusClient, ServiceBusMessage
from sbredis.sync import _renewer as renewers


@pytest.mark.slow
def test_a_thread_can_wait_until_a_session_lock_is_lost(client: ServiceBusClient) -> None:
    client.ensure_queue("q", requires_session=True, lock_duration=timedelta(seconds=5))
    with client.get_queue_receiver("q", session_id="ann") as receiver:
        assert receiver.session.wait_lock_lost()
        assert receiver.session.locked is False


@pytest.mark.parametrize("target", ["memory"])
def test_a_callback_that_hangs_does_not_delay_closing_its_renewer(
    client: ServiceBusClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(renewers, "_CLOSING", 0.05)
    monkeypatch.setattr("sbredis.renewing._renewals._CLOSING", 0.05)
    begun, over = threading.Event(), threading.Event()

    def hangs(renewable: Any, error: Exception | None) -> None:
        del renewable, error
        begun.set()
        over.wait(60)

    try:
        with client.get_queue_sender("q", create_if_missing=True) as sender:
            sender.send_messages(ServiceBusMessage("1"))
        renewer = AutoLockRenewer(max_lock_renewal_duration=0.1, on_lock_renew_failure=hangs)
        client.get_queue_receiver("q", auto_lock_renewer=renewer).next()
        assert begun.wait(60)
        renewer.close()
        assert not over.is_set()
        assert "still running" in caplog.text
    finally:
        over.set()
