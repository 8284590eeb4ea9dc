"""The keywords of functions that take them together as ``**``: show each of them, and refuse all others.

Azure's library accepts any keyword. A keyword that it knows, and that has no effect here, gives a warning, so that
code still runs after its import was changed. Any other unknown keyword is usually a typo, and is a :class:`TypeError`.
A type checker reports both as errors: functions take ``**kwargs: Unpack[NoOptions]``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, TypedDict, TypeVar

from sbredis._call_site import warn_caller
from sbredis._nearest import unexpected_keyword

__all__ = [
    "AZURE_ADMINISTRATION",
    "AZURE_CLIENT",
    "AZURE_HANDLER",
    "AZURE_MESSAGE",
    "NoOptions",
    "keywords_of",
    "names_keywords",
    "refuse_unknown",
]

F = TypeVar("F", bound=Callable[..., Any])
_IGNORED = inspect.Parameter("kwargs", inspect.Parameter.VAR_KEYWORD, annotation="Unpack[NoOptions]")


class NoOptions(TypedDict):
    """The type of a function's unknown keywords: it permits none."""


def refuse_unknown(function: Callable[..., object], given: Mapping[str, object], azure: Collection[str]) -> None:
    """Raise a :class:`TypeError` for a keyword that Azure's library does not have either, and warn of all others.

    ``given`` are the keywords that the function does not have.
    """
    for name in given:
        if name not in azure:
            raise unexpected_keyword(function.__name__, name, keywords_of(function))
    if given:
        warn_caller(f"{function.__name__} ignores keywords of Azure's library: {', '.join(sorted(given))}", UserWarning)


def keywords_of(function: Callable[..., object]) -> list[str]:
    """Return the keywords that a function names."""
    by_place = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD
    return [name for name, each in inspect.signature(function).parameters.items() if each.kind not in by_place]


def names_keywords(options: type, defaults: Mapping[str, object] | None = None) -> Callable[[F], F]:
    """Let ``help()`` and :func:`inspect.signature` show the keywords of a function that takes ``**`` of ``options``.

    ``options`` is a ``TypedDict``. Type checkers read the keywords from the annotation; this decorator shows them to
    tools at run time. ``defaults`` is for a function that also takes the keywords of Azure's library, and ignores them
    with a warning. It maps each keyword to its default value.
    """

    def decorate(function: F) -> F:
        signature = inspect.signature(function)
        named = [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=None if defaults is None else defaults[name],
                # as text, like the annotations of all other parameters
                annotation=getattr(kind, "__forward_arg__", kind),
            )
            for name, kind in options.__annotations__.items()
        ]
        own = [each for each in signature.parameters.values() if each.kind is not each.VAR_KEYWORD]
        by_place = [each for each in own if each.kind is not each.KEYWORD_ONLY]
        by_name = [each for each in own if each.kind is each.KEYWORD_ONLY]
        further = [] if defaults is None else [_IGNORED]
        function.__dict__["__signature__"] = signature.replace(parameters=[*by_place, *named, *by_name, *further])
        return function

    return decorate


# -- the keywords that only Azure's library has, as of azure-servicebus 7.15.0 -----------------------------------------

# They have no effect here. The lists include keywords that Azure's library reads without documenting them.


_LINK: Final = frozenset({"auth_timeout", "auto_reconnect", "encoding", "keep_alive", "timeout"})

AZURE_HANDLER: Final = _LINK
"""Of the functions that make senders and receivers. Those of the client are a TypeError there, also in Azure."""

AZURE_CLIENT: Final = _LINK | {
    "connection_verify",
    "custom_endpoint_address",
    "entity_name",
    "http_proxy",
    "logging_enable",
    "socket_timeout",
    "ssl_context",
    "transport_type",
    "try_timeout",
    "uamqp_transport",
    "use_tls",
    "user_agent",
}
"""Of the client."""

AZURE_ADMINISTRATION: Final = frozenset(
    {
        "authentication_policy",
        "auto_request_id",
        "base_user_agent",
        "connection_cert",
        "connection_data_block_size",
        "connection_timeout",
        "connection_verify",
        "credential_scopes",
        "custom_hook_policy",
        "headers",
        "headers_policy",
        "http_logging_policy",
        "logger",
        "logging_body",
        "logging_enable",
        "logging_policy",
        "network_span_namer",
        "permit_redirects",
        "policies",
        "polling_interval",
        "proxies",
        "proxy_policy",
        "raw_request_hook",
        "raw_response_hook",
        "read_timeout",
        "redirect_max",
        "redirect_policy",
        "request_id",
        "response_encoding",
        "retry_backoff_factor",
        "retry_backoff_max",
        "retry_connect",
        "retry_mode",
        "retry_on_status_codes",
        "retry_policy",
        "retry_read",
        "retry_status",
        "retry_total",
        "sdk_moniker",
        "session",
        "session_owner",
        "tracing_attributes",
        "transport",
        "use_env_settings",
        "user_agent",
        "user_agent_overwrite",
        "user_agent_policy",
        "user_agent_use_env",
    }
)
"""Of the administration client: those of the pipeline of azure-core."""

AZURE_MESSAGE: Final = frozenset({"encoding"})
"""Of a message. ``message`` and ``raw_amqp_message`` are not among them: only Azure's library itself gives them, and to
ignore them would lose the message.
"""
