"""What the tool must know: which modules it makes, the kinds of their members, and what differs.

Everything that is not listed here is derived from the asynchronous API.
"""

from __future__ import annotations

from typing import Final

__all__ = [
    "BY_HAND",
    "COPIED",
    "DIFFERENT",
    "DIRECT",
    "FACADES",
    "FIRST",
    "HOMES",
    "INHERITED",
    "INTERNAL_BASES",
    "KEYWORDS",
    "LAST",
    "LAST_IN_MODULE",
    "MADE",
    "MODULES",
    "PARAGRAPHS",
    "RECORDING",
    "SPECIAL",
    "SUMMARIES",
    "TWINS",
    "TWIN_ATTRIBUTE",
    "TYPES",
    "UNDOABLE",
    "WITHOUT",
    "WORDS",
]

# -- the modules -------------------------------------------------------------------------------------------------------

MADE: Final = (
    "_client",
    "_options",
    "_receiver",
    "_role",
    "_sender",
    "_session",
    "_session_receiver",
    "_settler",
    "_transaction",
    "management/_administration",
    "management/_bulk",
    "management/_partitions",
    "management/_queues",
    "management/_rules",
    "management/_subscriptions",
    "management/_topics",
    "management/_unreadable",
)
"""The modules of ``aio`` from which a module of ``sync`` with the same name is made."""

BY_HAND: Final = {
    "__init__": "it only exports names",
    "_check": "it needs a bridge without a client",
    "_renewer": "its callbacks run in threads",
    "_stream": "the caller's own thread reads the source",
    "management/__init__": "it only exports names",
}
"""Modules that have a counterpart written by hand, and why."""

WITHOUT: Final = {
    "_background_renewer": "the loop of a synchronous client has a thread of its own",
    "_client_options": "both APIs share it",
    "_committing": "it has no public class",
    "_requests": "it has no public class",
    "management/_calls": "it has no public class",
    "management/_parts_of_lists": "it has no public class",
    "shared_sessions": "workers are asynchronous",
}
"""Modules without a counterpart, and why."""

COPIED: Final = {"_options": ("SessionReceiverKeywords", "ReceiverKeywords")}
"""Classes that are copied as they are, because only the types that they name differ."""

# -- the kinds of members ----------------------------------------------------------------------------------------------

UNDOABLE: Final = {
    "ServiceBusReceiver.receive_messages": "self._take_back",
    "ServiceBusReceiver.receive_deferred_messages": "take_back_by_number",
    "ServiceBusReceiver.receive_messages_by_number": "take_back_by_number",
}
"""Coroutine functions whose results are undone if the caller was interrupted, and the functions that undo them."""

RECORDING: Final = {"ServiceBusTransaction"}
"""Classes whose plain functions only record. They run in the loop too: they encode messages and give them ids, as all
sends of the client do there. In the thread of the caller, two sends of one message could use the same id.
"""

DIRECT: Final = {"ServiceBusReceiver.process_span"}
"""Plain functions that the thread of the caller itself calls."""

KEYWORDS: Final = {
    "SenderKeywords": "known_of(self.{name}, options, SENDER)",
    "ReceiverKeywords": "self._passed_on(self.{name}, options)",
    "SessionReceiverKeywords": "self._passed_on(self.{name}, options)",
}
"""Keywords that are checked before they are passed on, so that a warning names the line of the caller."""

FACADES: Final = {
    "ServiceBusReceiver": "receiver_for",
    "ServiceBusRole": "ServiceBusRole",
    "ServiceBusSender": "ServiceBusSender",
    "ServiceBusSettler": "ServiceBusSettler",
    "ServiceBusTransaction": "ServiceBusTransaction",
}
"""The classes of objects that a function makes, and what makes the façade of such an object."""

TWINS: Final = {
    "ServiceBusSender": "A transaction sends with a sbredis.ServiceBusSender, not with a",
    "ServiceBusSession": "A transaction sets the state of a sbredis.ServiceBusSession, not of a",
}
"""The classes of arguments in whose place the twin is passed on, and the error for objects of other classes."""

TWIN_ATTRIBUTE: Final = {"ServiceBusSessionReceiver": "_of_session"}
"""The attribute with the twin, if it is not ``_aio``: the twin of a subclass has a type of its own."""

