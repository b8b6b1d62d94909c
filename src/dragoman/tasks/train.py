"""Training, whatever the task: from files to a trained model in a run directory."""

import math
import os
import shutil
from collections.abc import Sequence
from contextlib import nullcontext

import torch

from dragoman import checkpoints
from dragoman.checkpoints import TrainingProgress
from dragoman.data.arrays import TokenPairs
from dragoman.data.batches import IndexArray, Order, collate
from dragoman.errors import TrainingStopped, UserError
from dragoman.malloc import keep_freed_memory
from dragoman.models.weights import running_statistics
from dragoman.parallel import ThreadPool
from dragoman.recipe import Recipe
from dragoman.run import Run, write_atomically, write_weights
from dragoman.tasks.building import build_model
from dragoman.tasks.card import model_card
from dragoman.tasks.events import OnEvent, ProgressUpdate, TrainingFinished, TrainingPlan
from dragoman.tasks.preparation import PreparedData, open_corpora, prepare_data
from dragoman.tasks.registry import task_for
from dragoman.tasks.resumption import check_run_directory, check_same_origin
from dragoman.tasks.task import Example
from dragoman.tasks.translator import Translator, load, select_device
from dragoman.training.averaging import average_checkpoints, select_checkpoints
from dragoman.training.distributed import World, init_world
from dragoman.training.loop import TensorBatch, autocast, build_adam, measure_seconds_per_step
from dragoman.training.loss import projected_cross_entropy
from dragoman.training.metrics_log import draw_curves
from dragoman.training.session import Notice, StopRequest, TrainingSession, ValidationResult, ValidationSample

__all__ = ["load", "train"]

MAX_SAMPLES = 6  # validation examples whose outputs are written down each time
MAX_SAMPLE_CHARACTERS = 500  # of each, so that a line of metrics.jsonl stays small


def ignore_event(_event: object) -> None:
    """Hear of something and do nothing."""


def train(
    recipe: Recipe,
    *,
    resume: bool = False,
    overwrite: bool = False,
    on_event: OnEvent = ignore_event,
    stop: StopRequest | None = None,
) -> Run:
    """Train a model as the recipe says, and return its run; `listen` hears of all that happens meanwhile."""
    run, world = Run(recipe.run), init_world()
    corpus, valid = open_corpora(recipe)
    select_device(recipe.training.device)  # one that is not there is refused before anything is touched
    if world.is_main_process:
        check_run_directory(run, recipe, resume, overwrite)
    else:
        on_event = ignore_event  # one of us speaks for all
    with run.lock() if world.is_main_process else nullcontext():
        with world.main_process_first():
            if world.is_main_process:
                if not (resume and run.exists):
                    run.erase()
                run.remove_temporary_files()
                checkpoints.clean_up_interrupted_saves(run.checkpoints_dir)
                write_atomically(run.recipe_file, recipe.to_toml().encode())
            data = prepare_data(run, recipe, corpus, valid, on_event)
        Trainer(run, recipe, data, world, on_event, stop or StopRequest()).fit()
    return run


