"""Messages in the terms of AMQP, under Azure's names."""

from __future__ import annotations

from sbredis.model import AmqpAnnotatedMessage, AmqpMessageBodyType, AmqpMessageHeader, AmqpMessageProperties

__all__ = ["AmqpAnnotatedMessage", "AmqpMessageBodyType", "AmqpMessageHeader", "AmqpMessageProperties"]
