"""Training: from a recipe to a trained model in a run directory, whatever the task.

`train` prepares the run directory and the data; `Trainer.fit` makes the steps of `loop.train`, with validations,
checkpoints and the metrics log around them, and yields an event for each.
"""

import math
import shutil
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict, replace
from tempfile import TemporaryDirectory
from typing import Any

import torch

from dragoman import checkpoints
from dragoman.checkpoints import TrainingProgress
from dragoman.data.arrays import IndexArray, TokenPairs
from dragoman.data.batches import Order, collate
from dragoman.decoding.source import to_source
from dragoman.errors import TrainingStopped, UserError, did_you_mean_path, format_count
from dragoman.malloc import keep_freed_memory
from dragoman.model_config import TransformerConfig
from dragoman.model_files import copy_weights
from dragoman.models.weights import named_weights, running_statistics
from dragoman.parallel import ThreadPool
from dragoman.processes import available_cores
from dragoman.recipe import Recipe
from dragoman.run import Run
from dragoman.storage import write_atomically, write_error_advice
from dragoman.tasks.events import FailureNotices, Notice, OnEvent, ProgressUpdate
from dragoman.tasks.registry import build_model, model_class_for, task_for
from dragoman.tasks.sequence_model import load, select_device
from dragoman.tasks.task import Example
from dragoman.training.card import model_card
from dragoman.training.distributed import SINGLE_PROCESS, World, init_world
from dragoman.training.events import (
    CheckpointSaved,
    ComparedWeights,
    EndReplanned,
    OnTrainingEvent,
    StopRequest,
    TrainingEvent,
    TrainingFinished,
    TrainingPlan,
    ValidationInterrupted,
    ValidationResult,
    ValidationSample,
    ignore_event,
)
from dragoman.training.loop import TensorBatch, TrainingStep, autocast, build_adam, measure_seconds_per_step
from dragoman.training.loop import train as train_loop
from dragoman.training.loss import cross_entropy_objective, joint_objective
from dragoman.training.metrics_log import MetricsLog, draw_curves
from dragoman.training.planner import (
    finishing_seconds,
    finishing_validations,
    replan_last_step,
    take_planned_settings,
)
from dragoman.training.planning import corpus_facts, prepare_and_plan, recorded_recipe
from dragoman.training.prepare import (
    OPEN_ENDED_SCHEDULES,
    PreparedData,
    check_run_directory,
    check_same_origin,
    open_corpora,
    prepare_data,
)
from dragoman.training.schedule import schedule, shorten

MAX_SAMPLES = 6  # validation examples whose outputs are logged each time
MAX_SAMPLE_CHARACTERS = 500  # of each text, so that a line of metrics.jsonl stays small
_DRAW_EVERY_SECONDS = 60.0
_EXTRA_VALIDATION_TOKENS = 5  # more than any target of the training data exceeds its source
_MAX_AVERAGED = 5  # checkpoints, if the recipe does not say how many (section 6.1)
_MEASURED_STEPS, _MEASURED_SECONDS = 6, 1.0  # at least, of which the speed is measured for a plan
_MIN_TIMED_STEPS, _TIMED_SHARE = 5, 20  # the mean duration of a twentieth of the steps is compared with the plan
_MIN_REPLAN_SHARE = 0.25  # of the steps or of the time, before the end may be planned again
_GRACE_SHARE = 0.1  # of the minutes, that a training whose end was planned again may exceed them


