"""`dragoman quickstart transcribe`: learn to copy Morse code from sound."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from dragoman.cli.progress import print_report, print_stderr, progress_bar
from dragoman.cli.quickstart import train_unless_done
from dragoman.recipe import Recipe
from dragoman.run import Run

if TYPE_CHECKING:
    from dragoman.tasks.transcribe import Transcriber

_CORPUS_SIZES = {"train": 5000, "valid": 100, "test": 300}
_RATE = 4000  # the tones are below 900 Hz
_STEPS = 1600
_SHOWN_RECORDINGS = 5
_EXAMPLE = "DRAGOMAN"


def transcribe_morse(run: Path, *, overwrite: bool) -> None:
    """Train a transcriber on synthesised Morse code, score it, and draw what it attends to in an example."""
    from dragoman.tasks.transcribe import Transcriber

    corpus = run / "corpus"
    Run(run).check_files()
    if overwrite or not (corpus / "test.tsv").exists():
        _write_corpus(corpus)
    train_unless_done(_morse_recipe(run, corpus), overwrite=overwrite)
    model = Transcriber.load(run)
    _print_transcripts(model, corpus)
    recording, picture = run / "example.wav", run / "example.png"
    _write_example(model, recording, picture)
    print_stderr("\nDone. What to try next:")
    print_stderr(f"  play {recording}: “{_EXAMPLE}” at 10 dB; {picture} shows where each letter was heard")
    print_stderr(f"  dragoman transcribe {run} {recording} --format json")
    print_stderr(f"  dragoman evaluate {run} --reference {corpus}/test.tsv --worst 5")
    print_stderr("  dragoman train --task transcribe --file your-recordings.tsv --run runs/yours")


def _write_corpus(folder: Path) -> None:
    """Write the recordings and their manifests."""
    from dragoman.corpora.morse import write_morse_corpus

    total = sum(_CORPUS_SIZES.values())
    with progress_bar(f"Synthesising {total:,} recordings of Morse code in {folder}", total) as progress:
        write_morse_corpus(folder, _CORPUS_SIZES, rate=_RATE, on_progress=progress)


def _morse_recipe(run: Path, corpus: Path) -> Recipe:
    """Return the recipe: a small pre-norm model; a letter is heard in a window of 31 positions, 1.2 seconds."""
    settings: dict[str, Any] = {
        "task": "transcribe",
        "run": str(run),
        "data": {"file": str(corpus / "train.tsv"), "valid_file": str(corpus / "valid.tsv")},
        "audio": {"rate": _RATE, "speeds": [1.0], "mask_frames": 0, "mask_bands": 0},
        "tokenizer": {"size": 100},
        "model": {
            "layers": 3, "decoder_layers": 1, "width": 96, "inner_width": 192, "heads": 3, "dropout": 0.0,
            "norm": "pre", "frame_width": 32, "ctc_weight": 0.5, "pattern": "window", "window": 31,
        },
        "training": {
            "steps": _STEPS, "batch_tokens": 2048, "schedule": "linear", "rate": 0.002, "warmup": 200, "clip": 1.0,
            "accumulate": 1, "validate_every": 400, "checkpoint_every": 100, "average": 2, "patience": 0,
        },
        "decoding": {"beam": 4, "ctc_weight": 0.6},
    }  # fmt: skip
    return Recipe.from_table(settings)


def _print_transcripts(model: "Transcriber", corpus: Path) -> None:
    """Transcribe and score the test set; print the first transcripts and the error rates."""
    examples = model.task.read_examples(None, str(corpus / "test.tsv"), print_stderr)
    with progress_bar("Transcribing the test set", len(examples)) as progress:
        outputs = model.transcribe([example.source for example in examples], progress=progress)
    for example, output in list(zip(examples, outputs, strict=True))[:_SHOWN_RECORDINGS]:
        right = "" if output == example.references[0] else f"\n     expected: {example.references[0]}"
        print_report(f"{Path(example.source).name}\n  → {output}{right}")
    for score in model.task.score(examples, outputs):  # type: ignore[attr-defined]
        print_report(f"Test set, unseen words and speeds at 10 dB: {score}")


def _write_example(model: "Transcriber", recording: Path, picture: Path) -> None:
    """Write a message as a WAV file, and a picture of where the model heard each letter."""
    from dragoman.cli.display import TerminalDisplay
    from dragoman.corpora.morse import write_message
    from dragoman.tasks.events import FailureNotices
    from dragoman.viewer.spectrogram import save_spectrogram

    write_message(recording, _EXAMPLE, rate=_RATE)
    with FailureNotices(TerminalDisplay()).report(picture):
        save_spectrogram(model.inspect(recording), picture)
