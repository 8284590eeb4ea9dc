"""The keywords that only Azure's library has, as of azure-servicebus 7.15.0: they have no effect here.

A program that gives one of them still runs after its import was changed, with a warning. The lists include keywords
that Azure's library reads without documenting them.
"""

from __future__ import annotations

from typing import Final

__all__ = ["AZURE_ADMINISTRATION", "AZURE_CLIENT", "AZURE_HANDLER", "AZURE_MESSAGE"]

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
