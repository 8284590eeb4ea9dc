"""Moving messages from one partition to another: forwarding, transactions elsewhere, and redriving dead letters."""

from sbredis.moving._choosing import Condition, condition_of
from sbredis.moving._redrive_limits import LONGEST_LINE, NO_REASON, fingerprint
from sbredis.moving._redriving import watch_redrives

__all__ = ["LONGEST_LINE", "NO_REASON", "Condition", "condition_of", "fingerprint", "watch_redrives"]
