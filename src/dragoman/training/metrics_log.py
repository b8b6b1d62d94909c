"""The log of a training: one line per event in metrics.jsonl, TensorBoard events, and a picture of the curves."""

import time
from collections.abc import Mapping, Sequence
from itertools import accumulate
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dragoman.checkpoints import TrainingProgress
from dragoman.run import Run, read_metrics
from dragoman.storage import atomic_file, make_subdirectory, open_for_appending, to_json
from dragoman.tasks.events import FailureNotices

if TYPE_CHECKING:
    from dragoman.figures import Figure


class MetricsLog:
    """The open log files of a run. Events after the step from which the run resumes are removed."""

    def __init__(self, run: Run, progress: TrainingProgress, failures: FailureNotices) -> None:
        for path in (run.metrics_file, run.skipped_file):
            _truncate_to(path, progress)
        self.run, self.failures = run, failures
        self.metrics_file = open_for_appending(run.metrics_file)
        self.tensorboard: _TensorBoardWriter | None = None
        with failures.report(run.tensorboard_dir):
            self.tensorboard = _TensorBoardWriter(run.tensorboard_dir, progress.step + 1)

    def write(self, event: str, step: int, **values: Any) -> None:
        """Write one event. If the disk is full, the event is lost and the training continues."""
        self.run.require_in_place()
        finite = {name: value for name, value in values.items() if not isinstance(value, float) or isfinite(value)}
        with self.failures.report(self.run.metrics_file):
            self.metrics_file.write(to_json({"event": event, "step": step, **finite}))
            self.metrics_file.flush()
        with self.failures.report(self.run.tensorboard_dir):
            if self.tensorboard:
                numbers = {name: value for name, value in finite.items() if isinstance(value, float | int)}
                self.tensorboard.add_scalars(event, numbers, step)

    def write_skipped(self, step: int, loss: float, line_numbers: Sequence[int]) -> None:
        """Write the line numbers of the pairs of a step that was skipped."""
        with self.failures.report(self.run.skipped_file), open_for_appending(self.run.skipped_file) as file:
            file.write(to_json({"event": "skipped", "step": step, "loss": str(loss), "pairs": list(line_numbers)}))

    def close(self) -> None:
        """Close the files."""
        for path, file in ((self.run.metrics_file, self.metrics_file), (self.run.tensorboard_dir, self.tensorboard)):
            with self.failures.report(path):
                if file:
                    file.close()


class _TensorBoardWriter:
    """Writes TensorBoard events synchronously: the library's thread hangs forever if the disk is full."""

    def __init__(self, folder: Path, first: int) -> None:
        # Imported here, so that a training does not depend on the library.
        from tensorboardX.event_file_writer import EventsWriter
        from tensorboardX.proto.event_pb2 import Event, SessionLog

        make_subdirectory(folder)
        self.file = EventsWriter(str(folder / "events"), filename_suffix=f".{first}")
        start = SessionLog(status=SessionLog.START)  # earlier events from this step on are void
        self.file.write_event(Event(wall_time=time.time(), step=first, session_log=start))

    def add_scalars(self, event: str, numbers: Mapping[str, float], step: int) -> None:
        """Write the numbers of an event, and make them visible to readers."""
        from tensorboardX.proto.event_pb2 import Event
        from tensorboardX.summary import scalar

        for name, value in numbers.items():
            summary = scalar(f"{event}/{name}", value)
            self.file.write_event(Event(wall_time=time.time(), step=step, summary=summary))
        self.file.flush()

    def close(self) -> None:
        """Write what is left and close the file."""
        self.file.close()


def _truncate_to(path: Path, progress: TrainingProgress) -> None:
    # Remove the events after the step from which a run resumes.
    if path.exists():
        with atomic_file(path) as temporary, temporary.open("wb") as file:
            file.writelines(to_json(entry) for entry in read_metrics(path) if _is_before(entry, progress))


def _is_before(entry: dict[str, Any], progress: TrainingProgress) -> bool:
    return bool(entry["step"] <= (progress.validated_at if entry["event"] == "validation" else progress.step))


def draw_curves(run: Run) -> None:
    """Draw loss, perplexity, score and learning rate over the steps into curves.png."""
    from dragoman.figures import default_style, new_figure

    with default_style():
        _plot_metrics(run, new_figure(10, 6.5, layout="constrained"))


def _plot_metrics(run: Run, figure: "Figure") -> None:
    events = list(read_metrics(run.metrics_file))
    (loss, perplexity), (score, rate) = figure.subplots(2, 2)
    measure = next((entry["measure"] for entry in events if entry.get("measure")), "score")
    for axes, title, lines in (
        (
            loss,
            "loss per token, without label smoothing",
            [("training", "train", "nll"), ("validation", "validation", "loss")],
        ),
        (perplexity, "validation perplexity", [("", "validation", "perplexity")]),
        (score, f"validation {measure} (sample)", [("", "validation", "score")]),
        (rate, "learning rate", [("", "train", "rate")]),
    ):
        for label, kind, name in lines:
            points = [(e["step"], e[name]) for e in events if e["event"] == kind and e.get(name) is not None]
            if points:
                steps, values = zip(*points, strict=True)
                marker = "." if len(points) < 60 else ""
                axes.plot(steps, running_mean(values), label=label, marker=marker, linewidth=1.2)
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("step", fontsize=9)
        axes.grid(alpha=0.3)
        if axes is loss and axes.lines:
            axes.legend()
    run.require_in_place()
    with atomic_file(run.curves_file) as temporary:
        figure.savefig(temporary, format="png", dpi=110)


def running_mean(values: Sequence[float]) -> list[float]:
    """Return the mean of each value and its neighbours; up to 200 values are returned as they are."""
    reach = len(values) // 200
    sums = list(accumulate(values, initial=0.0))
    spans = [(max(0, index - reach), min(len(values), index + reach + 1)) for index in range(len(values))]
    return [(sums[end] - sums[start]) / (end - start) for start, end in spans]
