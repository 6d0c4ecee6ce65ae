"""The sample steps with their expected verdicts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.rehearsal import file_steps as files
from tests.rehearsal import process_steps as processes
from tests.rehearsal import sample_steps as steps
from tests.rehearsal import storage_steps as storage

from spotwright.rehearsal.verdict import Verdict

__all__ = ["SAMPLES", "USER_STEPS", "SampleStep"]


@dataclass(frozen=True)
class SampleStep:
    """A step and its expected verdict; ``writes_ledger``: it writes to a file of the host that its argument names."""

    step: Callable[..., Any]
    verdict: Verdict
    writes_ledger: bool = False
    cause: str = ""  # words of the probable cause; empty: not checked


SAMPLES = {
    sample.step.__name__: sample
    for sample in (
        SampleStep(steps.library, Verdict.RESUMES),
        SampleStep(steps.by_hand, Verdict.RESUMES),
        SampleStep(steps.by_hand_and_reports, Verdict.RESUMES),
        SampleStep(steps.timestamps, Verdict.RESUMES),
        SampleStep(steps.ignores_sigterm, Verdict.RESUMES),
        SampleStep(steps.saves_at_the_notice, Verdict.RESUMES_WITH_NOTICE),
        SampleStep(steps.saves_at_the_notice_and_reports, Verdict.RESUMES_WITH_NOTICE),
        SampleStep(steps.starts_over, Verdict.STARTS_OVER),
        SampleStep(steps.starts_over_and_reports, Verdict.STARTS_OVER),
        SampleStep(steps.wipes, Verdict.STARTS_OVER),
        SampleStep(steps.saves_in_tmp, Verdict.STARTS_OVER, cause="/tmp/training-state"),  # noqa: S108 (what a step does)
        SampleStep(steps.saves_in_home, Verdict.STARTS_OVER, cause=".cache/training-run"),
        SampleStep(steps.saves_elsewhere, Verdict.STARTS_OVER, cause="/opt/training-run"),
        SampleStep(steps.keeps_a_log, Verdict.RESUMES),
        SampleStep(steps.appends_twice, Verdict.UNSAFE, cause="is there twice"),
        SampleStep(steps.appends_twice_elsewhere, Verdict.UNSAFE, writes_ledger=True),
        SampleStep(steps.half_a_file, Verdict.UNSAFE),
        SampleStep(steps.renames_too_early, Verdict.UNSAFE, cause="before it is closed"),
        SampleStep(steps.torn, Verdict.UNSAFE, cause="written in place"),
        SampleStep(steps.torn_slowly, Verdict.UNSAFE, cause="written in place"),
        SampleStep(steps.torn_in_two, Verdict.UNSAFE, cause="belong together"),
        SampleStep(steps.says_done, Verdict.UNSAFE, cause="exit code 0"),
        SampleStep(steps.leaves_half, Verdict.UNSAFE, cause="exit code 0"),
        SampleStep(steps.leaves_half_and_saves, Verdict.UNSAFE),
        SampleStep(steps.forgets_the_seed, Verdict.UNSAFE, cause="not in the save"),
        SampleStep(steps.seeds_again, Verdict.UNSAFE, cause="with random.getstate and setstate"),
        SampleStep(steps.waits_for_a_lock, Verdict.NEVER_FINISHES, cause="lock of the interrupted attempt"),
        SampleStep(steps.restores_for_ever, Verdict.NEVER_FINISHES),
    )
}

_MISSING, _IN_PLACE, _TOGETHER = "not in the save", "written in place", "belong together"
USER_STEPS = {
    sample.step.__name__: sample
    for sample in (
        SampleStep(files.numpy_generator_forgotten, Verdict.UNSAFE, cause=_MISSING),
        SampleStep(files.numpy_generator_saved, Verdict.RESUMES),
        SampleStep(files.shuffles_again, Verdict.UNSAFE, cause=_MISSING),
        SampleStep(files.logs_beside_checkpoint, Verdict.UNSAFE, cause="is there twice"),
        SampleStep(files.dedupes, Verdict.RESUMES),
        SampleStep(files.two_files_agree, Verdict.UNSAFE, cause=_TOGETHER),
        SampleStep(files.two_files_checked, Verdict.RESUMES),
        SampleStep(files.pickle_in_place, Verdict.UNSAFE, cause=_IN_PLACE),
        SampleStep(files.corrupt_means_start, Verdict.UNSAFE, cause=_IN_PLACE),
        SampleStep(files.alternates, Verdict.RESUMES),
        SampleStep(files.saves_in_output_folder, Verdict.STARTS_OVER, cause="the folder of its outputs"),
        SampleStep(files.saves_in_cwd, Verdict.STARTS_OVER, cause="its current folder"),
        SampleStep(files.counts_epochs_wrongly, Verdict.UNSAFE, cause=_MISSING),
        SampleStep(files.best_model_forgotten, Verdict.UNSAFE, cause=_MISSING),
        SampleStep(files.saves_rarely, Verdict.RESUMES),
        SampleStep(files.removes_before_it_writes, Verdict.UNSAFE, cause="removed before the next save is whole"),
        SampleStep(files.syncs_after_rename, Verdict.RESUMES),
        SampleStep(storage.sqlite_in_one_transaction, Verdict.RESUMES),
        SampleStep(storage.sqlite_wal_in_one_transaction, Verdict.RESUMES),
        SampleStep(storage.sqlite_in_two_transactions, Verdict.UNSAFE, cause="transactions that belong together"),
        SampleStep(storage.sqlite_wal_in_two_transactions, Verdict.UNSAFE, cause="transactions that belong together"),
        SampleStep(storage.memory_map_torn, Verdict.UNSAFE, cause="memory map"),
        SampleStep(storage.memory_map_whole, Verdict.RESUMES),
        SampleStep(storage.copies_trees, Verdict.UNSAFE, cause="filled in place"),
        SampleStep(storage.copies_trees_and_renames, Verdict.RESUMES),
        SampleStep(storage.symlink_to_latest, Verdict.UNSAFE, cause="latest is removed before the next save is whole"),
        SampleStep(processes.saves_at_sigterm_by_exception, Verdict.RESUMES_WITH_NOTICE),
        SampleStep(processes.polls_the_notice_file, Verdict.STARTS_OVER),
        SampleStep(processes.polls_the_notice_file_and_ignores_sigterm, Verdict.RESUMES_WITH_NOTICE),
        SampleStep(processes.exits_143_with_half_an_output, Verdict.STARTS_OVER),
        SampleStep(processes.breaks_on_sigterm, Verdict.UNSAFE, cause="exit code 0"),
        SampleStep(processes.returns_at_sigterm_with_its_save, Verdict.UNSAFE, cause="before its work is done"),
        SampleStep(processes.swallows_the_interrupt, Verdict.UNSAFE, cause="exit code 0"),
        SampleStep(processes.subprocess_trainer, Verdict.RESUMES),
        SampleStep(processes.subprocess_trainer_saves_at_sigterm, Verdict.STARTS_OVER),
        SampleStep(processes.background_writer, Verdict.RESUMES),
        SampleStep(processes.background_writer_mutable, Verdict.UNSAFE, cause=_IN_PLACE),
        SampleStep(processes.shards_in_place, Verdict.UNSAFE, cause=_IN_PLACE),
        SampleStep(processes.shards_renamed, Verdict.RESUMES),
        SampleStep(processes.writes_at_exit, Verdict.STARTS_OVER, cause="it saves only at its end"),
        SampleStep(processes.ignores_sigterm_and_saves_nothing, Verdict.STARTS_OVER, cause="SIGTERM is ignored"),
        SampleStep(processes.blocks_sigterm_and_saves_nothing, Verdict.STARTS_OVER, cause="SIGTERM is blocked"),
        SampleStep(processes.handles_sigterm_by_nothing, Verdict.STARTS_OVER, cause="handler of SIGTERM"),
        SampleStep(processes.fails_at_a_lock, Verdict.UNSAFE, cause="train.lock"),
        SampleStep(processes.time_in_its_output, Verdict.STARTS_OVER),
        SampleStep(processes.downloads_to_cache, Verdict.STARTS_OVER, cause=".cache"),
    )
}
"""Steps of the kinds that users have; `make test-long` rehearses them."""