def train(
    recipe: Recipe,
    *,
    resume: bool = False,
    overwrite: bool = False,
    on_event: OnTrainingEvent = ignore_event,
    stop: StopRequest | None = None,
    started_at: float | None = None,
    limit_steps_only: bool = False,
) -> Run:
    """Train a model as the recipe says, and return its run.

    Settings that the recipe leaves open are planned from the data and the recipe's minutes or steps. `on_event` is
    called with every event (see `dragoman.training.events`). A run that is already there is neither resumed nor
    replaced unless `resume` or `overwrite` says so. The minutes count from `started_at`, a value of `time.monotonic()`,
    by default now; with `limit_steps_only` they are the time of the training steps alone, as comparisons need.
    """
    started_at = time.monotonic() if started_at is None else started_at
    run, world = Run(recipe.run), init_world()
    corpus, valid = open_corpora(recipe)
    select_device(recipe.training.device)  # raises before anything is written
    if world.is_main_process:
        recipe = check_run_directory(run, recipe, resume, overwrite)
        if resume and not run.exists:
            hint = did_you_mean_path(run.folder)
            on_event(Notice(f"{run} has no checkpoint to resume: training starts at step 1.{hint}", serious=True))
    else:
        on_event = ignore_event  # only the main process reports
    with run.lock() if world.is_main_process else nullcontext():
        with world.main_process_first():
            if world.is_main_process:
                if not (resume and run.exists):
                    run.erase()
                run.remove_temporary_files()
                checkpoints.clean_up_interrupted_saves(run.checkpoints_dir)
                recipe, data = prepare_and_plan(run, recipe, corpus, valid, Trainer, started_at, on_event, world)
            else:
                recipe = take_planned_settings(recipe, run.read_recipe())
                data = prepare_data(run, recipe, corpus, valid, on_event)
        trainer = Trainer(
            run, recipe, data, world=world, stop=stop, on_progress=on_event, started_at=started_at,
            limit_steps_only=limit_steps_only,
        )  # fmt: skip
        for event in trainer.fit():
            on_event(event)
    return run


def plan(recipe: Recipe, *, on_event: OnTrainingEvent = ignore_event, started_at: float | None = None) -> Recipe:
    """Return the complete recipe of the training that `train` would start, without training.

    The speed of this machine is measured, so the number of steps for a time limit varies a little. The event
    `RecipePlanned` has a summary of the plan.
    """
    started_at = time.monotonic() if started_at is None else started_at
    corpus, valid = open_corpora(recipe)
    with TemporaryDirectory(prefix="dragoman-plan-") as folder:
        run = Run(folder)
        planned, _ = prepare_and_plan(run, recipe, corpus, valid, Trainer, started_at, on_event)
    return recorded_recipe(planned)


