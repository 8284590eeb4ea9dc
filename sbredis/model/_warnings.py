"""Warnings at the caller's line, and keywords that a function does not have.

Azure's library accepts any keyword, and warns of most unknown ones. sbredis does the same, so that code still runs
after its import was changed. A type checker reports an unknown keyword as an error, because it is usually a typo:
functions take ``**kwargs: Unpack[NoOptions]``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict

from sbredis._call_site import warn_caller

__all__ = ["NoOptions", "warn_of_unknown"]


class NoOptions(TypedDict):
    """The type of a function's unknown keywords: it permits none. At run time they give a warning and are ignored."""


def warn_of_unknown(function: str, given: Mapping[str, object]) -> None:
    """Warn of keywords that ``function`` does not have. They are ignored, as in Azure's library."""
    if given:
        warn_caller(f"{function} ignores unknown arguments: {', '.join(sorted(given))}", UserWarning)
