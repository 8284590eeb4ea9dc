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
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from tests.changes import change

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


_BUGS: Mapping[str, Mapping[str, Mapping[str, str]]] = {
    "sbredis/moving/_moves.py": {
        "tests/moving/test_moves.py::test_only_a_batch_that_no_destination_was_asked_to_take_is_given_up": {
            "any batch counts as the one that was read before": "again = «batch == self._batch and →»self._batch_moves",
            "a batch is not read again for a new door": ".door = detail\n            self._next = _Next.«READ→TAKE»",
        },
        "tests/moving/test_moves.py::test_a_settlement_by_another_mover_ends_the_group": {
            "a mover goes on although another one has settled": "self._next = self._after« if done else _Next.END→»",
        },
        "tests/moving/test_moves.py::test_after_a_rollback_the_source_is_read_again": {
            "a mover goes on after a lost freeze": '(self._batch, "again", names=tuple(names))«, then=_Next.END→»',
        },
        "tests/moving/test_moves.py::test_a_batch_with_other_messages_or_another_purpose_is_read_before_it_is_taken": {
            "a batch with another purpose is taken unread": "foreign = «foreign or →»not by_name.keys() >= set(names)",
        },
        "tests/moving/test_moves.py::test_each_message_is_counted_by_the_one_mover_that_has_moved_it": {
            "the batch of another mover is counted": "«if not foreign:\n            →»self.carried.update(names)",
        },
        "tests/moving/test_moves.py::test_messages_that_are_back_do_not_count": {
            "messages that are back are counted": (
                "«self.carried -= _names(self._batch_moves) - up - set(settle.names)→pass»"
            ),
        },
        "tests/moving/test_moves.py::test_a_piece_without_a_known_guilty_message_is_divided": {
            "an index beyond the piece is used": "if place.isdigit()« and int(place) < len(moves)→»:",
        },
    },
    "sbredis/moving/_chosen.py": {
        "tests/aio/test_chosen_moves.py::test_clients_that_move_side_by_side_count_each_message_once": {
            "clients that move the same messages have one name": "entity.record.path«, token_urlsafe(6)→»).stored()",
        },
        "tests/aio/test_chosen_moves.py::test_messages_that_a_receiver_gets_do_not_hold_the_others_up": {
            "a message that its receiver completes counts as moved": "« and each.name in carrier.carried→»",
        },
        "tests/aio/test_redriving.py::test_messages_that_the_destination_does_not_take_stay_dead_letters": {
            "a letter that is refused counts as moved": "«left.pop(hold_of(message).name, None)→pass»\n",
        },
    },
    "sbredis/maintenance/_agenda.py": {
        "tests/maintenance/test_agenda.py::test_an_announcement_during_a_failed_visit_causes_no_further_visit": {
            "an announcement outlives a failed visit": "self.«_due_after_visit.pop(place, None)\n            self.→»",
        },
        "tests/maintenance/test_agenda.py::test_a_read_that_succeeds_ends_the_growth_of_the_pauses": {
            "the pauses of a slot grow for good": ".number, None)\n«        self._pauses.pop(read.number, None)\n→»",
        },
        "tests/maintenance/test_agenda.py::test_late_visits_do_not_shorten_the_sleep": {
            "late visits shorten the sleep": "patience - now for since in begun.values()« if now - since < patience→»",
        },
        "tests/maintenance/test_agenda.py::test_an_entity_gains_and_loses_places": {
            "a place in a slot that was lost is kept": "               «self._remove(VisitPlace(number, entity))→pass»",
        },
        "tests/maintenance/test_agenda.py::test_a_place_that_needs_a_visit_of_its_own_is_left_out_of_the_next_one": {
            "a place that holds up others is visited with them again": (
                "«        if alone:\n            self._alone.add(place)\n→»"
            ),
        },
        "tests/maintenance/test_agenda.py::test_places_of_one_slot_in_which_work_is_due_are_visited_together": {
            "a visit to several places ends with the first one": "if «not self._left[visit]→visit in self._visits»:\n",
        },
    },
    "sbredis/maintenance/_idling.py": {
        "tests/maintenance/test_idling.py::test_a_failed_question_of_before_a_change_does_not_delay_the_next_one": {
            "a failed question of before a change counts": "watched is not None« and watched.asking == read.number→»",
        },
        "tests/maintenance/test_idling.py::test_a_use_that_a_removal_finds_ends_the_growth_of_the_pauses": {
            "the pauses of an entity in use grow": "«watched.pauses = None\n            →»self._restart(entity,",
        },
        "tests/maintenance/test_idling.py::test_an_entity_that_is_gone_before_its_turn_is_not_asked": {
            "an entity that is gone is asked": "if «watched is not None and watched.asking is not None→False»:",
        },
        "tests/maintenance/test_idling.py::test_a_change_before_a_removal_causes_new_questions": {
            "an entity is removed that has changed": (
                "if watched is not None« and not watched.removing and watched.quiet.issuperset(watched.what.numbers)→»:"
            ),
        },
    },
    "sbredis/bulk/_claims.py": {
        "tests/bulk/test_claims.py::test_a_run_is_stale_after_its_last_call_or_after_its_claim": {
            "an older call hides a newer claim": (
                "last = «max(reservation.since / 1000, 0.0 if seen is None else seen.timestamp()→"
                "reservation.since / 1000 if seen is None else seen.timestamp(»)"
            ),
        },
        "tests/bulk/test_claims.py::test_one_message_that_may_come_back_is_enough_to_wait": {
            "a reservation does not wait for frozen messages": "if each.locked or each.delayed« or each.frozen→»}",
        },
    },
    "sbredis/bulk/_chunks.py": {
        "tests/bulk/test_chunks.py::test_chunks_are_counted_on_behind_those_of_an_earlier_run": {
            "the chunks of an earlier run are not counted": "self.«_chunks, self._ahead = mark.chunk,→_ahead =» None",
        },
    },
    "sbredis/moving/_destinations.py": {
        "tests/maintenance/test_forwarding.py::test_messages_without_a_key_go_to_the_next_partition_around_the_slots": {
            "messages without a key go to the first partition": (
                "return entity.numbers[«bisect_left(entity.numbers, number) % len(entity.numbers)→0»]"
            ),
        },
    },
    "sbredis/maintenance/_moving.py": {
        (
            "tests/maintenance/test_forwarding.py::"
            "test_a_transfer_to_a_deleted_queue_does_not_go_to_another_queue_of_its_name"
        ): {
            "a transfer goes to another queue of the name": "if «entity.record.id != entity_id→False»:\n              ",
        },
        (
            "tests/maintenance/test_forwarding.py::"
            "test_a_former_destination_forgets_the_sources_that_are_gone_and_no_others"
        ): {
            "sources that exist are forgotten": (
                "if «await self.shared.census.find(origin.entity) is not→origin.entity is» None:"
            ),
        },
    },
    "sbredis/moving/_carrying.py": {
        "tests/maintenance/test_forwarding.py::test_messages_stay_if_their_destination_is_made_again_during_the_move": {
            "a take goes to another queue of the name": "while «entity.record.id == destination.entity→True»:",
        },
        "tests/maintenance/test_forwarding.py::test_a_move_within_a_slot_without_an_answer_keeps_the_order": {
            "a move without an answer counts as done": "group.«lost→moved»()",
        },
    },
    "sbredis/maintenance/_routing.py": {
        "tests/maintenance/test_due_work.py::test_a_partition_with_newer_settings_than_the_registry_is_an_error": {
            "a visit is repeated at once in vain": "if newer.incarnation != record.incarnation or newer.version <«=→»",
        },
        "tests/maintenance/test_due_work.py::test_a_visit_that_leaves_due_work_is_repeated_at_once": {
            "a visit leaves due work": "«        if awoken.more:\n            return self.clock()\n→»",
        },
        (
            "tests/maintenance/test_due_work.py::"
            "test_the_place_of_a_deleted_queue_is_gone_even_if_its_name_has_another_queue"
        ): {
            "the place of a former queue is kept": (
                "«            if found.incarnation != record.incarnation:\n                raise\n→»"
            ),
        },
        "tests/maintenance/test_due_work.py::test_a_partition_with_older_settings_is_told_the_newer_ones": {
            "a partition is not told its settings": ", partition.«configure(now=connection.clock.told()→count(call_id»",
        },
    },
    "sbredis/maintenance/_publishing.py": {
        "tests/maintenance/test_unpublishable.py::test_a_message_that_is_set_aside_already_needs_no_further_room": {
            "a message that is set aside needs room again": "if «before is None and →»self._kept and (len(",
        },
        "tests/maintenance/test_unpublishable.py::test_a_message_is_set_aside_for_longer_after_each_failure": {
            "a message is set aside for the same time": "Pauses(*self._pauses)« if before is None else before.pauses→»",
        },
        (
            "tests/maintenance/test_routing_duty.py::"
            "test_a_topic_that_was_made_again_is_visited_in_place_of_the_former_one"
        ): {
            "a topic that was made again is taken for the former one": (
                "«await entity.refresh(loop.time() + CALLING)→pass»\n"
            ),
        },
    },
    "sbredis/maintenance/_idle.py": {
        "tests/maintenance/test_idle_duty.py::test_a_deletion_is_finished_if_it_lasts_for_long": {
            "a deletion under way is finished by another client": "«elif at <= now→else»:",
        },
    },
    "sbredis/client/_role.py": {
        "tests/client/test_keeping.py::test_a_claim_counts_from_the_call_and_not_from_its_answer": {
            "a claim counts from its answer": "claim.answered(standing, «asked→self._loop.time()», random.random())",
        },
        "tests/client/test_keeping.py::test_a_role_ends_with_its_claim_if_no_renewal_is_answered": {
            "a lost role is shown as held": "«        claim.lost()\n→»",
        },
    },
    "sbredis/client/_claiming.py": {
        "tests/client/test_keeping.py::test_a_claim_whose_answer_was_lost_is_given_up_at_the_end": {
            "a claim without an answer is kept": "return was.member« or self.unanswered→»",
        },
        "tests/client/test_claiming.py::test_a_call_concerns_those_whom_it_names": {
            "a member that is called does not come": "«self.ask_at, self.called_meanwhile = now, True→pass»\n",
        },
        "tests/client/test_claiming.py::test_a_call_that_comes_before_the_answer_is_not_lost": {
            "a client that is called while it asks does not ask again": (
                "if «self.called_meanwhile and not standing.held→False»:"
            ),
        },
    },
    "sbredis/moving/_taking.py": {
        "tests/moving/test_scattered_moves.py::test_a_caller_that_is_cancelled_leaves_the_batches_of_others": {
            "who shares the call of a caller that is cancelled waits for ever": (
                "«            place.shares[:0] = shares[1:]  # the others call again\n→»"
            ),
        },
    },
    "sbredis/moving/_sides.py": {
        "tests/aio/test_redriving.py::test_a_portion_is_judged_when_its_last_message_is_handled": {
            "the last message of a portion is not waited for": "any(own_number(message) <«=→» last for message in page",
        },
        "tests/aio/test_redriving.py::test_large_messages_are_found_by_their_numbers": {
            "messages beyond a short page are missing": "reached = «max(there, default=last)→last»",
        },
    },
    "sbredis/bulk/_reserving.py": {
        "tests/bulk/test_reserving.py::test_an_entity_stays_closed_until_all_its_partitions_are_unpinned": {
            "an entity is opened while messages are pinned": (
                "«_require_all(await self._asker.ask_all(record, one, until)→"
                "await self._asker.ask_all(record, one, until»)\n"
            ),
        },
        "tests/bulk/test_reserving.py::test_a_claim_whose_answer_does_not_come_is_taken_back": {
            "a claim is left behind": "«await self._give_up(path, fence)→pass»\n            raise\n        return",
        },
    },
    "sbredis/bulk/_marks.py": {
        "tests/bulk/test_noting.py::test_a_task_that_goes_on_behind_the_rows_of_an_earlier_run_is_refused": {
            "a task has more rows than in an earlier run": "«refuse_rows(self._key, rows, self._end)→pass»\n",
        },
    },
    "sbredis/bulk/_writing.py": {
        "tests/bulk/test_noting.py::test_a_run_that_ends_before_another_one_with_more_rows_is_refused": {
            "the last rows are not compared": "«writer.check_end()→pass»\n        return WriteSummary",
        },
    },
    "workers/running/_call_states.py": {
        "tests/workers/test_call_states.py::test_each_answer_follows_from_the_history": {
            "a late outcome is settled": "(_S.LATE, _E.END): _to(_S.«LATE, _T.DROP→DECIDED, _T.SETTLE»)",
            "a plain function is cancelled for a lost lock": "(_S.OPEN, _E.LOSE): «_unless(_C.PLAIN, _S.LATE, →_to(»_S",
            "a handler that was cut off completes in any way": "(_S.CUT_OFF, _E.END): {_C.«COMPLETES→OUTCOME»:",
            "a message is given back while its function runs": "«    _C.IN_THREAD: CallStep(_S.LEFT, _T.LEAVE),\n→»",
            "a thread is cut off": "(_S.OPEN, _E.CUT_OFF): «_unless(_C.IN_THREAD, _S.OPEN, →_to(»_S.CUT_OFF, _T.CANCEL",
            "a handler is cut off twice": (
                "(_S.«→CUT_OFF, _E.CUT_OFF): _to(_S.CUT_OFF, _T.CANCEL),\n    (_S.»LATE, _E.CUT_OFF):"
            ),
            "a message that was settled is given back": (
                "(_S.«→SETTLED, _E.STOP): _END_OF_WORK,\n    (_S.»UNQUEUED, _E.STOP):"
            ),
            "a message that was decided is given back": (
                "(_S.«→DECIDED, _E.STOP): _END_OF_WORK,\n    (_S.»UNQUEUED, _E.STOP):"
            ),
            "a refused settlement frees a handler that was cut off": ", _E.REFUSE): _to(_S.«CUT_OFF→OPEN»",
            "a settlement outlives its lock": "«    (_S.DECIDED, _E.LOSE): _to(_S.DECIDED_LATE, _T.CANCEL),\n→»",
            "a function that never began counts as interrupted": "_to(_S.GIVEN_BACK, _T.«GIVE_BACK_UNTRIED→GIVE_BACK»)",
            "a session that breaks gives its message back": "): _to(_S.«DECIDED, _T.ABANDON→GIVEN_BACK, _T.GIVE_BACK»",
            "a handler that ends without an outcome is settled": (
                "(_S.OPEN, _E.END): «{_C.OUTCOME: CallStep(_S.DECIDED, _T.SETTLE), _ALWAYS: CallStep(_S.OPEN)}→"
                "_to(_S.DECIDED, _T.SETTLE)»"
            ),
            "a call that was left counts as free": "_LOST: Final = «_LEFT→frozenset({_S.LEFT})» | {_S.LATE,",
        },
    },
    "workers/running/_calls.py": {
        "tests/workers/test_calls.py::test_a_function_that_waits_is_never_called_after_the_work_is_over": {
            "a function that waits runs after its message was given back": "«self.unqueue()\n        →»return self.",
        },
        "tests/workers/test_calls.py::test_a_settlement_with_an_unknown_outcome_is_not_tried_again": {
            "a settlement that was refused for good may be tried again": "if «can_be_settled(error)→True»:\n",
        },
        "tests/workers/test_calls.py::test_the_loss_of_one_lock_of_a_batch_touches_only_its_message": {
            "a message of a batch without its own loss counts as lost": (
                "return self.«state.has_lost_lock or any(each is message for each in self.lost_messages)→lock_lost»"
            ),
        },
    },
    "workers/running/_consuming.py": {
        "tests/workers/test_settling.py::test_a_batch_that_fails_is_reported_although_one_of_its_locks_was_lost": {
            "a batch is late as a whole for one lock": "if «call.handler.settings.batch is not None→False»:\n",
        },
    },
    "workers/running/_additions.py": {
        "tests/workers/test_calls.py::test_additions_after_a_mark_are_forgotten": {
            "the additions of a first try go out with the second": "«            del self.sends[mark.sends :]\n→»",
        },
    },
    "workers/running/_sessions.py": {
        "tests/workers/test_sessions.py::test_nothing_overtakes_a_message_that_its_handler_abandons": {
            "a session goes on after a message that comes again": "« and not call.comes_again→»\n",
        },
    },
    "sbredis/sync/_receiver.py": {
        "tests/sync/made/test_fundamentals.py::test_a_message_can_be_dead_lettered_with_a_reason": {
            "a thread swaps the reason and the description of a dead letter": (
                "message,\n            «reason,\n            error_description→"
                "error_description,\n            reason»,\n            properties_to_modify"
            ),
        },
        "tests/sync/test_passing_on.py::test_a_method_passes_its_arguments_on_and_returns_the_result": {
            "a peek of a thread begins at the first message": "«sequence_number=sequence_number,\n            →»",
            "a thread is not told the progress of a purge": (
                "session_id=session_id,\n            «progress=progress,\n            →»timeout=timeout,\n"
            ),
            "messages by number of an interrupted thread are not taken back": (
                "«call_undoable(\n            take_back_by_number,→"
                "call(\n           » self._aio.receive_messages_by_number,"
            ),
        },
        "tests/sync/test_threads.py::test_a_message_that_arrives_during_an_interruption_is_returned_to_the_queue": {
            "messages of an interrupted thread are not taken back": (
                "self._bridge.«call_undoable(\n            self._take_back,→"
                "call(\n           » self._aio.receive_messages,"
            ),
        },
    },
    "sbredis/sync/_client.py": {
        "tests/sync/test_passing_on.py::test_a_method_passes_its_arguments_on_and_returns_the_result": {
            "a topic sender of a thread sends to a queue": "_bridge.make(self._aio.«get_topic_sender→get_queue_sender»",
        },
    },
    "sbredis/sync/_transaction.py": {
        "tests/sync/test_passing_on.py::test_a_method_passes_its_arguments_on_and_returns_the_result": {
            "a thread does not get the numbers of the messages it schedules in a transaction": "«return →»self._bridge",
            "a transaction of a thread gets the synchronous session": "«twin_for→(lambda given, *_: given)»(\n",
        },
    },
    "sbredis/sync/management/_queues.py": {
        "tests/sync/test_passing_on.py::test_a_method_passes_its_arguments_on_and_returns_the_result": {
            "a list of a thread has no end": "self._aio.list_queues(skip=skip, «top=top, →»timeout=timeout)",
        },
    },
    "sbredis/sync/_session.py": {
        "tests/sync/made/test_fundamentals.py::test_a_session_has_a_state": {
            "a thread removes the state of a session that it sets": "._bridge.call(self._aio.set_state, «state→None»",
        },
    },
    "sbredis/sync/_settler.py": {
        "tests/sync/test_passing_on.py::test_a_method_passes_its_arguments_on_and_returns_the_result": {
            "a thread removes the state of a session that it sets by lock token": ", lock_token, «state→None»",
        },
    },
    "sbredis/client/_lane.py": {
        "tests/client/test_coalescing.py::test_a_second_call_takes_what_the_first_one_leaves": {
            "no call is woken for the jobs that another one leaves": "«self.gathering.futures and self._idle→not jobs»",
        },
        "tests/client/test_lane_machine.py::test_each_caller_gets_the_outcome_of_its_messages": {
            "the second call of a lane takes ordered jobs too": "(jobs.futures), «pipeline is self._pipelines[0]→True»",
            "a cancelled job keeps its allowance": "«self.unanswered→id»(first.split_off([",
            "a call that is made uses no number": "«self._number += 1\n        →»return request",
            "a lane stops although jobs wait": "if «self.gathering.futures→len(self.gathering) > 1» and not self.",
            "a pipeline is woken during its call": "self._idle«.pop(0)→[0]», True",
            "a late caller of a call under way hears that it was never sent": "self._late_error(sent=«sent→False»)",
            "a failed job keeps its allowance": "«self.unanswered(jobs)\n        →»jobs.clear()\n\n    def",
        },
        "tests/client/test_jobs.py::test_jobs_are_taken_and_put_back_in_their_order": {
            "a job that does not fit goes to the end of the queue": (
                "getattr(self, name)«[:0] = getattr(jobs, name→.extend(getattr(jobs, name)»)"
            ),
        },
    },
    "sbredis/client/_send_lane.py": {
        "tests/client/test_lane_machine.py::test_each_caller_gets_the_outcome_of_its_messages": {
            "each caller of a call takes one number": "number += «sum(widths) if widths else count→1»",
            "each job returns one message to the throttle": (
                "count = «sum([1 if isinstance(what, bytes) else len(what.messages) for what in listed]→len(listed»)"
            ),
            "jobs that were moved stay in their call": "_ = «jobs.split_off(moved)→moved»\n",
        },
    },
    "sbredis/transport/_wire.py": {
        "tests/transport/test_wire.py::test_a_call_without_a_future_ends_once": {
            "a call whose time was over gets its reply, too": "call.«answered = None\n        call.→»failed(call,",
        },
    },
    "sbredis/client/_delivering.py": {
        "tests/client/test_lane_machine.py::test_each_caller_gets_the_outcome_of_its_messages": {
            "a call that may have run counts as not run after the next attempt": (
                "self.maybe_ran = «error.outcome is Outcome.UNKNOWN→False»"
            ),
        },
    },
    "sbredis/receiving/_asking.py": {
        "tests/receiving/test_asking.py::test_a_source_that_rests_may_be_paused_until_a_time": {
            "a pause after a failure has no end": "AskingState.LATE« if asked else AskingState.RESTING→», math.inf",
        },
    },
    "sbredis/receiving/_credit.py": {
        "tests/receiving/test_credit.py::test_what_a_partition_may_still_do_is_known_after_each_event": {
            "a partition counts as awake after a call that has failed": "._latest = None\n«        self._restate()\n→»",
        },
        "tests/receiving/test_credit.py::test_only_a_reply_to_a_grant_that_asks_says_what_the_partition_has": {
            "a call that declines counts as an answer": (
                "asks = «grant.now or grant.announced or grant.limit > grant.seen.messages→True»"
            ),
        },
    },
    "sbredis/receiving/_credit_places.py": {
        (
            "tests/receiving/test_credit_places.py::"
            "test_a_partition_need_not_know_of_more_callers_before_it_gets_more_credit"
        ): {
            "a partition is told of callers without getting more credit": "«waiting = left→pass»  # the partition",
        },
    },
    "sbredis/client/_entity.py": {
        (
            "tests/client/test_known_entities.py::"
            "test_clients_that_wait_for_the_rules_of_a_topic_learn_that_others_have_read_them"
        ): {
            "a topic whose rules were read keeps its record": "adopt(«replace(found)→found», routing)  # a new object:",
        },
    },
    "sbredis/testing/_contents.py": {
        "tests/testing/test_bus.py::test_dead_letters_of_all_partitions_are_forwarded_before_messages_are_listed": {
            "a bus does what is due in one partition only": "for number in entity.numbers«→[:1]»:",
        },
    },
}
"""The bugs of each file, by the test that finds them and by their names. "«right→wrong»" marks the change."""


PLANTED = tuple(
    Planted(name, file, *change(text), test)
    for file, by_test in _BUGS.items()
    for test, by_name in by_test.items()
    for name, text in by_name.items()
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
