"""The connection string that counts if a program gives none: that of the variable ``SBREDIS_URL``."""

from __future__ import annotations

import os
from typing import Final

from sbredis.exceptions import InvalidConnectionStringError

__all__ = ["URL_VARIABLE", "url_or_default"]

URL_VARIABLE: Final = "SBREDIS_URL"


def url_or_default(given: str | None) -> str:
    """Return the given connection string, or that of the variable if none is given.

    Raises :class:`~sbredis.exceptions.InvalidConnectionStringError` if the variable is not set, or empty.
    """
    if given is not None:
        return given
    if not (named := os.environ.get(URL_VARIABLE)):
        raise InvalidConnectionStringError(
            f"No server is named: give a connection string, or set {URL_VARIABLE}, for example to "
            "redis://localhost:6379."
        )
    return named
