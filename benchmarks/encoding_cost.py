"""What does it cost to encode a recording, with full and with window attention? Time and memory over its length.

    python benchmarks/encoding_cost.py [--window 65 --minutes 10]

Encodes random frames with the planned model of the task `transcribe` (untrained weights, one thread, float32). Each
measurement runs in its own process, as in restricted_attention.py; the time is the best of several turns. Prints a
table and the exponents fitted over all lengths, and writes one JSON record.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import torch
import typer
from restricted_attention import best_of, exponent, growth

from dragoman.model_config import TransformerConfig
from dragoman.models.transducer import Source
from dragoman.models.transformer import Transformer
from dragoman.presets import TASKS

FRAMES_PER_MINUTE, FRAME_WIDTH, TOKENS = 6000, 80, 32
MINUTES = (0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 60.0)
PATTERNS = ("full", "window")


def measure(pattern: str, minutes: float, window: int) -> dict[str, float]:
    """Encode one recording, and return the seconds and the bytes by which memory grew."""
    torch.set_num_threads(1)
    size = TASKS["transcribe"].planning.sizes[0].model
    config = TransformerConfig(
        **size, norm="pre", rotary=True, frame_width=FRAME_WIDTH, ctc_weight=0.3, pattern=pattern, window=window
    )
    model = Transformer(config, TOKENS, TOKENS).eval()

    def encode(frames: int) -> None:
        with torch.inference_mode():
            model.encode(Source.from_frames(torch.randn(1, frames, FRAME_WIDTH), torch.tensor([frames])))

    encode(400)  # libraries are loaded
    frames = round(FRAMES_PER_MINUTE * minutes)
    grown = growth(lambda: encode(frames))
    return {"seconds": best_of(lambda: encode(frames)), "bytes": grown}


def main(
    window: Annotated[int, typer.Option(help="Positions per query of window attention.")] = 65,
    longest: Annotated[float, typer.Option("--minutes", help="Length of the longest recording.")] = 10.0,
    output: Annotated[Path, typer.Option(help="File to write the record to.")] = Path("encoding_cost.json"),
    one: Annotated[str, typer.Option(help="Used by this script itself: one measurement.", hidden=True)] = "",
) -> None:
    """Measure every length with both kinds of attention."""
    if one:
        pattern, minutes = one.split(":")
        print(json.dumps(measure(pattern, float(minutes), window)))
        return
    lengths = [minutes for minutes in MINUTES if minutes <= longest]
    rows: dict[str, dict[float, dict[str, float]]] = {pattern: {} for pattern in PATTERNS}
    print("pattern  minutes  seconds       MB")
    for pattern in PATTERNS:
        for minutes in lengths:
            command = [sys.executable, __file__, "--window", str(window), "--one", f"{pattern}:{minutes}"]
            row = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            rows[pattern][minutes] = row
            print(f"{pattern:>7} {minutes:>8g} {row['seconds']:8.2f} {row['bytes'] / 1e6:8.0f}", flush=True)
    exponents = {
        pattern: {
            what: round(exponent({minutes: row[what] for minutes, row in measured.items()}), 2)
            for what in ("seconds", "bytes")
        }
        for pattern, measured in rows.items()
    }
    for pattern, fitted in exponents.items():
        print(f"{pattern:>7}  grows with the length to the power {fitted}")
    record = {"window": window, "torch": torch.__version__, "rows": rows, "exponents": exponents}
    output.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    typer.run(main)
