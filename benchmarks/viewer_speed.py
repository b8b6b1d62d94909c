"""How fast does the viewer paint, and at what frame rate does it follow the pointer?

    python benchmarks/viewer_speed.py [--run runs/mine] [--text "A sentence."]

Without a run it creates one with 6 layers and 8 heads and random weights. With a real server and a real browser, it
measures the time from the answer of `/v1/attention` to the first frame that shows it, when the viewer is opened and
when the sentence changes, and the frames per second while the pointer moves over words and thumbnails. Prints a table
and writes one JSON record.
"""

import json
import os
import platform
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import typer
from playwright.sync_api import sync_playwright

import dragoman
from dragoman.corpora.phrasebook import phrasebook, write_phrasebook
from dragoman.recipe import Recipe

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]

# Notes the moment of the first frame after the viewer put something on the page.
NOTE_FIRST_PAINT = """
() => {
  window.firstPaint = new Promise((resolve) => {
    const watcher = new MutationObserver(() => {
      if (!document.querySelector('#view canvas')) return;
      watcher.disconnect();
      requestAnimationFrame(() => setTimeout(() => resolve(performance.now())));
    });
    watcher.observe(document.querySelector('#view'), { childList: true, subtree: true });
  });
}"""
ANSWERED = """
performance.getEntriesByType('resource').filter((one) => one.name.includes('v1/attention')).at(-1).responseEnd"""

# Counts frames until it is asked for their times.
COUNT_FRAMES = """
() => {
  window.frames_at = [];
  const note = (now) => { window.frames_at.push(now); if (!window.enough) requestAnimationFrame(note); };
  window.enough = false;
  requestAnimationFrame(note);
}"""


def main(
    run: Annotated[Path | None, typer.Option(help="A run directory; one is made if none is named.")] = None,
    text: Annotated[str, typer.Option(help="The sentence; a long one of the phrasebook if none is given.")] = "",
    rounds: Annotated[int, typer.Option(help="How often the viewer is opened.")] = 5,
    seconds: Annotated[float, typer.Option(help="How long the pointer wanders.")] = 5.0,
    output: Annotated[Path, typer.Option(help="Where to write the record.")] = Path("viewer_speed.json"),
) -> None:
    """Measure and report."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        place = run or random_run(Path(folder))
        text = text or max((pair.source for pair in phrasebook("train", 2000)), key=len)
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        with start_server(place) as address:
            first = [first_paint(browser, address, text) for _ in range(rounds)]
            page = open_viewer(browser, address, text)
            record = {
                "machine": f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores",
                "browser": browser.version, "text": text, "matrices": page.locator("#view canvas").count(),
                "first_paint_milliseconds": first,
                "next_paint_milliseconds": [next_paint(page, f"{text} {number}") for number in range(rounds)],
                "frames_a_second": {what: measure_frame_rate(page, what, seconds) for what in ("word", "thumbnail")},
            }  # fmt: skip
        browser.close()
    report(record)
    output.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


def report(record: dict[str, Any]) -> None:
    """Print what was measured."""
    print(f"{record['machine']}, Chromium {record['browser']}, {record['matrices']} canvases on the page")
    for which in ("first", "next"):
        paints = record[f"{which}_paint_milliseconds"]
        print(f"{which} paint after the answer: median {statistics.median(paints):.0f} ms, worst {max(paints):.0f} ms")
    for what, (mean, slowest) in record["frames_a_second"].items():
        print(f"pointing at a {what}: {mean:.0f} frames/s, 95 % of the frames within {slowest:.0f} ms")


def random_run(folder: Path) -> Path:
    """Make a model of the paper's shape, narrow, and trained for one step."""
    write_phrasebook(folder, {"train": 300})
    table = {
        "run": str(folder / "run"),
        "data": {"source": str(folder / "train.en"), "target": str(folder / "train.de"), "held_out": 4},
        "tokenizer": {"size": 400},
        "model": {"layers": 6, "width": 64, "inner_width": 64, "heads": 8},
        "training": {"steps": 1, "warmup": 1, "batch_tokens": 256, "validation_sample": 1},
    }
    return dragoman.train(Recipe.from_table(table)).folder


@contextmanager
def start_server(run: Path) -> Iterator[str]:
    """Serve a run on a free port."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    process = subprocess.Popen([sys.executable, "-m", "dragoman", "serve", str(run), "--port", str(port)])
    try:
        while process.poll() is None:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5).close()
                break
            except (urllib.error.URLError, OSError):
                time.sleep(0.2)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(30)


def open_viewer(browser: Any, address: str, text: str) -> Any:
    """Open the page and look inside a text."""
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto(address)
    page.fill("#source", text)
    page.wait_for_selector("#inspect:enabled")
    page.evaluate(NOTE_FIRST_PAINT)
    page.click("#inspect")
    page.evaluate("firstPaint")
    return page


def first_paint(browser: Any, address: str, text: str) -> float:
    """Return the milliseconds from the first answer to the first frame that shows it, in a page just opened."""
    page = open_viewer(browser, address, text)
    passed = float(page.evaluate("firstPaint") - page.evaluate(ANSWERED))
    page.close()
    return passed


def next_paint(page: Any, text: str) -> float:
    """Return the milliseconds from the answer to the first frame that shows it, of another sentence."""
    page.evaluate(NOTE_FIRST_PAINT)
    page.fill("#source", text)
    return float(page.evaluate("firstPaint") - page.evaluate(ANSWERED))


def measure_frame_rate(page: Any, what: str, seconds: float) -> tuple[float, float]:
    """Return the frames a second while the pointer wanders over all of one kind, and the 95th percentile of a frame."""
    page.evaluate("document.querySelector('#view').scrollIntoView()")
    boxes = [box for one in page.locator(SELECTORS[what]).all() if (box := one.bounding_box())]
    page.evaluate(COUNT_FRAMES)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for box in boxes:
            page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    times = page.evaluate("(window.enough = true, window.frames_at)")
    lengths = sorted(after - before for before, after in pairwise(times))
    return 1000 * len(lengths) / (times[-1] - times[0]), lengths[int(0.95 * len(lengths))]


SELECTORS = {"word": "#view .dv-word", "thumbnail": "#view .dv-thumb"}

if __name__ == "__main__":
    typer.run(main)
