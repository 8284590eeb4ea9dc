"""Bugs that are planted in Python code, one at a time, to test that the tests find each of them.

python -m tests.aio.planted [--workers N] [NAME...]

A bug is a text in a module and its replacement. The text is replaced when the module is imported, never on disk.
tests/engine/proof/planted.py does the same for scripts.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

__all__ = ["PLANTED", "ROOT", "Planted", "text_with"]

ROOT = Path(__file__).parents[2]
_MOST_SECONDS = 300


class Planted(NamedTuple):
    """A plausible programming mistake: a text in a module, the text that replaces it, and the test that finds it."""

    name: str
    file: str
    right: str
    wrong: str
    test: str


PLANTED = (
    Planted(
        "any batch counts as the one that was read before",
        file="sbredis/moving/_moves.py",
        right="again = batch == self._batch and self._batch_moves",
        wrong="again = self._batch_moves",
        test="tests/moving/test_moves.py::test_only_a_batch_that_no_destination_was_asked_to_take_is_given_up",
    ),
    Planted(
        "a mover goes on although another one has settled",
        file="sbredis/moving/_moves.py",
        right="self._next = self._after if done else _Next.END",
        wrong="self._next = self._after",
        test="tests/moving/test_moves.py::test_a_settlement_by_another_mover_ends_the_group",
    ),
    Planted(
        "a mover goes on after a lost freeze",
        file="sbredis/moving/_moves.py",
        right='self._settles(Settle(self._batch, "again", names=tuple(names)), then=_Next.END)',
        wrong='self._settles(Settle(self._batch, "again", names=tuple(names)))',
        test="tests/moving/test_moves.py::test_after_a_rollback_the_source_is_read_again",
    ),
    Planted(
        "a batch with another purpose is taken unread",
        file="sbredis/moving/_moves.py",
        right="foreign = foreign or not by_name.keys() >= set(names)",
        wrong="foreign = not by_name.keys() >= set(names)",
        test="tests/moving/test_moves.py::test_a_batch_with_other_messages_or_another_purpose_is_read_before_it_is_taken",
    ),
    Planted(
        "the batch of another mover is counted",
        file="sbredis/moving/_moves.py",
        right="        if not foreign:\n            self.carried.update(names)",
        wrong="        self.carried.update(names)",
        test="tests/moving/test_moves.py::test_each_message_is_counted_by_the_one_mover_that_has_moved_it",
    ),
    Planted(
        "messages that are back are counted",
        file="sbredis/moving/_moves.py",
        right="self.carried -= _names(self._batch_moves) - up - set(settle.names)",
        wrong="pass",
        test="tests/moving/test_moves.py::test_messages_that_are_back_do_not_count",
    ),
    Planted(
        "clients that move the same messages have one name",
        file="sbredis/moving/_chosen.py",
        right="entity.record.path, token_urlsafe(6)).stored()",
        wrong="entity.record.path).stored()",
        test="tests/aio/test_chosen_moves.py::test_clients_that_move_side_by_side_count_each_message_once",
    ),
    Planted(
        "an index beyond the piece is used",
        file="sbredis/moving/_moves.py",
        right="if place.isdigit() and int(place) < len(moves):",
        wrong="if place.isdigit():",
        test="tests/moving/test_moves.py::test_a_piece_without_a_known_guilty_message_is_divided",
    ),
    Planted(
        "a batch is not read again for a new door",
        file="sbredis/moving/_moves.py",
        right='        elif verdict == "door":\n            self.door = detail\n            self._next = _Next.READ',
        wrong='        elif verdict == "door":\n            self.door = detail\n            self._next = _Next.TAKE',
        test="tests/moving/test_moves.py::test_only_a_batch_that_no_destination_was_asked_to_take_is_given_up",
    ),
    Planted(
        "an announcement outlives a failed visit",
        file="sbredis/maintenance/_agenda.py",
        right="            self._due_after_visit.pop(place, None)\n            self._expect(place, clock",
        wrong="            self._expect(place, clock",
        test="tests/maintenance/test_agenda.py::test_an_announcement_during_a_failed_visit_causes_no_further_visit",
    ),
    Planted(
        "the pauses of a slot grow for good",
        file="sbredis/maintenance/_agenda.py",
        right="        self._reads.pop(read.number, None)\n        self._pauses.pop(read.number, None)\n",
        wrong="        self._reads.pop(read.number, None)\n",
        test="tests/maintenance/test_agenda.py::test_a_read_that_succeeds_ends_the_growth_of_the_pauses",
    ),
    Planted(
        "late visits shorten the sleep",
        file="sbredis/maintenance/_agenda.py",
        right="since + patience - now for since in begun.values() if now - since < patience",
        wrong="since + patience - now for since in begun.values()",
        test="tests/maintenance/test_agenda.py::test_late_visits_do_not_shorten_the_sleep",
    ),
    Planted(
        "a failed question of before a change counts",
        file="sbredis/maintenance/_idling.py",
        right="if watched is not None and watched.asking == read.number:\n",
        wrong="if watched is not None:\n",
        test="tests/maintenance/test_idling.py::test_a_failed_question_of_before_a_change_does_not_delay_the_next_one",
    ),
    Planted(
        "the pauses of an entity in use grow",
        file="sbredis/maintenance/_idling.py",
        right="watched.pauses = None\n            self._restart(entity, watched, clock",
        wrong="self._restart(entity, watched, clock",
        test="tests/maintenance/test_idling.py::test_a_use_that_a_removal_finds_ends_the_growth_of_the_pauses",
    ),
    Planted(
        "an entity that is gone is asked",
        file="sbredis/maintenance/_idling.py",
        right="if watched is not None and watched.asking is not None:",
        wrong="if False:",
        test="tests/maintenance/test_idling.py::test_an_entity_that_is_gone_before_its_turn_is_not_asked",
    ),
    Planted(
        "an entity is removed that has changed",
        file="sbredis/maintenance/_idling.py",
        right="if watched is not None and not watched.removing and watched.quiet.issuperset(watched.what.numbers):",
        wrong="if watched is not None:",
        test="tests/maintenance/test_idling.py::test_a_change_before_a_removal_causes_new_questions",
    ),
    Planted(
        "an older call hides a newer claim",
        file="sbredis/bulk/_claims.py",
        right="last = max(reservation.since / 1000, 0.0 if seen is None else seen.timestamp())",
        wrong="last = reservation.since / 1000 if seen is None else seen.timestamp()",
        test="tests/bulk/test_claims.py::test_a_run_is_stale_after_its_last_call_or_after_its_claim",
    ),
    Planted(
        "a reservation does not wait for frozen messages",
        file="sbredis/bulk/_claims.py",
        right="if each.locked or each.delayed or each.frozen}",
        wrong="if each.locked or each.delayed}",
        test="tests/bulk/test_claims.py::test_one_message_that_may_come_back_is_enough_to_wait",
    ),
    Planted(
        "the chunks of an earlier run are not counted",
        file="sbredis/bulk/_chunks.py",
        right="self._chunks, self._ahead = mark.chunk, None",
        wrong="self._ahead = None",
        test="tests/bulk/test_chunks.py::test_chunks_are_counted_on_behind_those_of_an_earlier_run",
    ),
    Planted(
        "messages without a key go to the first partition",
        file="sbredis/moving/_destinations.py",
        right="return entity.numbers[bisect_left(entity.numbers, number) % len(entity.numbers)]",
        wrong="return entity.numbers[0]",
        test="tests/maintenance/test_forwarding.py::test_messages_without_a_key_go_to_the_next_partition_around_the_slots",
    ),
    Planted(
        "a transfer goes to another queue of the name",
        file="sbredis/maintenance/_moving.py",
        right="            if entity.record.id != entity_id:\n                raise",
        wrong="            if False:\n                raise",
        test="tests/maintenance/test_forwarding.py::test_a_transfer_to_a_deleted_queue_does_not_go_to_another_queue_of_its_name",
    ),
    Planted(
        "a take goes to another queue of the name",
        file="sbredis/moving/_carrying.py",
        right="while entity.record.id == destination.entity:",
        wrong="while True:",
        test="tests/maintenance/test_forwarding.py::test_messages_stay_if_their_destination_is_made_again_during_the_move",
    ),
    Planted(
        "a move without an answer counts as done",
        file="sbredis/moving/_carrying.py",
        right="group.lost()",
        wrong="group.moved()",
        test="tests/maintenance/test_forwarding.py::test_a_move_within_a_slot_without_an_answer_keeps_the_order",
    ),
    Planted(
        "sources that exist are forgotten",
        file="sbredis/maintenance/_moving.py",
        right="if await self.shared.census.find(origin.entity) is not None:",
        wrong="if origin.entity is None:",
        test="tests/maintenance/test_forwarding.py::test_a_former_destination_forgets_the_sources_that_are_gone_and_no_others",
    ),
    Planted(
        "a visit is repeated at once in vain",
        file="sbredis/maintenance/_routing.py",
        right="if newer.incarnation != record.incarnation or newer.version <= record.version:",
        wrong="if newer.incarnation != record.incarnation or newer.version < record.version:",
        test="tests/maintenance/test_due_work.py::test_a_partition_with_newer_settings_than_the_registry_is_an_error",
    ),
    Planted(
        "a visit leaves due work",
        file="sbredis/maintenance/_routing.py",
        right="        if awoken.more:\n            return self.clock()\n",
        wrong="",
        test="tests/maintenance/test_due_work.py::test_a_visit_that_leaves_due_work_is_repeated_at_once",
    ),
    Planted(
        "the place of a former queue is kept",
        file="sbredis/maintenance/_routing.py",
        right="            if found.incarnation != record.incarnation:\n                raise\n",
        wrong="",
        test="tests/maintenance/test_due_work.py::test_the_place_of_a_deleted_queue_is_gone_even_if_its_name_has_another_queue",
    ),
    Planted(
        "a partition is not told its settings",
        file="sbredis/maintenance/_routing.py",
        right="perform(connection.transport, partition.configure(now=connection.clock.told()), timeout=_VISITING)",
        wrong="perform(connection.transport, partition.count(call_id), timeout=_VISITING)",
        test="tests/maintenance/test_due_work.py::test_a_partition_with_older_settings_is_told_the_newer_ones",
    ),
    Planted(
        "a message that is set aside needs room again",
        file="sbredis/maintenance/_publishing.py",
        right="if before is None and self._kept and (len(",
        wrong="if self._kept and (len(",
        test="tests/maintenance/test_unpublishable.py::test_a_message_that_is_set_aside_already_needs_no_further_room",
    ),
    Planted(
        "a message is set aside for the same time",
        file="sbredis/maintenance/_publishing.py",
        right="pauses = Pauses(*self._pauses) if before is None else before.pauses",
        wrong="pauses = Pauses(*self._pauses)",
        test="tests/maintenance/test_unpublishable.py::test_a_message_is_set_aside_for_longer_after_each_failure",
    ),
    Planted(
        "a deletion under way is finished by another client",
        file="sbredis/maintenance/_idle.py",
        right="elif at <= now:",
        wrong="else:",
        test="tests/maintenance/test_idle_duty.py::test_a_deletion_is_finished_if_it_lasts_for_long",
    ),
    Planted(
        "a topic that was made again is taken for the former one",
        file="sbredis/maintenance/_publishing.py",
        right="            await entity.refresh(loop.time() + CALLING)\n",
        wrong="            pass\n",
        test="tests/maintenance/test_routing_duty.py::test_a_topic_that_was_made_again_is_visited_in_place_of_the_former_one",
    ),
    Planted(
        "a claim counts from its answer",
        file="sbredis/client/_role.py",
        right="claim.answered(standing, asked, random.random())",
        wrong="claim.answered(standing, self._loop.time(), random.random())",
        test="tests/client/test_keeping.py::test_a_claim_counts_from_the_call_and_not_from_its_answer",
    ),
    Planted(
        "a claim without an answer is kept",
        file="sbredis/client/_claiming.py",
        right="return was.member or self.unanswered",
        wrong="return was.member",
        test="tests/client/test_keeping.py::test_a_claim_whose_answer_was_lost_is_given_up_at_the_end",
    ),
    Planted(
        "a lost role is shown as held",
        file="sbredis/client/_role.py",
        right="        claim.lost()\n",
        wrong="",
        test="tests/client/test_keeping.py::test_a_role_ends_with_its_claim_if_no_renewal_is_answered",
    ),
    Planted(
        "a member that is called does not come",
        file="sbredis/client/_claiming.py",
        right="            self.ask_at, self.called_meanwhile = now, True\n",
        wrong="            pass\n",
        test="tests/client/test_claiming.py::test_a_call_concerns_those_whom_it_names",
    ),
    Planted(
        "a client that is called while it asks does not ask again",
        file="sbredis/client/_claiming.py",
        right="if self.called_meanwhile and not standing.held:",
        wrong="if False:",
        test="tests/client/test_claiming.py::test_a_call_that_comes_before_the_answer_is_not_lost",
    ),
    Planted(
        "a place in a slot that was lost is kept",
        file="sbredis/maintenance/_agenda.py",
        right="                    self._remove(VisitPlace(number, entity))\n",
        wrong="                    pass\n",
        test="tests/maintenance/test_agenda.py::test_an_entity_gains_and_loses_places",
    ),
    Planted(
        "a place that holds up others is visited with them again",
        file="sbredis/maintenance/_agenda.py",
        right="        if alone:\n            self._alone.add(place)\n",
        wrong="",
        test="tests/maintenance/test_agenda.py::test_a_place_that_needs_a_visit_of_its_own_is_left_out_of_the_next_one",
    ),
    Planted(
        "a visit to several places ends with the first one",
        file="sbredis/maintenance/_agenda.py",
        right="        if not self._left[visit]:\n",
        wrong="        if visit in self._visits:\n",
        test="tests/maintenance/test_agenda.py::test_places_of_one_slot_in_which_work_is_due_are_visited_together",
    ),
    Planted(
        "who shares the call of a caller that is cancelled waits for ever",
        file="sbredis/moving/_taking.py",
        right="            place.shares[:0] = shares[1:]  # the others call again\n",
        wrong="",
        test="tests/moving/test_scattered_moves.py::test_a_caller_that_is_cancelled_leaves_the_batches_of_others",
    ),
    Planted(
        "a message that its receiver completes counts as moved",
        file="sbredis/moving/_chosen.py",
        right=" and each.name in carrier.carried",
        wrong="",
        test="tests/aio/test_chosen_moves.py::test_messages_that_a_receiver_gets_do_not_hold_the_others_up",
    ),
    Planted(
        "a letter that is refused counts as moved",
        file="sbredis/moving/_chosen.py",
        right="                left.pop(hold_of(message).name, None)\n",
        wrong="                pass\n",
        test="tests/aio/test_redriving.py::test_messages_that_the_destination_does_not_take_stay_dead_letters",
    ),
    Planted(
        "the last message of a portion is not waited for",
        file="sbredis/moving/_sides.py",
        right="any(own_number(message) <= last for message in page)",
        wrong="any(own_number(message) < last for message in page)",
        test="tests/aio/test_redriving.py::test_a_portion_is_judged_when_its_last_message_is_handled",
    ),
    Planted(
        "messages beyond a short page are missing",
        file="sbredis/moving/_sides.py",
        right="reached = max(there, default=last)",
        wrong="reached = last",
        test="tests/aio/test_redriving.py::test_large_messages_are_found_by_their_numbers",
    ),
    Planted(
        "an entity is opened while messages are pinned",
        file="sbredis/bulk/_reserving.py",
        right="                _require_all(await self._asker.ask_all(record, one, until))\n",
        wrong="                await self._asker.ask_all(record, one, until)\n",
        test="tests/bulk/test_reserving.py::test_an_entity_stays_closed_until_all_its_partitions_are_unpinned",
    ),
    Planted(
        "a claim is left behind",
        file="sbredis/bulk/_reserving.py",
        right="await self._give_up(path, fence)\n            raise\n        return fence",
        wrong="pass\n            raise\n        return fence",
        test="tests/bulk/test_reserving.py::test_a_claim_whose_answer_does_not_come_is_taken_back",
    ),
    Planted(
        "a task has more rows than in an earlier run",
        file="sbredis/bulk/_marks.py",
        right="            refuse_rows(self._key, rows, self._end)\n",
        wrong="            pass\n",
        test="tests/bulk/test_noting.py::test_a_task_that_goes_on_behind_the_rows_of_an_earlier_run_is_refused",
    ),
    Planted(
        "the last rows are not compared",
        file="sbredis/bulk/_writing.py",
        right="            writer.check_end()\n        return WriteSummary",
        wrong="            pass\n        return WriteSummary",
        test="tests/bulk/test_noting.py::test_a_run_that_ends_before_another_one_with_more_rows_is_refused",
    ),
    Planted(
        "a late outcome is settled",
        file="workers/running/_call_states.py",
        right="(_S.LATE, _E.END): _to(_S.LATE, _T.DROP)",
        wrong="(_S.LATE, _E.END): _to(_S.DECIDED, _T.SETTLE)",
        test="tests/workers/test_call_states.py::test_each_answer_follows_from_the_history",
    ),
    Planted(
        "a plain function is cancelled for a lost lock",
        file="workers/running/_call_states.py",
        right="(_S.OPEN, _E.LOSE): _unless(_C.PLAIN, _S.LATE, _S.LATE, _T.CANCEL)",
        wrong="(_S.OPEN, _E.LOSE): _to(_S.LATE, _T.CANCEL)",
        test="tests/workers/test_call_states.py::test_each_answer_follows_from_the_history",
    ),
    Planted(
        "a handler that was cut off completes in any way",
        file="workers/running/_call_states.py",
        right="(_S.CUT_OFF, _E.END): {_C.COMPLETES:",
        wrong="(_S.CUT_OFF, _E.END): {_C.OUTCOME:",
        test="tests/workers/test_call_states.py::test_each_answer_follows_from_the_history",
    ),
    Planted(
        "a message is given back while its function runs",
        file="workers/running/_call_states.py",
        right="    _C.IN_THREAD: CallStep(_S.LEFT, _T.LEAVE),\n",
        wrong="",
        test="tests/workers/test_call_states.py::test_each_answer_follows_from_the_history",
    ),
    Planted(
        "a thread is cut off",
        file="workers/running/_call_states.py",
        right="(_S.OPEN, _E.CUT_OFF): _unless(_C.IN_THREAD, _S.OPEN, _S.CUT_OFF, _T.CANCEL)",
        wrong="(_S.OPEN, _E.CUT_OFF): _to(_S.CUT_OFF, _T.CANCEL)",
        test="tests/workers/test_call_states.py::test_each_answer_follows_from_the_history",
    ),
    Planted(
        "a handler is cut off twice",
        file="workers/running/_call_states.py",
        right="    (_S.LATE, _E.CUT_OFF):",
        wrong="    (_S.CUT_OFF, _E.CUT_OFF): _to(_S.CUT_OFF, _T.CANCEL),\n    (_S.LATE, _E.CUT_OFF):",
        test="tests/workers/test_call_states.py::test_each_answer_follows_from_the_history",
    ),
    Planted(
        "a message that was settled is given back",
        file="workers/running/_call_states.py",
        right="    (_S.UNQUEUED, _E.STOP):",
        wrong="    (_S.SETTLED, _E.STOP): _END_OF_WORK,\n    (_S.UNQUEUED, _E.STOP):",
        test="tests/workers/test_call_states.py::test_each_answer_follows_from_the_history",
    ),
    Planted(
        "a message that was decided is given back",
        file="workers/running/_call_states.py",
        right="    (_S.UNQUEUED, _E.STOP):",
        wrong="    (_S.DECIDED, _E.STOP): _END_OF_WORK,\n    (_S.UNQUEUED, _E.STOP):",
        test="tests/workers/test_call_states.py::test_each_answer_follows_from_the_history",
    ),
    Planted(
        "a refused settlement frees a handler that was cut off",
        file="workers/running/_call_states.py",
        right="(_S.SETTLED_CUT_OFF, _E.REFUSE): _to(_S.CUT_OFF)",
        wrong="(_S.SETTLED_CUT_OFF, _E.REFUSE): _to(_S.OPEN)",
        test="tests/workers/test_call_states.py::test_each_answer_follows_from_the_history",
    ),
    Planted(
        "a settlement outlives its lock",
        file="workers/running/_call_states.py",
        right="    (_S.DECIDED, _E.LOSE): _to(_S.DECIDED_LATE, _T.CANCEL),\n",
        wrong="",
        test="tests/workers/test_call_states.py::test_each_answer_follows_from_the_history",
    ),
    Planted(
        "a function that never began counts as interrupted",
        file="workers/running/_call_states.py",
        right="_to(_S.GIVEN_BACK, _T.GIVE_BACK_UNTRIED)",
        wrong="_to(_S.GIVEN_BACK, _T.GIVE_BACK)",
        test="tests/workers/test_call_states.py::test_each_answer_follows_from_the_history",
    ),
    Planted(
        "a session that breaks gives its message back",
        file="workers/running/_call_states.py",
        right="(_S.OPEN, _E.BREAK): _to(_S.DECIDED, _T.ABANDON)",
        wrong="(_S.OPEN, _E.BREAK): _to(_S.GIVEN_BACK, _T.GIVE_BACK)",
        test="tests/workers/test_call_states.py::test_each_answer_follows_from_the_history",
    ),
    Planted(
        "a handler that ends without an outcome is settled",
        file="workers/running/_call_states.py",
        right="(_S.OPEN, _E.END): {_C.OUTCOME: CallStep(_S.DECIDED, _T.SETTLE), _ALWAYS: CallStep(_S.OPEN)}",
        wrong="(_S.OPEN, _E.END): _to(_S.DECIDED, _T.SETTLE)",
        test="tests/workers/test_call_states.py::test_each_answer_follows_from_the_history",
    ),
    Planted(
        "a call that was left counts as free",
        file="workers/running/_call_states.py",
        right="_LOST: Final = _LEFT | {_S.LATE,",
        wrong="_LOST: Final = frozenset({_S.LEFT}) | {_S.LATE,",
        test="tests/workers/test_call_states.py::test_each_answer_follows_from_the_history",
    ),
    Planted(
        "a function that waits runs after its message was given back",
        file="workers/running/_calls.py",
        right="        self.unqueue()\n        return self._happens(CallEvent.STOP",
        wrong="        return self._happens(CallEvent.STOP",
        test="tests/workers/test_calls.py::test_a_function_that_waits_is_never_called_after_the_work_is_over",
    ),
    Planted(
        "a settlement that was refused for good may be tried again",
        file="workers/running/_calls.py",
        right="            if can_be_settled(error):\n",
        wrong="            if True:\n",
        test="tests/workers/test_calls.py::test_a_settlement_with_an_unknown_outcome_is_not_tried_again",
    ),
    Planted(
        "a batch is late as a whole for one lock",
        file="workers/running/_consuming.py",
        right="if call.handler.settings.batch is not None:\n",
        wrong="if False:\n",
        test="tests/workers/test_settling.py::test_a_batch_that_fails_is_reported_although_one_of_its_locks_was_lost",
    ),
    Planted(
        "the additions of a first try go out with the second",
        file="workers/running/_additions.py",
        right="            del self.sends[mark.sends :]\n",
        wrong="",
        test="tests/workers/test_calls.py::test_additions_after_a_mark_are_forgotten",
    ),
    Planted(
        "a session goes on after a message that comes again",
        file="workers/running/_sessions.py",
        right=" and not call.comes_again\n",
        wrong="\n",
        test="tests/workers/test_sessions.py::test_nothing_overtakes_a_message_that_its_handler_abandons",
    ),
    Planted(
        "a message of a batch without its own loss counts as lost",
        file="workers/running/_calls.py",
        right="return self.state.has_lost_lock or any(each is message for each in self.lost_messages)",
        wrong="return self.lock_lost",
        test="tests/workers/test_calls.py::test_the_loss_of_one_lock_of_a_batch_touches_only_its_message",
    ),
    # Bugs in methods that tools/make_sync has made
    Planted(
        "a thread swaps the reason and the description of a dead letter",
        file="sbredis/sync/_receiver.py",
        right="message,\n            reason,\n            error_description,\n            properties_to_modify",
        wrong="message,\n            error_description,\n            reason,\n            properties_to_modify",
        test="tests/sync/made/test_fundamentals.py::test_a_message_can_be_dead_lettered_with_a_reason",
    ),
    Planted(
        "a peek of a thread begins at the first message",
        file="sbredis/sync/_receiver.py",
        right="            sequence_number=sequence_number,\n            session_id=session_id,\n",
        wrong="            session_id=session_id,\n",
        test="tests/sync/test_passing_on.py::test_a_method_passes_its_arguments_on_and_returns_the_result",
    ),
    Planted(
        "a thread is not told the progress of a purge",
        file="sbredis/sync/_receiver.py",
        right="            session_id=session_id,\n            progress=progress,\n            timeout=timeout,\n",
        wrong="            session_id=session_id,\n            timeout=timeout,\n",
        test="tests/sync/test_passing_on.py::test_a_method_passes_its_arguments_on_and_returns_the_result",
    ),
    Planted(
        "a topic sender of a thread sends to a queue",
        file="sbredis/sync/_client.py",
        right="self._bridge.make(self._aio.get_topic_sender, topic_name",
        wrong="self._bridge.make(self._aio.get_queue_sender, topic_name",
        test="tests/sync/test_passing_on.py::test_a_method_passes_its_arguments_on_and_returns_the_result",
    ),
    Planted(
        "messages of an interrupted thread are not taken back",
        file="sbredis/sync/_receiver.py",
        right="self._bridge.call_undoable(\n            self._take_back, self._aio.receive_messages,",
        wrong="self._bridge.call(\n            self._aio.receive_messages,",
        test="tests/sync/test_threads.py::test_a_message_that_arrives_during_an_interruption_is_returned_to_the_queue",
    ),
    Planted(
        "messages by number of an interrupted thread are not taken back",
        file="sbredis/sync/_receiver.py",
        right="call_undoable(\n            take_back_by_number, self._aio.receive_messages_by_number,",
        wrong="call(\n            self._aio.receive_messages_by_number,",
        test="tests/sync/test_passing_on.py::test_a_method_passes_its_arguments_on_and_returns_the_result",
    ),
    Planted(
        "a thread does not get the numbers of the messages it schedules in a transaction",
        file="sbredis/sync/_transaction.py",
        right="return self._bridge.run(\n            self._aio.schedule_messages,",
        wrong="self._bridge.run(\n            self._aio.schedule_messages,",
        test="tests/sync/test_passing_on.py::test_a_method_passes_its_arguments_on_and_returns_the_result",
    ),
    Planted(
        "a transaction of a thread gets the synchronous session",
        file="sbredis/sync/_transaction.py",
        right="            twin_for(\n                session,",
        wrong="            (lambda given, *_: given)(\n                session,",
        test="tests/sync/test_passing_on.py::test_a_method_passes_its_arguments_on_and_returns_the_result",
    ),
    Planted(
        "a list of a thread has no end",
        file="sbredis/sync/management/_queues.py",
        right="self._aio.list_queues(skip=skip, top=top, timeout=timeout)",
        wrong="self._aio.list_queues(skip=skip, timeout=timeout)",
        test="tests/sync/test_passing_on.py::test_a_method_passes_its_arguments_on_and_returns_the_result",
    ),
    Planted(
        "a thread removes the state of a session that it sets",
        file="sbredis/sync/_session.py",
        right="self._bridge.call(self._aio.set_state, state,",
        wrong="self._bridge.call(self._aio.set_state, None,",
        test="tests/sync/made/test_fundamentals.py::test_a_session_has_a_state",
    ),
    Planted(
        "a thread removes the state of a session that it sets by lock token",
        file="sbredis/sync/_settler.py",
        right="self._bridge.call(self._aio.set_session_state, lock_token, state,",
        wrong="self._bridge.call(self._aio.set_session_state, lock_token, None,",
        test="tests/sync/test_passing_on.py::test_a_method_passes_its_arguments_on_and_returns_the_result",
    ),
    Planted(
        "no call is woken for the jobs that another one leaves",
        file="sbredis/client/_lane.py",
        right="        if self.gathering.futures and self._idle:\n            self._wake()",
        wrong="        if not jobs:\n            self._wake()",
        test="tests/client/test_coalescing.py::test_a_second_call_takes_what_the_first_one_leaves",
    ),
    Planted(
        "the second call of a lane takes ordered jobs too",
        file="sbredis/client/_lane.py",
        right="len(jobs.futures), pipeline is self._pipelines[0]",
        wrong="len(jobs.futures), True",
        test="tests/client/test_lane_machine.py::test_each_caller_gets_the_outcome_of_its_messages",
    ),
    Planted(
        "a job that does not fit goes to the end of the queue",
        file="sbredis/client/_lane.py",
        right="getattr(self, name)[:0] = getattr(jobs, name)",
        wrong="getattr(self, name).extend(getattr(jobs, name))",
        test="tests/client/test_jobs.py::test_jobs_are_taken_and_put_back_in_their_order",
    ),
    Planted(
        "a cancelled job keeps its allowance",
        file="sbredis/client/_lane.py",
        right="self.unanswered(first.split_off([",
        wrong="id(first.split_off([",
        test="tests/client/test_lane_machine.py::test_each_caller_gets_the_outcome_of_its_messages",
    ),
    Planted(
        "each caller of a call takes one number",
        file="sbredis/client/_send_lane.py",
        right="number += sum(widths) if widths else count",
        wrong="number += 1",
        test="tests/client/test_lane_machine.py::test_each_caller_gets_the_outcome_of_its_messages",
    ),
    Planted(
        "each job returns one message to the throttle",
        file="sbredis/client/_send_lane.py",
        right="count = sum([1 if isinstance(what, bytes) else len(what.messages) for what in listed])",
        wrong="count = len(listed)",
        test="tests/client/test_lane_machine.py::test_each_caller_gets_the_outcome_of_its_messages",
    ),
    Planted(
        "a call that is made uses no number",
        file="sbredis/client/_lane.py",
        right="        self._number += 1\n        return request",
        wrong="        return request",
        test="tests/client/test_lane_machine.py::test_each_caller_gets_the_outcome_of_its_messages",
    ),
    Planted(
        "jobs that were moved stay in their call",
        file="sbredis/client/_send_lane.py",
        right="_ = jobs.split_off(moved)\n",
        wrong="_ = moved\n",
        test="tests/client/test_lane_machine.py::test_each_caller_gets_the_outcome_of_its_messages",
    ),
    Planted(
        "a lane stops although jobs wait",
        file="sbredis/client/_lane.py",
        right="if self.gathering.futures and not self._woken:",
        wrong="if len(self.gathering) > 1 and not self._woken:",
        test="tests/client/test_lane_machine.py::test_each_caller_gets_the_outcome_of_its_messages",
    ),
    Planted(
        "a pipeline is woken during its call",
        file="sbredis/client/_lane.py",
        right="self._idle.pop(0), True",
        wrong="self._idle[0], True",
        test="tests/client/test_lane_machine.py::test_each_caller_gets_the_outcome_of_its_messages",
    ),
    Planted(
        "a call whose time was over gets its reply, too",
        file="sbredis/transport/_wire.py",
        right="        call.answered = None\n        call.failed(call, failure)",
        wrong="        call.failed(call, failure)",
        test="tests/transport/test_wire.py::test_a_call_without_a_future_ends_once",
    ),
    Planted(
        "a late caller of a call under way hears that it was never sent",
        file="sbredis/client/_lane.py",
        right="self._late_error(sent=sent)",
        wrong="self._late_error(sent=False)",
        test="tests/client/test_lane_machine.py::test_each_caller_gets_the_outcome_of_its_messages",
    ),
    Planted(
        "a call that may have run counts as not run after the next attempt",
        file="sbredis/client/_delivering.py",
        right="self.maybe_ran = error.outcome is Outcome.UNKNOWN",
        wrong="self.maybe_ran = False",
        test="tests/client/test_lane_machine.py::test_each_caller_gets_the_outcome_of_its_messages",
    ),
    Planted(
        "a failed job keeps its allowance",
        file="sbredis/client/_lane.py",
        right="        self.unanswered(jobs)\n        jobs.clear()\n\n    def fail_displaced",
        wrong="        jobs.clear()\n\n    def fail_displaced",
        test="tests/client/test_lane_machine.py::test_each_caller_gets_the_outcome_of_its_messages",
    ),
    Planted(
        "a pause after a failure has no end",
        file="sbredis/receiving/_asking.py",
        right="AskingState.LATE if asked else AskingState.RESTING, math.inf",
        wrong="AskingState.LATE, math.inf",
        test="tests/receiving/test_asking.py::test_a_source_that_rests_may_be_paused_until_a_time",
    ),
    Planted(
        "a partition counts as awake after a call that has failed",
        file="sbredis/receiving/_credit.py",
        right="            self._latest = None\n        self._restate()\n",
        wrong="            self._latest = None\n",
        test="tests/receiving/test_credit.py::test_what_a_partition_may_still_do_is_known_after_each_event",
    ),
    Planted(
        "a call that declines counts as an answer",
        file="sbredis/receiving/_credit.py",
        right="asks = grant.now or grant.announced or grant.limit > grant.seen.messages",
        wrong="asks = True",
        test="tests/receiving/test_credit.py::test_only_a_reply_to_a_grant_that_asks_says_what_the_partition_has",
    ),
    Planted(
        "a partition is told of callers without getting more credit",
        file="sbredis/receiving/_credit_places.py",
        right="waiting = left  # the partition",
        wrong="pass  # the partition",
        test="tests/receiving/test_credit_places.py::"
        "test_a_partition_need_not_know_of_more_callers_before_it_gets_more_credit",
    ),
    Planted(
        "a topic whose rules were read keeps its record",
        file="sbredis/client/_entity.py",
        right="self.adopt(replace(found), routing)  # a new object: callers",
        wrong="self.adopt(found, routing)  # a new object: callers",
        test="tests/client/test_known_entities.py::"
        "test_clients_that_wait_for_the_rules_of_a_topic_learn_that_others_have_read_them",
    ),
    Planted(
        "a bus does what is due in one partition only",
        file="sbredis/testing/_contents.py",
        right="for number in entity.numbers:",
        wrong="for number in entity.numbers[:1]:",
        test="tests/testing/test_bus.py::test_dead_letters_of_all_partitions_are_forwarded_before_messages_are_listed",
    ),
)


def text_with(bug: Planted) -> str:
    """Return the text of the module of a bug, with the bug."""
    text = (ROOT / bug.file).read_text(encoding="utf-8")
    assert text.count(bug.right) == 1, f"{bug.file} has the text of the bug {bug.name!r} {text.count(bug.right)} times"
    return text.replace(bug.right, bug.wrong)


def _search(bug: Planted) -> tuple[bool, str]:
    """Run the test of a bug in memory. Return whether it has failed, and a line about it."""
    started = time.monotonic()
    only = ("-k", "not server and not cluster")
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-p", "tests.plugins.planted"]
    environment = {**os.environ, "SBREDIS_PLANTED": bug.name}
    try:
        done = subprocess.run(
            [*command, *only, bug.test],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=_MOST_SECONDS,
        )
        found, how = done.returncode == 1, {0: "not found", 1: "found"}.get(done.returncode, done.stdout[-500:])
    except subprocess.TimeoutExpired:
        found, how = False, f"the test did not end within {_MOST_SECONDS} s"
    return found, f"{bug.name:<60} {time.monotonic() - started:5.1f} s  {how}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="the bugs to search for; all by default")
    parser.add_argument("--workers", type=int, default=2, help="the number of processes")
    given = parser.parse_args()
    bugs = [bug for bug in PLANTED if not given.names or bug.name in given.names]
    wrong = 0
    with ThreadPoolExecutor(given.workers) as workers:
        for found, line in workers.map(_search, bugs):
            wrong += not found
            sys.stdout.write(f"{'' if found else 'WRONG: '}{line}\n")
            sys.stdout.flush()
    sys.stdout.write(f"{len(bugs)} searches, {wrong} not as it should be\n")
    return 1 if wrong or not bugs else 0


if __name__ == "__main__":
    sys.exit(main())