class Trainer:
    """One training of one model into one run."""

    def __init__(
        self,
        run: Run,
        recipe: Recipe,
        data: PreparedData,
        *,
        world: World = SINGLE_PROCESS,
        stop: StopRequest | None = None,
        on_progress: OnEvent = ignore_event,
        started_at: float | None = None,
        limit_steps_only: bool = False,
    ) -> None:
        self.run, self.recipe, self.data, self.world = run, recipe, data, world
        self.config = config = recipe.training
        self.stop = stop or StopRequest()
        self.on_progress = on_progress  # receives what happens inside a call, such as the final evaluation
        self.task = task_for(recipe)
        self.device = select_device(config.device)
        threads = config.threads or available_cores()
        torch.set_num_threads(threads)
        torch.manual_seed(config.seed)
        self.model = build_model(recipe, data.source_tokenizer, data.target_tokenizer).to(self.device)
        # Threads that work on shards of one batch would update the same running statistics, in any order.
        single = self.device.type != "cpu" or bool(running_statistics(self.model))
        self.pool = ThreadPool(1 if single else threads)
        self.optimizer = build_adam(self.model, config)
        ctc_weight = recipe.model.ctc_weight if isinstance(recipe.model, TransformerConfig) else 0.0
        self.objective = joint_objective(config.label_smoothing, ctc_weight)
        pairs = data.train_pairs
        self.order = Order(
            pairs.costs, config.batch_tokens, config.accumulate, config.seed, tie_break=pairs.target_lengths
        )
        self.longest_source = int(pairs.source_lengths.max())
        self.sequence_model = model_class_for(recipe)(
            self._validation_recipe(), self.model, data.source_tokenizer, data.target_tokenizer, self.device,
            max_length=self.longest_source, paragraph_share=data.paragraph_share,
        )  # fmt: skip
        self.progress = TrainingProgress()
        self.metrics_log: MetricsLog | None = None
        self.failures = FailureNotices(on_progress)
        self._last_saved_step = 0
        self._curves_drawn_at = time.monotonic()
        self._started_at = self._curves_drawn_at if started_at is None else started_at
        self.limit_steps_only = limit_steps_only
        self._elapsed_before = 0.0  # seconds of the commands before a resumption
        self._time_limit = math.inf  # seconds until the last step
        self._step_seconds = deque[float](maxlen=max(_MIN_TIMED_STEPS, config.steps // _TIMED_SHARE))
        self._validation_seconds = 0.0  # of this process
        self._validations = 0

    def _validation_recipe(self) -> Recipe:
        """Return the recipe with outputs limited to the lengths in the data: a new model often finds no end."""
        pairs, decoding = self.data.train_pairs, self.recipe.decoding
        longest = int((pairs.target_lengths - pairs.source_lengths).max()) + _EXTRA_VALIDATION_TOKENS
        limit = min(decoding.extra_length, max(_EXTRA_VALIDATION_TOKENS, longest))
        return self.recipe.model_copy(update={"decoding": decoding.model_copy(update={"extra_length": limit})})

    def fit(self) -> Iterator[TrainingEvent]:
        """Train to the last step, or until patience or time run out, and write the model; yield every event."""
        keep_freed_memory()
        yield from self._restore_newest_checkpoint()
        self._check_disk_space()
        if self.world.size > self.config.accumulate:
            yield Notice(
                f"There are {self.world.size} processes but training.accumulate is {self.config.accumulate}, so some "
                f"processes are idle. Set training.accumulate to a multiple of {self.world.size}.",
                serious=True,
            )
        if self.config.warmup > self.last_step:
            yield Notice(
                f"The learning rate will not reach its peak: training.warmup is {self.config.warmup:,}, but training "
                f"ends at step {self.last_step:,}. Set a shorter warm-up, such as --set training.warmup="
                f"{max(1, self.last_step // 10)}.",
                serious=True,
            )
        yield self._training_plan(self.progress.step)
        yield from self._train_and_save()
        if self.world.is_main_process:
            try:
                yield self._finish()
            except (KeyboardInterrupt, ValidationInterrupted):
                raise TrainingStopped("Stopped before the model was scored; everything is saved.") from None

    # Before the first step

    def _restore_newest_checkpoint(self) -> Iterator[Notice]:
        origin = {"recipe": self.recipe.to_toml(), **self.data.origin}
        path, damaged = checkpoints.newest_checkpoint(self.run.checkpoints_dir)
        remedy = f"using {path} instead" if path else "starting from the beginning"
        for damage in damaged:
            yield Notice(f"{damage}; {remedy}.", serious=True)
        fingerprint = self.data.train_pairs.fingerprint
        progress = TrainingProgress(data=fingerprint)
        if path is not None:
            check_same_origin(self.run, checkpoints.read_progress(path), self.recipe, origin)
            progress = checkpoints.load_checkpoint(path, self.model, self.optimizer)
            self._elapsed_before = progress.elapsed or progress.seconds  # checkpoints of 0.2.0 have no elapsed time
        if progress.data != fingerprint:
            raise UserError(
                f"{self.run}: the training text differs from the one that this run started with, so the run cannot be "
                "resumed. Restore the text, or train into another directory with --run."
            )
        self.progress = replace(
            progress, longest=self.longest_source, paragraph_share=self.data.paragraph_share, origin=origin
        )

    def _check_disk_space(self) -> None:
        size = checkpoints.checkpoint_bytes(self.model)
        existing = len(checkpoints.checkpoint_dirs(self.run.checkpoints_dir))
        needed = max(1, self.config.keep + 1 - existing) * size
        free = shutil.disk_usage(self.run.folder).free
        if free < needed:
            raise UserError(
                f"{self.run}: the checkpoints of this run need {needed / 1e6:,.0f} MB "
                f"({size / 1e6:,.0f} MB each), but only {free / 1e6:,.0f} MB are free. Free some space, or lower "
                "training.keep."
            )

    @property
    def last_step(self) -> int:
        """The step that training ends with, if not earlier."""
        return self.progress.last_step or self.config.steps

    def tokens_per_second(self) -> float:
        """Measure the speed of training in tokens of the longer side of a pair, by making some updates.

        Other work on the machine only makes an update slower, so this is the upper quartile of their speeds.
        """
        costs, speeds, seconds = self.data.train_pairs.costs, list[float](), 0.0
        started_at = time.perf_counter()
        for step in self.steps():
            duration = time.perf_counter() - started_at
            tokens = sum(int(costs[indices].sum()) for indices in self.order.update(step.number - 1))
            speeds.append(tokens / duration)
            seconds += duration
            if len(speeds) > _MEASURED_STEPS and seconds > _MEASURED_SECONDS:
                break
            started_at = time.perf_counter()
        measured = sorted(speeds[1:] or speeds)  # the first one is a warm-up
        return measured[3 * len(measured) // 4]

    def seconds_per_step(self) -> float:
        """Measure how long an update takes on this machine."""
        return measure_seconds_per_step(self.model, self.objective, self.batches_of_step, self.config, pool=self.pool)

    def _training_plan(self, steps_done: int) -> TrainingPlan:
        config, data = self.config, self.data
        seconds_per_step = self.seconds_per_step() if steps_done < self.last_step else 0.0
        if config.minutes and steps_done < self.last_step:
            # All processes must agree on the time limit.
            seconds_per_step = self.world.all_reduce_sum(seconds_per_step) / self.world.size
            speed = float(data.train_pairs.costs.sum()) / self.order.updates_per_epoch / max(seconds_per_step, 1e-9)
            finishing = finishing_seconds(self.recipe, corpus_facts(self.recipe, data), speed)
            self._time_limit = 60 * config.minutes - (0.0 if self.limit_steps_only else finishing)
        elapsed = self.progress.seconds if self.limit_steps_only else self._elapsed()
        seconds_left = max(0.0, self._time_limit - elapsed)
        return TrainingPlan(
            run=self.run,
            pairs=len(data.train_pairs) // data.train_pairs.repeats,
            valid_pairs=len(data.validation.pairs),
            unit=self.task.unit,
            vocabulary_sizes=(len(data.source_tokenizer), len(data.target_tokenizer)),
            parameters=sum(parameter.numel() for parameter in self.model.parameters()),
            steps=self.last_step,
            steps_done=steps_done,
            steps_per_epoch=max(1, self.order.updates_per_epoch // data.train_pairs.repeats),
            seconds_per_step=seconds_per_step,
            seconds_left=seconds_left,
            ends_by_time=self._is_open_ended and seconds_left < (self.last_step - steps_done) * seconds_per_step,
            device=str(self.device),
            threads=torch.get_num_threads(),
        )

    # The steps

    def steps(self) -> Iterator[TrainingStep]:
        """Make the updates that are left, without validations, checkpoints or a log."""
        return train_loop(
            self.model, self.optimizer, self.objective, self.batches_of_step, self.config, self.learning_rate,
            steps_done=self.progress.step, skipped=self.progress.skipped, world=self.world, pool=self.pool,
        )  # fmt: skip

    def learning_rate(self, step: int) -> float:
        """Return the learning rate of a step."""
        rate = schedule(self.config, self.recipe.model.width)
        if self.progress.replanned_at:
            rate = shorten(rate, self.progress.replanned_at, self.progress.last_step)
        return rate(step)

    def batches_of_step(self, step: int) -> list[TensorBatch]:
        """Return the micro-batches of a step (counted from 1) that this process works on."""
        update = list(enumerate(self.order.update(step - 1)))[self.world.rank :: self.world.size]
        pairs = self.data.train_pairs
        return [self.tensor_batch(pairs, indices, seed=(self.config.seed, step, index)) for index, indices in update]

    def tensor_batch(self, pairs: TokenPairs, indices: IndexArray, *, seed: Sequence[int] | None = None) -> TensorBatch:
        """Return pairs as a batch of tensors on the device; signals are varied at random if there is a seed."""
        batch = collate(pairs, indices, seed=seed)
        prefix, target = (torch.from_numpy(array).to(self.device) for array in (batch.prefix, batch.target))
        source = to_source(batch.source, batch.source_lengths, self.device)
        return TensorBatch(source, prefix, target, batch.tokens, pairs.line_numbers[batch.indices].tolist())

    def _train_and_save(self) -> Iterator[TrainingEvent]:
        self._last_saved_step = self.progress.step
        self.metrics_log = MetricsLog(self.run, self.progress, self.failures) if self.world.is_main_process else None
        self.stop.deferred = True
        try:
            yield from self._repeat_interrupted_validation()
            if not self._is_last_step():
                yield from self._run_steps()
        finally:
            self.stop.deferred = False
            if self.metrics_log:
                self.metrics_log.close()

    def _repeat_interrupted_validation(self) -> Iterator[TrainingEvent]:
        if self.progress.step and self._is_validation_due() and self.progress.validated_at != self.progress.step:
            yield from self._run_validation()
            yield from self._save_checkpoint()
            self._raise_if_stopped()

    def _run_steps(self) -> Iterator[TrainingEvent]:
        started_at = time.perf_counter()
        for step in self.steps():
            now = time.perf_counter()
            self._log_step(step, now - started_at)
            started_at = now
            yield step
            yield from self._replan_end()
            if step.skipped:
                yield self._log_skipped_step(step)
            if self._is_validation_due():
                yield from self._run_validation()
            stopping = self._is_stop_requested()  # first: every process must take part in the sum
            if stopping or self._is_checkpoint_due():
                yield from self._save_checkpoint()
            self._raise_if_stopped()
            if self._ends_early():
                yield Notice(f"{self._early_end_reason()}: training ends early.")
                return
            if self.progress.step == self.last_step:
                return
            if self.progress.validated_at == step.number:
                started_at = time.perf_counter()  # a validation is not training time

    def _log_step(self, step: TrainingStep, seconds: float) -> None:
        elapsed = self.progress.seconds + seconds if self.limit_steps_only else self._elapsed()
        if self.config.minutes:  # all processes must agree on the time that is left
            seconds = self.world.all_reduce_sum(seconds) / self.world.size
            elapsed = self.world.all_reduce_sum(elapsed) / self.world.size
        self._step_seconds.append(seconds)
        self.progress = replace(
            self.progress,
            step=step.number,
            skipped=step.skipped,
            skipped_ever=self.progress.skipped_ever + bool(step.skipped),
            seconds=self.progress.seconds + seconds,
            elapsed=elapsed,
        )
        if self.metrics_log:
            self.metrics_log.write(
                "train", step.number, loss=step.loss, nll=step.nll, gradient_norm=step.gradient_norm,
                rate=step.learning_rate, tokens=step.tokens, skipped=step.skipped,
                tokens_per_second=round(step.tokens / seconds), seconds=round(self.progress.seconds, 2),
            )  # fmt: skip

    def _elapsed(self) -> float:
        """Return the seconds since the start of the command, and of the commands that this one resumes."""
        return self._elapsed_before + time.monotonic() - self._started_at

    def _replan_end(self) -> Iterator[EndReplanned]:
        """Plan an earlier last step, once, if a schedule that ends at the last step would exceed the time limit."""
        step, elapsed = self.progress.step, self.progress.elapsed
        is_late = step >= _MIN_REPLAN_SHARE * self.config.steps or elapsed >= _MIN_REPLAN_SHARE * self._time_limit
        if (
            self.progress.replanned_at
            or self._is_open_ended
            or not is_late
            or len(self._step_seconds) < _MIN_TIMED_STEPS
        ):
            return
        seconds_per_step = sum(self._step_seconds) / len(self._step_seconds)
        if self._validations:
            seconds_per_step += self._validation_seconds / self._validations / self.config.validate_every
        last_step = replan_last_step(step, self.last_step, elapsed, seconds_per_step, self._time_limit)
        if last_step is not None:
            self.progress = replace(self.progress, replanned_at=step, last_step=last_step)
            if self.metrics_log:
                self.metrics_log.write("replan", step, last_step=last_step)
            yield EndReplanned(step, last_step)

    def _time_validation(self, seconds: float) -> None:
        """Estimate the time that is needed after the last step from that of the validations so far."""
        if not self.config.minutes or self.limit_steps_only:
            return
        self._validation_seconds += self.world.all_reduce_sum(seconds) / self.world.size
        self._validations += 1
        finishing = finishing_validations(self.recipe, corpus_facts(self.recipe, self.data))
        self._time_limit = 60 * self.config.minutes - finishing * self._validation_seconds / self._validations

    def _log_skipped_step(self, step: TrainingStep) -> Notice:
        if self.metrics_log:
            self.metrics_log.write_skipped(step.number, step.loss, step.line_numbers)
        return Notice(
            f"Step {step.number} was skipped: its loss is {step.loss} and its gradient norm is {step.gradient_norm}. "
            f"The line numbers of its {format_count(len(step.line_numbers), self.task.unit)} are in "
            f"{self.run.skipped_file}.",
            serious=True,
        )

    # Validation

    def _is_validation_due(self) -> bool:
        step = self.progress.step
        return step % self.config.validate_every == 0 or step == self.last_step or self._is_out_of_time()

    def _run_validation(self) -> Iterator[TrainingEvent]:
        # An interrupted validation is saved as not done, and repeated on resuming.
        step, started_at = self.progress.step, time.monotonic()
        try:
            result = self.validate(step, self.config.validation_sample)
        except ValidationInterrupted:
            return
        self._time_validation(time.monotonic() - started_at)
        best_loss, loss = self.progress.best_loss, result.loss if math.isfinite(result.loss) else None
        is_best = best_loss is None or result.loss < best_loss
        has_best_score = self._is_best_score(result.score)
        self.progress = replace(
            self.progress,
            validated_at=step,
            loss=loss,
            best_step=step if is_best else self.progress.best_step,
            best_loss=loss if is_best and loss is not None else best_loss,
            best_score=result.score if has_best_score else self.progress.best_score,
            stale=0 if is_best or has_best_score else self.progress.stale + 1,
        )
        if self.metrics_log:
            self.metrics_log.write(
                "validation", step, loss=result.loss, perplexity=result.perplexity, score=result.score,
                measure=result.measure, samples=[asdict(sample) for sample in result.samples],
                seconds=round(self.progress.seconds, 2),
            )  # fmt: skip
            if time.monotonic() - self._curves_drawn_at > _DRAW_EVERY_SECONDS:
                self._draw_curves()
                self._curves_drawn_at = time.monotonic()
        yield replace(result, is_best=is_best)

    def _is_best_score(self, score: float | None) -> bool:
        best_score = self.progress.best_score
        if score is None or not math.isfinite(score):
            return False
        return best_score is None or (score > best_score if self.task.higher_is_better else score < best_score)

    def validate(self, step: int, examples: int) -> ValidationResult:
        """Measure the loss on all validation pairs, and decode up to `examples` of them greedily."""
        loss = self.validation_loss()
        sample = self.task.validate_sample(
            self.sequence_model, self.data.validation, examples, loss,
            lambda _done, _total: self.stop.raise_if_requested(),
        )  # fmt: skip
        metric = "" if sample.score is None else self.task.validation_metric
        return ValidationResult(step, loss, sample.score, metric, select_samples(sample.examples, sample.outputs))

    @torch.inference_mode()
    def validation_loss(self) -> float:
        """Return the mean loss per target token of the validation pairs, without label smoothing."""
        self.model.eval()
        pairs, objective = self.data.validation.pairs, cross_entropy_objective(0.0)
        order = Order(pairs.costs, self.config.batch_tokens, seed=0, tie_break=pairs.target_lengths)
        total = tokens = 0.0
        for update in range(order.updates_per_epoch):
            self.stop.raise_if_requested()
            for indices in order.update(update):
                batch = self.tensor_batch(pairs, indices)
                with autocast(self.config, self.device):
                    sums = objective(self.model, batch)
                total, tokens = total + sums.nll.item(), tokens + batch.tokens
        return total / tokens

    # Checkpoints, and the end

    def _is_checkpoint_due(self) -> bool:
        # Only steps at which an uninterrupted training saves too.
        step = self.progress.step
        is_marked = step in (self.progress.best_step, self.progress.replanned_at)
        return step % self.config.checkpoint_every == 0 or is_marked or self._is_last_step()

    def _save_checkpoint(self) -> Iterator[TrainingEvent]:
        if not self.world.is_main_process:
            return
        step, folder = self.progress.step, self.run.checkpoints_dir
        self.progress = replace(self.progress, interim=not self._is_checkpoint_due())
        self.run.require_in_place()
        try:
            checkpoints.save_checkpoint(folder, self.progress, self.model, self.optimizer)
            best = (self.config.average or _MAX_AVERAGED) if self.config.average_of == "best" else 1
            checkpoints.prune_checkpoints(folder, self.config.keep, best)
        except OSError as error:
            self.run.require_in_place()
            last = self._last_saved_step
            status = f"the checkpoint at step {last} is kept" if last else "no earlier checkpoint exists"
            message = f"The checkpoint at step {step} could not be saved ({error}); {status}."
            if self._is_last_step() or self.stop.requested:
                raise UserError(f"{message} {write_error_advice(error, folder)} and continue with --resume.") from None
            yield Notice(f"{message} Retrying at the next checkpoint.", serious=True)
            return
        self._last_saved_step = step
        yield CheckpointSaved(step)

    def _is_stop_requested(self) -> bool:
        # If any process was asked to stop, all of them stop after the same step.
        return self.world.all_reduce_sum(float(self.stop.requested)) > 0

    def _raise_if_stopped(self) -> None:
        # A request that arrives after the step was saved is honoured at the next step.
        is_saved = self.world.is_main_process and self._last_saved_step == self.progress.step
        is_saved_anywhere = self.world.all_reduce_sum(float(is_saved)) > 0
        if is_saved_anywhere and self._is_stop_requested():
            raise TrainingStopped(f"Stopped after step {self.progress.step}; everything is saved.")

    def _is_last_step(self) -> bool:
        return self.progress.step == self.last_step or self._ends_early()

    def _ends_early(self) -> bool:
        return self._is_out_of_time() or self._is_out_of_patience()

    def _is_out_of_time(self) -> bool:
        # A schedule that ends at the last step may exceed the limit a little: its last steps are the most useful ones.
        limit = self._time_limit if self._is_open_ended else self._time_limit + _GRACE_SHARE * 60 * self.config.minutes
        return bool(self.config.minutes) and self.progress.step > 0 and self.progress.elapsed >= limit

    @property
    def _is_open_ended(self) -> bool:
        return self.config.schedule in OPEN_ENDED_SCHEDULES

    def _is_out_of_patience(self) -> bool:
        return bool(self.config.patience) and self.progress.stale >= self.config.patience

    def _early_end_reason(self) -> str:
        if self._is_out_of_time():
            limit = format_count(self.config.minutes, "minute")
            missing = format_count(self.last_step - self.progress.step, "step")
            rest = "" if self._is_open_ended else f" (resumed without a time limit, it makes the other {missing})"
            return f"The time limit of {limit} was reached at step {self.progress.step:,} of {self.last_step:,}{rest}"
        stale = format_count(self.progress.stale, "validation")
        return f"Neither the validation loss nor {self.task.validation_metric} has improved in {stale}"

    def _finish(self) -> TrainingFinished:
        # Choose the weights of the model, score it, and write the model card.
        self._draw_curves()
        weights = self._compare_weights()
        self.run.require_in_place()
        checkpoints.write_averaged_weights(
            self.run, [self.run.checkpoints_dir / f"{step:09d}" for step in weights[0].steps]
        )
        model = load(self.run.folder, device=self.config.device)
        description = f"{self.task.gerund} the validation text"
        scores = self.task.evaluate(
            model, self.data.validation, lambda done, total: self.on_progress(ProgressUpdate(description, done, total))
        )
        finished = TrainingFinished(self.run, self.progress, weights, scores)
        self.run.require_in_place()
        with self.failures.report(self.run.card_file):
            card = model_card(self.recipe, self._training_plan(self.last_step), finished)
            write_atomically(self.run.card_file, card.encode())
        return finished

    def _draw_curves(self) -> None:
        with self.failures.report(self.run.curves_file):
            draw_curves(self.run)

    def _compare_weights(self) -> tuple[ComparedWeights, ...]:
        """Score means of checkpoints, the last and the best one; return them best first.

        The mean of checkpoints between which the model changed much can be worse than each of them. If the recipe says
        how many checkpoints to average, there is only one candidate.
        """
        config, folder = self.config, self.run.checkpoints_dir
        if config.average:
            chosen = checkpoints.select_checkpoints(folder, config.average, config.average_of)
            return (ComparedWeights(tuple(int(path.name) for path in chosen)),)
        compared = []
        candidates = checkpoints.candidate_averages(folder, min(config.keep, _MAX_AVERAGED), config.average_of)
        for index, paths in enumerate(candidates):
            self.on_progress(ProgressUpdate("Comparing checkpoints", index, len(candidates)))
            copy_weights(checkpoints.average_checkpoints(paths), named_weights(self.model), paths[0])
            result = self.validate(self.progress.step, 2 * config.validation_sample)
            compared.append(ComparedWeights(tuple(int(path.name) for path in paths), result.loss, result.score))
        return tuple(sorted(compared, key=self._rank_weights))

    def _rank_weights(self, weights: ComparedWeights) -> tuple[float, float]:
        """Return a sort key by score, then by loss; candidates without a finite score come last."""
        score = math.nan if weights.score is None else weights.score
        ranked = -score if self.task.higher_is_better else score
        return math.inf if math.isnan(ranked) else ranked, math.inf if math.isnan(weights.loss) else weights.loss


def select_samples(examples: Sequence[Example[Any]], outputs: Sequence[str]) -> tuple[ValidationSample, ...]:
    """Return up to `MAX_SAMPLES` examples with their outputs, the first one and others spread evenly."""
    stride = max(1, -(-len(examples) // MAX_SAMPLES))
    return tuple(
        ValidationSample(
            *(str(value)[:MAX_SAMPLE_CHARACTERS] for value in (example.source, example.references[0], output))
        )
        for example, output in list(zip(examples, outputs, strict=True))[::stride]
    )