INHERITED: Final = {"ServiceBusSessionReceiver.__aexit__"}
"""Members that the façade of a subclass inherits, because only the twin differs."""

INTERNAL_BASES: Final = {"Connected", "Calls"}
"""Parent classes that a façade does not have."""

# -- what differs ------------------------------------------------------------------------------------------------------

SPECIAL: Final = {
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "__aiter__": "__iter__",
    "__anext__": "__next__",
}

WORDS: Final = (("``async for ", "``for "), ("``async for``", "``for``"), ("``async with", "``with"))
"""Words of a docstring, and the words that replace them."""

TYPES: Final = (
    (r"AsyncIterable\[Any\] \| Iterable\b", "Iterable"),
    (r"\bAsync(ItemPaged|Generator)\b", r"\1"),
    (r"@asynccontextmanager\b", "@contextmanager"),
    (r"\basync def\b", "def"),
)
"""Patterns in a signature, and what replaces them."""

SUMMARIES: Final = {
    "_options": "The keywords of synchronous receivers: those of asynchronous receivers, with a synchronous renewer.",
}
"""The docstrings of modules that differ."""

PARAGRAPHS: Final = {
    "ServiceBusAdministrationClient": """
        Several threads may use the client at the same time.

        A client may be made before a fork. A client that was already used belongs to the process that used it. After a
        fork, make another client in the new process.
        """,
    "ServiceBusClient": """
        Any number of threads may use the client, its senders and its receivers at the same time.

        All of them share one connection, which a background thread keeps until :meth:`close`. A client, its senders and
        its receivers may be made before a fork: then each process has a connection of its own. A client that was
        already used belongs to the process that used it. After a fork, make another client in the new process.
        """,
    "ServiceBusReceiver": """
        Several threads may use the receiver at the same time. Each message goes to only one of these threads.

        If a thread is interrupted while it receives, no message stays locked for it.
        """,
    "ServiceBusSender": "Several threads may use the sender at the same time.",
    "ServiceBusSession": "Any number of threads may use the session at the same time.",
    "ServiceBusSettler": "Several threads may use the settler at the same time.",
}
"""What the docstring of a class says in addition."""

