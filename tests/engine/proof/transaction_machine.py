"""The machine of transactions for a host: with the rules of a topic that matter to transactions."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.engine.proof.cases import Case
from tests.engine.proof.comparison import How
from tests.engine.proof.draws import some
from tests.engine.proof.seeking import Seeker
from tests.engine.proof.together_rules import TogetherMachine
from tests.engine.proof.transaction_rules import QUEUE
from tests.engine.proof.transaction_scenes import SCENES

__all__ = ["TRANSACTIONS"]

ELSEWHERE = (
    *("abandon", "abandon_for_later", "ask_for_sessions_where_there_are_none", "bury_session"),
    *("call_the_topic_wrongly", "call_wrongly", "cancel", "change_what_is_fixed", "come_and_go", "complete"),
    *("configure", "count", "dead_letter", "defer", "disable_for_a_while", "end_what_is_held"),
    *("give_back_the_first", "give_back_what_lives_shorter_here", "keep_the_state_of_one_without_messages"),
    *("list_sessions", "peek", "publish_to_one_that_is_gone", "purge"),
    *("purge_session", "receive_and_complete", "receive_own_deferred", "renew", "renew_session", "set_state"),
    *("take_all_that_may_be_out", "unblock"),
)
"""Rules of other machines that tell nothing about transactions."""


class DirectedMachine(TogetherMachine):
    """The machine of transactions, which can be directed to cases."""

    def can_bring_about(self, case: Case) -> bool:
        if (case.kind, case.key) in SCENES or case.kind != self.seeks:
            return super().can_bring_about(case)
        return bool(self._places_for(case))

    def bring_about(self, case: Case, data: st.DataObject, how: How) -> None:
        if (case.kind, case.key) not in SCENES:
            self.at = data.draw(some(self._places_for(case)))
        super().bring_about(case, data, how)

    def _places_for(self, case: Case) -> list[int]:
        """Return the partitions whose messages can make a transition."""
        return [at for at in range(1, QUEUE + 1) if Seeker.fits(self.family[at].settings, case.key)]


TRANSACTIONS: type[DirectedMachine] = type("TransactionsAlone", (DirectedMachine,), dict.fromkeys(ELSEWHERE))
"""The machine without the rules of other machines that tell nothing about transactions."""
