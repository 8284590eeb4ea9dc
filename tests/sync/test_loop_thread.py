"""Tests of event loops in threads: calls from outside, and how the loop ends."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable

import pytest

from sbredis._loop_thread import LoopThread, fast_loop

LOOPS = pytest.mark.parametrize("make_loop", [asyncio.new_event_loop, fast_loop])


@LOOPS
def test_a_call_returns_the_result_or_raises_the_error(make_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    thread = LoopThread("test", make_loop)
    thread.start()

    async def ident(fails: bool) -> int | None:
        if fails:
            raise LookupError("no")
        return threading.get_ident()

    assert thread.call(ident(False)) == thread.ident
    with pytest.raises(LookupError, match="no"):
        thread.call(ident(True))
    thread.stop()
    thread.join()


@LOOPS
def test_a_loop_that_is_stopped_cancels_its_tasks_and_is_closed(
    make_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    thread, cancelled, stopping = LoopThread("test", make_loop), threading.Event(), list[bool]()
    thread.start()

    async def wait() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopping.append(thread.stopping)
            cancelled.set()

    async def begin() -> asyncio.Task[None]:
        task = asyncio.create_task(wait())
        await asyncio.sleep(0)
        return task

    task = thread.call(begin())
    assert thread.post(lambda: None)
    thread.stop()
    thread.join()
    assert cancelled.is_set()
    assert stopping == [True]
    assert task.cancelled()
    assert thread.ended.done()
    assert thread.loop.is_closed()
    assert not thread.post(lambda: None)
    thread.stop()  # does nothing


def test_a_loop_ends_after_its_last_function_also_if_that_fails() -> None:
    for fails in (False, True):
        thread, begun = LoopThread("test"), list[int]()

        async def last(begun: list[int] = begun, fails: bool = fails) -> None:
            await asyncio.sleep(0)
            begun.append(threading.get_ident())
            if fails:
                raise asyncio.CancelledError

        thread.stop_after(last)
        thread.start()
        thread.join()
        assert begun == [thread.ident]
        assert thread.loop.is_closed()


def test_a_thread_that_cannot_start_leaves_no_open_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    thread = LoopThread("test")
    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(RuntimeError, match="can't start"):
        thread.start()
    assert thread.loop.is_closed()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_process_knows_that_the_thread_is_not_its_own() -> None:
    thread = LoopThread("test")
    here = thread.in_other_process
    child = os.fork()
    if child == 0:
        os._exit(0 if thread.in_other_process else 1)
    assert (here, os.waitpid(child, 0)[1]) == (False, 0)
    thread.loop.close()