DIFFERENT: Final = {
    "ServiceBusClient.__init__": """
        internal = internal_options(ServiceBusClient, kwargs, AZURE_CLIENT)
        self._hold(
            aio.ServiceBusClient(
                fully_qualified_namespace,
                credential,
                namespace=namespace,
                slot_count=slot_count,
                retry_total=retry_total,
                retry_backoff_factor=retry_backoff_factor,
                retry_backoff_max=retry_backoff_max,
                retry_mode=retry_mode,
                connect_timeout=connect_timeout,
                maintenance=maintenance,
                **internal,
            )
        )
        """,
    "ServiceBusClient.from_connection_string": "return cls(conn_str, **kwargs)",
    "ServiceBusClient.from_redis": """
        made = cls.__new__(cls)
        made._hold(
            aio.ServiceBusClient.from_redis(
                redis,
                namespace=namespace,
                slot_count=slot_count,
                retry_total=retry_total,
                retry_backoff_factor=retry_backoff_factor,
                retry_backoff_max=retry_backoff_max,
                retry_mode=retry_mode,
                connect_timeout=connect_timeout,
                maintenance=maintenance,
            )
        )
        return made
        """,
    "ServiceBusClient.__aenter__": """
        try:
            self._bridge.call(self._aio.__aenter__)
        except BaseException:
            self.close()  # Python does not call __exit__ if __enter__ fails
            raise
        return self
        """,
    "ServiceBusClient.__repr__": """
        if not hasattr(self, "_bridge"):  # making it has failed
            return "<ServiceBusClient, not made>"
        state = "closed" if self._bridge.closed else "open"
        return f"<ServiceBusClient {connection_of(self._aio).target}, namespace {self.namespace!r}, {state}>"
        """,
    "ServiceBusClient.accept_next_session": """
        refuse_unfit(options)
        given = self._passed_on(self.accept_next_session, options)
        accepted: list[ServiceBusSessionReceiver] = []

        async def accept() -> None:
            receiver = await self._aio.accept_next_session(
                queue_or_topic_name, subscription_name, create_if_missing=create_if_missing, **given
            )
            if receiver is not None:
                accepted.append(ServiceBusSessionReceiver(self._bridge, receiver))

        try:
            self._bridge.call(accept)
        except BaseException:
            for receiver in accepted:
                receiver.close()  # the caller was interrupted at the moment when the receiver was ready
            raise
        return accepted[0] if accepted else None
        """,
    "ServiceBusClient.maintain": """
        block = self._bridge.make(self._aio.maintain)

        async def begin() -> None:
            await block.__aenter__()

        async def end() -> None:
            await block.__aexit__(None, None, None)

        self._bridge.call(begin)
        try:
            yield
        finally:
            self._bridge.finish(end)
        """,
    "ServiceBusClient.close": '''
        """Close all senders and receivers as their ``close`` does. Then end the connection and background thread."""
        self._bridge.close()
        ''',
    "ServiceBusSender.send_stream": '''
        """Send each item of an iterable as a message of its own, as fast as the throttle permits.

        ``for result in sender.send_stream(source)`` gives a :class:`SendResult` for each message in the order of the
        source. ``sender.send_stream(source).count()`` sends all of them and returns their number. At most
        ``max_in_flight`` messages are held, so the source is read no faster than the broker accepts its messages. The
        iterating thread reads the source.

        The first message that fails ends the stream: the iteration raises an error that names the message, after the
        results of all earlier messages. With ``errors="return"`` the stream continues, and the failure is in the result
        of the message. ``timeout`` applies to each message by itself. The iterating thread calls ``progress`` with the
        number of messages that were accepted so far, before the result of each. An error of that function ends the
        stream and is raised.
        """
        return SendStream(
            self._bridge,
            self._aio,
            messages,
            timeout=timeout,
            errors=errors,
            progress=progress,
            window=window_of(self._aio),
        )
        ''',
    "ServiceBusReceiver.session": "return None",
    "ServiceBusReceiver.__aenter__": """
        try:
            self._bridge.call(self._aio.__aenter__)
        except Exception:
            raise  # the asynchronous receiver has closed itself
        except BaseException:
            self.close()  # the receiver may have accepted a session, and Python calls no __exit__ if __enter__ raises
            raise
        return self
        """,
    "ServiceBusReceiver.__anext__": """
        for message in self._bridge.call_undoable(self._take_back, self._next):
            return message
        raise StopIteration
        """,
    "ServiceBusSessionReceiver.session": """
        if self._session is None:
            self._session = session_for(self._bridge, self._of_session.session)
        return self._session
        """,
    "ServiceBusTransaction.__aexit__": """
        if kind is None:
            self._bridge.call(self._aio.__aexit__, None, None, None)
        else:
            # Nothing is committed. If the client is closed, the error of the block must stay the error that is raised.
            self._bridge.finish(partial(self._aio.__aexit__, kind, error, traceback))
        """,
    "ServiceBusAdministrationClient.__init__": """
        internal = internal_options(ServiceBusAdministrationClient, kwargs, AZURE_ADMINISTRATION)
        client = aio.ServiceBusAdministrationClient(
            fully_qualified_namespace,
            credential,
            namespace=namespace,
            slot_count=slot_count,
            timeout=timeout,
            connect_timeout=connect_timeout,
            api_version=api_version,
            **internal,
        )
        super().__init__(Bridge(f"sbredis administration {connection_of(client).target}", client.close), client)
        """,
    "ServiceBusAdministrationClient.from_connection_string": (
        "return cls(conn_str, credential_provider, slot_count=slot_count, timeout=timeout, **kwargs)"
    ),
    "ServiceBusAdministrationClient.__aenter__": "return self  # the first call connects",
    "ServiceBusAdministrationClient.__repr__": """
        if not hasattr(self, "_bridge"):  # making it has failed
            return "<ServiceBusAdministrationClient, not made>"
        state = "closed" if self._bridge.closed else "open"
        target = connection_of(self._aio).target
        return f"<ServiceBusAdministrationClient {target}, namespace {target.namespace!r}, {state}>"
        """,
    "ServiceBusAdministrationClient.close": '''
        """Close the connection, and end the background thread. A closed client cannot be used again."""
        self._bridge.close()
        ''',
}
"""The bodies of members that differ. A text that begins with a docstring replaces the docstring too."""

