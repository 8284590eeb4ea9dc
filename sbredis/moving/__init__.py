"""Moving messages from one partition to another: forwarding, transactions elsewhere, and redriving dead letters."""

from sbredis.moving._choosing import Condition, condition_of
from sbredis.moving._redrive_limits import LONGEST_LINE, NO_REASON, fingerprint

__all__ = ["LONGEST_LINE", "NO_REASON", "Condition", "condition_of", "fingerprint"]
