"""Training, whatever the task: from files to a trained model in a run directory."""

import math
import os
import shutil
from collections.abc import Sequence
from contextlib import nullcontext

import torch

from dragoman.crew import Crew
from dragoman.data.arrays import TokenPairs
from dragoman.data.batches import Numbers, Order, collate
from dragoman.errors import Stopped, UserError
from dragoman.memory import keep_freed_memory
from dragoman.model.weights import statistics
from dragoman.recipe import Recipe
from dragoman.run import Run, write_weights, write_whole
from dragoman.tasks.building import built
from dragoman.tasks.card import card
from dragoman.tasks.events import Finished, Listen, Plan, Working
from dragoman.tasks.preparation import Prepared, corpora, prepared
from dragoman.tasks.resumption import refuse_other_origin, refuse_unasked
from dragoman.tasks.task import Example
from dragoman.tasks.tasks import task_of
from dragoman.tasks.translator import Translator, chosen_device, load
from dragoman.training import checkpoints
from dragoman.training.averaging import average, chosen
from dragoman.training.checkpoints import Progress
from dragoman.training.distributed import World, join_world
from dragoman.training.journal import draw_curves
from dragoman.training.loop import TensorBatch, adam, autocast, seconds_per_step
from dragoman.training.loss import projected_cross_entropy
from dragoman.training.session import Notice, Sample, Session, Stop, Validation

__all__ = ["load", "train"]

SHOWN = 6  # validation examples whose outputs are written down each time
SHOWN_CHARACTERS = 500  # of each, so that a line of metrics.jsonl stays small


def ignore(_event: object) -> None:
    """Hear of something and do nothing."""


def train(
    recipe: Recipe,
    *,
    resume: bool = False,
    overwrite: bool = False,
    listen: Listen = ignore,
    stop: Stop | None = None,
) -> Run:
    """Train a model as the recipe says, and return its run; `listen` hears of all that happens meanwhile."""
    run, world = Run(recipe.run), join_world()
    corpus, valid = corpora(recipe)
    chosen_device(recipe.training.device)  # one that is not there is refused before anything is touched
    if world.writes:
        refuse_unasked(run, recipe, resume, overwrite)
    else:
        listen = ignore  # one of us speaks for all
    with run.lock() if world.writes else nullcontext():
        with world.first_alone():
            if world.writes:
                if not (resume and run.exists):
                    run.erase()
                run.sweep()
                checkpoints.sweep(run.checkpoints)
                write_whole(run.recipe_file, recipe.to_toml().encode())
            data = prepared(run, recipe, corpus, valid, listen)
        Trainer(run, recipe, data, world, listen, stop or Stop()).complete()
    return run