class Trainer:
    """One training of one model, with all it needs at hand."""

    def __init__(
        self, run: Run, recipe: Recipe, data: PreparedData, world: World, on_event: OnEvent, stop: StopRequest
    ) -> None:
        self.run, self.recipe, self.data, self.world, self.on_event, self.stop = (
            run,
            recipe,
            data,
            world,
            on_event,
            stop,
        )
        self.task = task_for(recipe)
        plan = recipe.training
        self.device = select_device(plan.device)
        threads = plan.threads or available_cores()
        torch.set_num_threads(threads)
        torch.manual_seed(plan.seed)
        self.model = build_model(recipe, data.source_tokenizer, data.target_tokenizer).to(self.device)
        # Threads that work on shares of a batch would count into the same statistics, in any order.
        alone = self.device.type != "cpu" or bool(running_statistics(self.model))
        self.pool = ThreadPool(1 if alone else threads)
        self.optimizer = build_adam(self.model, plan)
        self.order = Order(
            data.train_pairs.source_lengths,
            data.train_pairs.target_lengths,
            plan.batch_tokens,
            plan.accumulate,
            plan.seed,
        )
        self.longest_source = int(data.train_pairs.source_lengths.max())
        self.translator = Translator(
            recipe,
            self.model,
            data.source_tokenizer,
            data.target_tokenizer,
            self.device,
            max_length=self.longest_source,
        )

    def fit(self) -> None:
        """Train to the end and leave a model that is ready to use."""
        keep_freed_memory()
        progress = self.restore_newest_checkpoint()
        self.check_disk_space()
        self.on_event(self.training_plan(progress.step, progress.seconds))
        session = TrainingSession(
            self.run, self.recipe.training, self.model, self.optimizer, self.batches_of_step, self.validate,
            self.recipe.model.width, self.world, self.pool, self.stop, progress,
        )  # fmt: skip
        for event in session.events():
            self.on_event(event)
        if self.world.is_main_process:
            try:
                self.finish(session.progress)
            except KeyboardInterrupt:
                raise TrainingStopped(
                    "Stopped before the model was scored; all is saved. Go on with --resume."
                ) from None

    def restore_newest_checkpoint(self) -> TrainingProgress:
        """Go back to the newest whole checkpoint, if there is one, and say what is wrong with newer ones."""
        origin = {"recipe": self.recipe.to_toml(), **self.data.origin}
        place, damaged = checkpoints.newest_checkpoint(self.run.checkpoints_dir)
        used = f"using {place} instead" if place else "starting from the beginning"
        for fault in damaged:
            self.on_event(Notice(f"{fault}; {used}.", serious=True))
        if place is None:
            return TrainingProgress(data=self.data.train_pairs.fingerprint, longest=self.longest_source, origin=origin)
        check_same_origin(self.run, checkpoints.read_progress(place), self.recipe, origin)
        progress = checkpoints.load_checkpoint(place, self.model, self.optimizer)
        if progress.data != self.data.train_pairs.fingerprint:
            raise UserError(
                f"{self.run}: the training text is not the one that this run began with, so it cannot go on exactly. "
                "Restore the text, or train into another directory with --run."
            )
        return progress.with_changes(longest=self.longest_source, origin=origin)

    def check_disk_space(self) -> None:
        """See that there is room for all checkpoints before the first hour is spent."""
        each, there = (
            checkpoints.checkpoint_bytes(self.model),
            len(checkpoints.checkpoint_dirs(self.run.checkpoints_dir)),
        )
        needed = max(1, self.recipe.training.keep + 1 - there) * each
        free = shutil.disk_usage(self.run.folder).free
        if free < needed:
            raise UserError(
                f"{self.run}: the checkpoints of this training need {needed / 1e6:,.0f} MB "
                f"({each / 1e6:,.0f} MB each), but {free / 1e6:,.0f} MB are free. Make room, or lower training.keep."
            )

    def training_plan(self, steps_done: int, seconds_spent: float = 0.0) -> TrainingPlan:
        """Say what is about to happen and how long it will take here."""
        plan = self.recipe.training
        return TrainingPlan(
            run=self.run,
            pairs=len(self.data.train_pairs),
            valid_pairs=len(self.data.valid_pairs),
            unit=self.task.unit,
            vocabulary_sizes=(len(self.data.source_tokenizer), len(self.data.target_tokenizer)),
            parameters=sum(parameter.numel() for parameter in self.model.parameters()),
            steps=plan.steps,
            steps_done=steps_done,
            steps_per_epoch=max(1, self.order.updates_per_epoch(self.world.size) // self.data.train_pairs.repeats),
            seconds_per_step=measure_seconds_per_step(self.model, self.batches_of_step, plan, pool=self.pool)
            if steps_done < plan.steps
            else 0.0,
            seconds_left=max(0.0, 60 * plan.minutes - seconds_spent) if plan.minutes else math.inf,
            device=str(self.device),
            threads=torch.get_num_threads(),
        )

    def batches_of_step(self, step: int) -> list[TensorBatch]:
        """Return this process's batches of a step."""
        return [
            self.tensor_batch(self.data.train_pairs, numbers)
            for numbers in self.order.update(step - 1, self.world.rank, self.world.size)
        ]

    def tensor_batch(self, pairs: TokenPairs, indices: IndexArray) -> TensorBatch:
        """Turn pairs into tensors on the device."""
        batch = collate(pairs, indices)
        source, prefix, target = (
            torch.from_numpy(part).to(self.device) for part in (batch.source, batch.prefix, batch.target)
        )
        return TensorBatch(source, prefix, target, batch.tokens, pairs.line_numbers[batch.indices].tolist())

    def validate(self, step: int) -> ValidationResult:
        """Measure the loss on all validation pairs, and try some of them greedily."""
        loss = self.validation_loss()
        count = self.recipe.training.validation_sample
        trial = self.task.validate_sample(
            self.translator, self.data, count, loss, lambda _done, _total: self.stop.raise_if_requested()
        )
        measure = "" if trial.score is None else self.task.validation_metric
        return ValidationResult(step, loss, trial.score, measure, select_samples(trial.examples, trial.outputs))

    @torch.inference_mode()
    def validation_loss(self) -> float:
        """Return the mean loss per target token, without smoothing."""
        self.model.eval()
        pairs = self.data.valid_pairs
        order = Order(pairs.source_lengths, pairs.target_lengths, self.recipe.training.batch_tokens, 1, 0)
        total = tokens = 0.0
        for number in range(order.updates_per_epoch()):
            self.stop.raise_if_requested()
            for numbers in order.update(number):
                batch = self.tensor_batch(pairs, numbers)
                with autocast(self.recipe.training, self.device):
                    hidden = self.model.hidden_states(batch.prefix, self.model.encode(batch.source))
                    _, plain = projected_cross_entropy(hidden, self.model.output_weight, batch.target, 0.0)
                total, tokens = total + plain.item(), tokens + batch.tokens
        return total / tokens

    def finish(self, progress: TrainingProgress) -> None:
        """Average the checkpoints into the model to use, score it, and write its card."""
        plan = self.recipe.training
        draw_curves(self.run)
        averaged = write_averaged_weights(self.run, plan.average, plan.average_of)
        translator = load(self.run.folder, device=plan.device)
        what = f"{self.task.gerund} the validation text"
        scores = self.task.evaluate(
            translator, self.data, lambda done, total: self.on_event(ProgressUpdate(what, done, total))
        )
        finished = TrainingFinished(self.run, progress, len(averaged), scores)
        write_atomically(self.run.card_file, model_card(self.recipe, self.training_plan(plan.steps), finished).encode())
        self.on_event(finished)


def select_samples(examples: Sequence[Example], outputs: Sequence[str]) -> tuple[ValidationSample, ...]:
    """Choose some examples to show, the first and others far from it, each cut to a readable length."""
    every = max(1, -(-len(examples) // MAX_SAMPLES))
    return tuple(
        ValidationSample(*(text[:MAX_SAMPLE_CHARACTERS] for text in (example.source, example.references[0], output)))
        for example, output in list(zip(examples, outputs, strict=True))[::every]
    )


def available_cores() -> int:
    """Return the number of processor cores that this process may use; `torchrun` starts several that share them."""
    all_cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, all_cores // int(os.environ.get("LOCAL_WORLD_SIZE", "1")))


def write_averaged_weights(run: Run, count: int, average_of: str) -> list[int]:
    """Make the mean of some checkpoints the model to use; return the steps they are from."""
    places = select_checkpoints(run.checkpoints_dir, count, average_of)
    source, target = run.read_tokenizers(run.read_recipe().tokenizer.joint)
    steps = [int(place.name) for place in places]
    facts = {
        "steps": " ".join(map(str, steps)),
        "source_tokenizer": source.fingerprint,
        "target_tokenizer": target.fingerprint,
        "source_vocabulary": str(len(source)),
        "target_vocabulary": str(len(target)),
        "longest_source": str(checkpoints.read_progress(places[0]).longest),
    }
    write_weights(run.weights_file, average_checkpoints(places), facts)
    return steps
