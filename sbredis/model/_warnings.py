"""Warnings at the line of the caller, and options that no function has.

Azure's library takes any keyword, and warns of most of those that it does not know. sbredis does so too, so that code
whose import was changed still runs. A type checker reports such a keyword as an error, since it is usually a typo:
functions take ``**kwargs: Unpack[NoOptions]``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict

from sbredis._call_site import warn_caller

__all__ = ["NoOptions", "warn_of_unknown"]


class NoOptions(TypedDict):
    """The further keywords of a function: there are none. Others raise a warning and are ignored."""


def warn_of_unknown(function: str, given: Mapping[str, object]) -> None:
    """Warn of options that ``function`` does not have. They are ignored, as in Azure's library."""
    if given:
        warn_caller(f"{function} does not know, and ignores: {', '.join(sorted(given))}", UserWarning)
