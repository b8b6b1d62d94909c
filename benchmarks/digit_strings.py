"""How well are strings of digits transcribed, and when is each digit heard? Strings are joined from single digits.

    python benchmarks/digit_strings.py write ../shared/data/fsdd/train.tsv data/digits
    dragoman train --task transcribe --file data/digits/train.tsv --valid-file data/digits/valid.tsv \\
      --set audio.rate=8000 --run runs/digits
    python benchmarks/digit_strings.py score runs/digits data/digits/test.tsv

A string has one to seven digits of one speaker without gaps, so the time of each join is known. Of the recordings of a
digit by a speaker, those with index 45 to 49 are in test strings only, 40 to 44 in validation strings only, and the
others in training. `score` prints the word error rate, and how far the ends of the digits of correct transcripts are
from the joins; it writes one JSON record.
"""

import json
import wave
import zipfile
from collections import defaultdict
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
import typer

from dragoman.data.signal_corpus import open_signal
from dragoman.data.sound_files import read_sound
from dragoman.tasks.transcribe import Transcriber

FIRST_INDEX = {"train": 0, "valid": 40, "test": 45}  # of the recordings of a split
SIZES = {"train": 3000, "valid": 200, "test": 300}
MAX_DIGITS = 7

app = typer.Typer(add_completion=False)


class Digit(NamedTuple):
    """A recording of one digit."""

    word: str
    samples: np.ndarray  # 16-bit integers
    rate: int


@app.command()
def write(recordings: Path, folder: Path, seed: int = 1) -> None:
    """Write a table, an archive and the times of the joins for each split."""
    folder.mkdir(parents=True, exist_ok=True)
    digits: dict[str, dict[str, list[Digit]]] = {split: defaultdict(list) for split in SIZES}
    for line in recordings.read_text(encoding="utf-8").splitlines():
        name, word, speaker, _ = line.split("\t")
        digits[split_of(name)][speaker].append(Digit(word, *read(f"{recordings.with_suffix('.zip')}/{name}")))
    for split, speakers in digits.items():
        random = np.random.default_rng((seed, list(SIZES).index(split)))
        write_split(folder, split, list(speakers.values()), random)


def write_split(folder: Path, split: str, speakers: list[list[Digit]], random: np.random.Generator) -> None:
    """Write the strings of a split; the speakers take turns."""
    joins, lines = {}, []
    with zipfile.ZipFile(folder / f"{split}.zip", "w") as archive:
        for number in range(SIZES[split]):
            available, name = speakers[number % len(speakers)], f"{split}-{number:05}.wav"
            chosen = [available[i] for i in random.integers(len(available), size=random.integers(1, MAX_DIGITS + 1))]
            with archive.open(name, "w") as member, wave.open(member, "wb") as file:
                file.setparams((1, 2, chosen[0].rate, 0, "NONE", ""))
                file.writeframes(np.concatenate([digit.samples for digit in chosen]).tobytes())
            joins[name] = (np.cumsum([len(digit.samples) for digit in chosen]) / chosen[0].rate).tolist()
            lines.append(f"{name}\t{' '.join(digit.word for digit in chosen)}\n")
    (folder / f"{split}.tsv").write_text("".join(lines), encoding="utf-8")
    (folder / f"{split}.joins.json").write_text(json.dumps(joins), encoding="utf-8")


def split_of(name: str) -> str:
    """Return the split of a recording such as 7_jackson_32.wav, by its index."""
    index = int(name.removesuffix(".wav").rpartition("_")[2])
    return max(FIRST_INDEX, key=lambda split: (index >= FIRST_INDEX[split], FIRST_INDEX[split]))


def read(path: str) -> tuple[np.ndarray, int]:
    """Return the samples of a recording as 16-bit integers, and their rate."""
    with open_signal(path) as file:
        samples, rate = read_sound(file, path)
    return np.rint(samples * 32767).astype("<i2"), rate


@app.command()
def score(run: str, table: Path, output: Annotated[Path, typer.Option()] = Path("digit_strings.json")) -> None:
    """Print the error rates and the errors of the times of words."""
    model = Transcriber.load(run)
    examples = model.task.read_examples(None, str(table), print)
    joins = json.loads(table.with_suffix(".joins.json").read_text(encoding="utf-8"))
    texts, errors = [], []
    for example in examples:
        segments = list(model.transcribe_segments(example.source))
        texts.append(" ".join(segment.text for segment in segments))
        words = [word for segment in segments for word in segment.words]
        if texts[-1] == example.references[0]:  # each word has its join
            ends = joins[Path(example.source).name]
            errors += [abs(word.end_seconds - end) for word, end in zip(words, ends, strict=True)]
    rates = list(model.task.score(examples, texts))
    for rate in rates:
        print(rate)
    quantiles = {f"{100 * share:g} %": 1000 * float(np.quantile(errors, share)) for share in (0.5, 0.9, 0.99)}
    shown = ", ".join(f"{share} within {value:.0f} ms" for share, value in quantiles.items())
    print(f"ends of {len(errors)} words of correct transcripts: {shown}")
    record = {rate.name: rate.value for rate in rates} | {"words": len(errors), "milliseconds": quantiles}
    output.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    app()
