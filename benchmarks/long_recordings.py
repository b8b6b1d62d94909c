"""How long does it take to transcribe a long recording, and how much memory? Recordings of a corpus are joined.

    python benchmarks/long_recordings.py runs/an4 ../shared/data/an4/dev.tsv [--minutes 60]

Joins the recordings of a manifest, again and again, with pauses of half a second, to recordings of 1, 10 and 60
minutes, and runs `dragoman transcribe --format json` on each, on one thread. Prints the time, the real-time factor
(time divided by the length), the peak memory of the process, and the word error rate of the whole; writes one JSON
record.
"""

import itertools
import json
import os
import subprocess
import sys
import time
import wave
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import numpy as np
import typer

from dragoman.data.signal_corpus import SignalCorpus, open_signal
from dragoman.data.sound_files import read_sound
from dragoman.evaluation.error_rates import score_transcripts

PAUSE_SECONDS = 0.5
MINUTES = (1.0, 10.0, 60.0)


def write_recording(path: Path, corpus: SignalCorpus, seconds: float) -> tuple[float, str]:
    """Write a recording of at least so many seconds; return its length and its text."""
    written, texts = 0, []
    with wave.open(str(path), "wb") as file:
        for source, text in itertools.cycle(corpus.pairs()):
            with open_signal(source) as opened:
                samples, rate = read_sound(opened, source)
            if not written:
                file.setparams((1, 2, rate, 0, "NONE", ""))
            pause = np.zeros(round(PAUSE_SECONDS * rate), np.float32)
            sound = np.rint(np.concatenate([samples, pause]) * 32767).astype("<i2")
            file.writeframes(sound.tobytes())
            written += len(sound)
            texts.append(text)
            if written >= seconds * rate:
                return written / rate, " ".join(texts)
    raise AssertionError("the recordings are repeated for ever")


def measure(run: str, path: Path) -> tuple[float, int, str]:
    """Return the seconds that a transcription takes, the peak memory in bytes, and the transcript."""
    command = [sys.executable, "-m", "dragoman", "transcribe", run, str(path), "--format", "json"]
    started_at = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, "OMP_NUM_THREADS": "1"}) as process:
        assert process.stdout
        output = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, f"dragoman transcribe exited with {process.returncode}"
    return time.perf_counter() - started_at, 1024 * usage.ru_maxrss, json.loads(output)["text"]


def main(
    run: str,
    manifest: Path,
    longest: Annotated[float, typer.Option("--minutes", help="Length of the longest recording.")] = 60.0,
    output: Annotated[Path, typer.Option(help="File to write the record to.")] = Path("long_recordings.json"),
) -> None:
    """Measure every length."""
    rows = []
    print("minutes  seconds  real-time factor       MB   WER")
    with TemporaryDirectory() as folder:
        for minutes in (each for each in MINUTES if each <= longest):
            path = Path(folder) / "long.wav"
            length, reference = write_recording(path, SignalCorpus(manifest), 60 * minutes)
            seconds, memory, text = measure(run, path)
            wer = next(iter(score_transcripts([str(path)], [text], [(reference,)], intervals=False).rates)).value
            rows.append({"length": length, "seconds": seconds, "bytes": memory, "wer": wer})
            print(
                f"{length / 60:7.1f} {seconds:8.1f} {seconds / length:17.3f} {memory / 1e6:8.0f} {wer:5.1f}", flush=True
            )
    output.write_text(json.dumps({"run": run, "rows": rows}, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    typer.run(main)
