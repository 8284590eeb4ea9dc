"""Credentials that a client is given beside its connection string."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from sbredis.transport import Target

if TYPE_CHECKING:
    from redis.credentials import CredentialProvider

__all__ = ["Credential", "Provider", "credited"]

Provider: TypeAlias = "CredentialProvider"
"""A credential provider of redis-py, which is asked anew for every connection."""
Credential: TypeAlias = "CredentialProvider | tuple[str | None, str]"
"""A credential provider, or a user and a password."""


def credited(target: Target, credential: Credential | None) -> tuple[Target, Provider | None]:
    """Where to connect to with these credentials, and who is asked for them."""
    if credential is None:
        return target, None
    if isinstance(credential, tuple):
        username, password = credential
        return replace(target, username=username, password=password), None
    if not hasattr(credential, "get_credentials"):
        raise TypeError(
            "credential is a tuple of user and password, or a credential provider of redis-py, not "
            f"{type(credential).__name__}; tokens of Azure mean nothing to Redis"
        )
    return target, credential
