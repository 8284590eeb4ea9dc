"""The bodies of messages as Python values: one codec for workers, requests and everything that sends values.

``bytes`` and ``str`` are sent as they are. Every other value is sent as JSON. With its content type, a value that was
encoded decodes to an equal value of the same type, also if the type is a union.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sbredis._lazy import lazily

if TYPE_CHECKING:
    from sbredis.codec._body import EncodedBody, decode_body, encode_body
    from sbredis.codec._types import UnsupportedTypeError, check_type

__all__ = ["EncodedBody", "UnsupportedTypeError", "check_type", "decode_body", "encode_body"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "_body": ("EncodedBody", "decode_body", "encode_body"),
            "_types": ("UnsupportedTypeError", "check_type"),
        },
    )
