"""The bodies of messages as Python values: one codec for workers, requests and everything that sends values.

``bytes`` and ``str`` are sent as they are. Every other value is sent as JSON. With its content type, a value that was
encoded decodes to an equal value of the same type, also if the type is a union.
"""

from __future__ import annotations

from sbredis.codec._body import EncodedBody, decode_body, encode_body
from sbredis.codec._types import UnsupportedTypeError, check_type

__all__ = ["EncodedBody", "UnsupportedTypeError", "check_type", "decode_body", "encode_body"]