class Trainer:
    """One training of one model, with all it needs at hand."""

    def __init__(self, run: Run, recipe: Recipe, data: Prepared, world: World, listen: Listen, stop: Stop) -> None:
        self.run, self.recipe, self.data, self.world, self.listen, self.stop = run, recipe, data, world, listen, stop
        self.task = task_of(recipe)
        plan = recipe.training
        self.device = chosen_device(plan.device)
        threads = plan.threads or cores()
        torch.set_num_threads(threads)
        torch.manual_seed(plan.seed)
        self.model = built(recipe, data.source, data.target).to(self.device)
        # Threads that work on shares of a batch would count into the same statistics, in any order.
        alone = self.device.type != "cpu" or bool(statistics(self.model))
        self.crew = Crew(1 if alone else threads)
        self.optimizer = adam(self.model, plan)
        self.order = Order(
            data.train.source_lengths, data.train.target_lengths, plan.batch_tokens, plan.accumulate, plan.seed
        )
        self.longest = int(data.train.source_lengths.max())
        self.translator = Translator(recipe, self.model, data.source, data.target, self.device, longest=self.longest)

    def complete(self) -> None:
        """Train to the end and leave a model that is ready to use."""
        keep_freed_memory()
        progress = self.restored()
        self.refuse_full_disk()
        self.listen(self.plan(progress.step, progress.seconds))
        session = Session(
            self.run, self.recipe.training, self.model, self.optimizer, self.batches, self.validate,
            self.recipe.model.width, self.world, self.crew, self.stop, progress,
        )  # fmt: skip
        for event in session.events():
            self.listen(event)
        if self.world.writes:
            try:
                self.finish(session.progress)
            except KeyboardInterrupt:
                raise Stopped("Stopped before the model was scored; all is saved. Go on with --resume.") from None

    def restored(self) -> Progress:
        """Go back to the newest whole checkpoint, if there is one, and say what is wrong with newer ones."""
        origin = {"recipe": self.recipe.to_toml(), **self.data.origin}
        place, damaged = checkpoints.newest(self.run.checkpoints)
        used = f"using {place} instead" if place else "starting from the beginning"
        for fault in damaged:
            self.listen(Notice(f"{fault}; {used}.", serious=True))
        if place is None:
            return Progress(data=self.data.train.fingerprint, longest=self.longest, origin=origin)
        refuse_other_origin(self.run, checkpoints.read_progress(place), self.recipe, origin)
        progress = checkpoints.restore(place, self.model, self.optimizer)
        if progress.data != self.data.train.fingerprint:
            raise UserError(
                f"{self.run}: the training text is not the one that this run began with, so it cannot go on exactly. "
                "Restore the text, or train into another directory with --run."
            )
        return progress.after(longest=self.longest, origin=origin)

    def refuse_full_disk(self) -> None:
        """See that there is room for all checkpoints before the first hour is spent."""
        each, there = checkpoints.size(self.model), len(checkpoints.places(self.run.checkpoints))
        needed = max(1, self.recipe.training.keep + 1 - there) * each
        free = shutil.disk_usage(self.run.folder).free
        if free < needed:
            raise UserError(
                f"{self.run}: the checkpoints of this training need {needed / 1e6:,.0f} MB "
                f"({each / 1e6:,.0f} MB each), but {free / 1e6:,.0f} MB are free. Make room, or lower training.keep."
            )

    def plan(self, done: int, spent_seconds: float = 0.0) -> Plan:
        """Say what is about to happen and how long it will take here."""
        plan = self.recipe.training
        return Plan(
            run=self.run,
            pairs=len(self.data.train),
            valid_pairs=len(self.data.valid),
            unit=self.task.unit,
            vocabulary=(len(self.data.source), len(self.data.target)),
            parameters=sum(parameter.numel() for parameter in self.model.parameters()),
            steps=plan.steps,
            steps_done=done,
            steps_per_epoch=max(1, self.order.updates_per_epoch(self.world.size) // self.data.train.passes),
            seconds_per_step=seconds_per_step(self.model, self.batches, plan, crew=self.crew)
            if done < plan.steps
            else 0.0,
            seconds_left=max(0.0, 60 * plan.minutes - spent_seconds) if plan.minutes else math.inf,
            device=str(self.device),
            threads=torch.get_num_threads(),
        )

    def batches(self, number: int) -> list[TensorBatch]:
        """Return this process's batches of a step."""
        return [
            self.tensors(self.data.train, numbers)
            for numbers in self.order.update(number - 1, self.world.rank, self.world.size)
        ]

    def tensors(self, pairs: TokenPairs, numbers: Numbers) -> TensorBatch:
        """Turn pairs into tensors on the device."""
        batch = collate(pairs, numbers)
        source, prefix, target = (
            torch.from_numpy(part).to(self.device) for part in (batch.source, batch.prefix, batch.target)
        )
        return TensorBatch(source, prefix, target, batch.tokens, pairs.line_numbers[batch.numbers].tolist())

    def validate(self, step: int) -> Validation:
        """Measure the loss on all validation pairs, and try some of them greedily."""
        loss = self.validation_loss()
        count = self.recipe.training.validation_sample
        trial = self.task.tried(self.translator, self.data, count, loss, lambda _done, _total: self.stop.check())
        measure = "" if trial.score is None else self.task.measure
        return Validation(step, loss, trial.score, measure, shown(trial.examples, trial.outputs))

    @torch.inference_mode()
    def validation_loss(self) -> float:
        """Return the mean loss per target token, without smoothing."""
        self.model.eval()
        pairs = self.data.valid
        order = Order(pairs.source_lengths, pairs.target_lengths, self.recipe.training.batch_tokens, 1, 0)
        total = tokens = 0.0
        for number in range(order.updates_per_epoch()):
            self.stop.check()
            for numbers in order.update(number):
                batch = self.tensors(pairs, numbers)
                with autocast(self.recipe.training, self.device):
                    hidden = self.model.hidden(batch.prefix, self.model.encode(batch.source))
                    _, plain = projected_cross_entropy(hidden, self.model.output, batch.target, 0.0)
                total, tokens = total + plain.item(), tokens + batch.tokens
        return total / tokens

    def finish(self, progress: Progress) -> None:
        """Average the checkpoints into the model to use, score it, and write its card."""
        plan = self.recipe.training
        draw_curves(self.run)
        averaged = write_average(self.run, plan.average, plan.average_of)
        translator = load(self.run.folder, device=plan.device)
        what = f"{self.task.doing} the validation text"
        scores = self.task.judged(translator, self.data, lambda done, total: self.listen(Working(what, done, total)))
        finished = Finished(self.run, progress, len(averaged), scores)
        write_whole(self.run.card_file, card(self.recipe, self.plan(plan.steps), finished).encode())
        self.listen(finished)


def shown(examples: Sequence[Example], outputs: Sequence[str]) -> tuple[Sample, ...]:
    """Choose some examples to show, the first and others far from it, each cut to a readable length."""
    every = max(1, -(-len(examples) // SHOWN))
    return tuple(
        Sample(*(text[:SHOWN_CHARACTERS] for text in (example.source, example.references[0], output)))
        for example, output in list(zip(examples, outputs, strict=True))[::every]
    )


def cores() -> int:
    """Return the number of processor cores that this process may use; `torchrun` starts several that share them."""
    all_cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, all_cores // int(os.environ.get("LOCAL_WORLD_SIZE", "1")))


def write_average(run: Run, count: int, kind: str) -> list[int]:
    """Make the mean of some checkpoints the model to use; return the steps they are from."""
    places = chosen(run.checkpoints, count, kind)
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
    write_weights(run.weights_file, average(places), facts)
    return steps
