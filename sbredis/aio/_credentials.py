"""Credentials that a client gets in addition to its connection string."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Protocol, TypeAlias

from sbredis.transport import Target

__all__ = ["Credential", "Provider", "credited"]


class Provider(Protocol):
    """A credential provider of redis-py: an object that the client asks for credentials at every connection."""

    def get_credentials(self) -> tuple[str] | tuple[str, str]:
        """Return a password, or a user and a password."""
        ...


Credential: TypeAlias = Provider | tuple[str | None, str]
"""A credential provider, or a user and a password."""


def credited(target: Target, credential: Credential | None) -> tuple[Target, Any]:
    """Return the target, with the user and password if they are given, and the credential provider if one is given."""
    if credential is None:
        return target, None
    if hasattr(credential, "get_credentials"):
        return target, credential
    given: object = credential  # for callers without type checks
    match given:
        case (str() | None as username, str() as password):
            return replace(target, username=username, password=password), None
        case _:
            raise TypeError(
                "credential must be a tuple of user and password, or a credential provider of redis-py, not "
                f"{type(given).__name__}; Redis cannot check tokens of Azure"
            )