FIRST: Final = {
    "ServiceBusReceiver": """
        def __init__(self, bridge: Bridge, receiver: aio.ServiceBusReceiver) -> None:
            super().__init__(bridge, receiver)
            # If a caller is interrupted at the moment when messages arrive for it, this function runs in the loop.
            self._take_back = partial(take_back, receiver)
        """,
    "ServiceBusSessionReceiver": """
        def __init__(self, bridge: Bridge, receiver: aio.ServiceBusSessionReceiver) -> None:
            super().__init__(bridge, receiver)
            self._of_session = receiver
            self._session: ServiceBusSession | None = None
        """,
}
"""Members that only the façade has, at the beginning of its class."""

LAST: Final = {
    "ServiceBusClient": '''
        def _hold(self, client: aio.ServiceBusClient) -> None:
            super().__init__(Bridge(f"sbredis client {connection_of(client).target}", client.close), client)

        def _passed_on(
            self, function: Callable[..., object], given: ReceiverKeywords | SessionReceiverKeywords
        ) -> dict[str, Any]:
            """Return the keywords for the asynchronous receiver, with its renewer. Refuse unknown keywords."""
            passed = known_of(function, given, RECEIVER)
            renewer = passed.get("auto_lock_renewer")
            if renewer is not None:
                if not isinstance(renewer, AutoLockRenewer):
                    raise TypeError(
                        f"auto_lock_renewer must be a sbredis.AutoLockRenewer, not a {public_name(renewer)}"
                    )
                passed["auto_lock_renewer"] = renewer_in(renewer, self._bridge)
            return passed
        ''',
    "ServiceBusReceiver": '''
        def next(self) -> ServiceBusReceivedMessage:
            """Return the next message, like an iteration. Raise :class:`StopIteration` after ``max_wait_time``."""
            return self.__next__()

        async def _next(self) -> list[ServiceBusReceivedMessage]:
            """Return the next message of an iteration, in a list that is empty at its end."""
            async for message in self._aio:
                return [message]
            return []
        ''',
}
"""Members that only the façade has, at the end of its class."""

LAST_IN_MODULE: Final = {
    "_session": '''
        # Both sides are weak references. A façade keeps its bridge alive, so the objects of the asynchronous client,
        # which the bridge closes, must not keep the façade alive.
        _facades: weakref.WeakKeyDictionary[aio.ServiceBusSession, weakref.ref[ServiceBusSession]] = (
            weakref.WeakKeyDictionary()
        )
        _lock = threading.Lock()


        def session_for(bridge: Bridge, session: aio.ServiceBusSession) -> ServiceBusSession:
            """Return the façade of a session. All callers get the same object while one of them keeps a reference."""
            with _lock:
                held = _facades.get(session)
                found = None if held is None else held()
                if found is None:
                    found = ServiceBusSession(bridge, session)
                    _facades[session] = weakref.ref(found)
                return found
        ''',
    "_session_receiver": '''
        def receiver_for(bridge: Bridge, receiver: aio.ServiceBusReceiver) -> ServiceBusReceiver:
            """Return the synchronous façade of a receiver."""
            if isinstance(receiver, aio.ServiceBusSessionReceiver):
                return ServiceBusSessionReceiver(bridge, receiver)
            return ServiceBusReceiver(bridge, receiver)
        ''',
}
"""Functions beside the façades of a module."""

HOMES: Final = {
    **dict.fromkeys(("Facade", "twin_for"), "sbredis.sync._facade"),
    **dict.fromkeys(("AutoLockRenewer", "renewer_in"), "sbredis.sync._renewer"),
    **dict.fromkeys(("Callable", "Generator", "Iterator"), "collections.abc"),
    **dict.fromkeys(("public", "public_name"), "sbredis._public"),
    "Bridge": "sbredis.sync._bridge",
    "ItemPaged": "sbredis.sync._paging",
    "SendStream": "sbredis.sync._stream",
    "connection_of": "sbredis.client",
    "contextmanager": "contextlib",
    "partial": "functools",
    "take_back": "sbredis.aio._receiver",
    "take_back_by_number": "sbredis.aio._receiver",
    "window_of": "sbredis.aio._sender",
}
"""The modules of names that the façades need in addition to those of their asynchronous modules."""

MODULES: Final = {"threading", "weakref"}
"""Modules that the texts above use by their names."""
