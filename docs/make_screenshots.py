"""Write the pictures of the README and of transcription.md: the served page, with a translator (page.png) and with a
transcriber (transcription.png), the viewer, a training and a parse tree.

    python docs/make_screenshots.py runs/quickstart runs/quickstart-transcribe

The runs are those of the quick start; pictures of a run that does not exist are not written. Needs Chromium and the
extra `dev`.
"""

import io
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import soundfile
from PIL import Image
from playwright.sync_api import sync_playwright

from dragoman.corpora.morse import draw_recording
from dragoman.evaluation.trees import read_tree
from dragoman.viewer.tree_drawing import tree_page

HERE = Path(__file__).parent
SENTENCE = "The lamp is old, but it works."
TREE = (
    "(TOP (S (NP (DT The) (NN company)) (VP (VBD said) (SBAR (S (NP (PRP it)) (VP (MD will) (RB not) (VP (VB sell) "
    "(NP (PRP$ its) (NNS shares)) (PP (IN in) (NP (DT the) (NN bank))) (NP (JJ next) (NN year))))))) (. .)))"
)
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
COLOURS = 200  # enough for a page, at a quarter of the size


@contextmanager
def run_server(*arguments: str) -> Iterator[str]:
    """Start `dragoman` on a free port, and yield its address once it responds."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen([sys.executable, "-m", "dragoman", *arguments, "--port", str(port)])
    address = f"http://127.0.0.1:{port}"
    try:
        wait_for(f"{address}/", process)
        yield address
    finally:
        process.terminate()
        process.wait(30)


def wait_for(url: str, process: "subprocess.Popen[bytes]") -> None:
    """Wait until a URL responds."""
    while process.poll() is None:
        try:
            urllib.request.urlopen(url, timeout=5).close()
            return
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    sys.exit(f"The server exited with code {process.returncode}.")


def save_picture(picture: bytes, name: str) -> None:
    """Write a picture with a reduced palette."""
    image = Image.open(io.BytesIO(picture)).convert("RGB")
    image.quantize(COLOURS, kmeans=1, dither=Image.Dither.NONE).save(HERE / name, optimize=True)
    sys.stdout.write(f"{name}: {image.width} x {image.height}, {(HERE / name).stat().st_size / 1000:.0f} kB\n")


def capture_translation(page: Any, address: str) -> None:
    """Capture the page with a sentence and the alternatives for one of its words."""
    page.goto(address)
    page.fill("#source", SENTENCE)
    page.wait_for_selector("#target .word")
    page.locator("#target .word").last.click()
    page.wait_for_selector("#others-list button, #others-status:not(:empty)")
    page.wait_for_timeout(500)
    save_picture(page.screenshot(), "page.png")
    page.keyboard.press("Escape")


def capture_viewer(page: Any) -> None:
    """Capture the viewer below the translation, with one word selected."""
    page.click("#inspect")
    page.wait_for_selector("#view canvas")
    page.wait_for_timeout(1500)
    page.locator("#view .dv-target .dv-word").nth(1).hover()
    page.wait_for_timeout(500)
    box = page.locator(".inspection").bounding_box()
    frame = {"x": 0, "y": box["y"] - 8, "width": page.viewport_size["width"], "height": box["height"] + 24}
    save_picture(page.screenshot(clip=frame, full_page=True), "viewer.png")


def capture_training(page: Any, address: str) -> None:
    """Capture the page of a training."""
    page.set_viewport_size({"width": 1120, "height": 860})
    page.goto(address)
    page.wait_for_timeout(2000)
    save_picture(page.screenshot(), "training.png")


def capture_tree(page: Any) -> None:
    """Capture a page of `dragoman parse --format html`."""
    page.goto("about:blank")  # without the security policy of the page before
    page.set_viewport_size({"width": 1120, "height": 630})
    page.set_content(tree_page([read_tree(TREE)]))
    save_picture(page.screenshot(), "tree.png")


def capture_transcription(page: Any, address: str) -> None:
    """Capture the page with a recording that is in no training set, and one of its words selected."""
    with tempfile.TemporaryDirectory() as folder:
        soundfile.write(f"{folder}/message.wav", draw_recording("test", 0)[2], 8000)
        page.goto(address)
        page.wait_for_selector("#sound-side:visible")
        page.set_input_files("#file", f"{folder}/message.wav")
        page.wait_for_selector("#target .word")
    page.locator("#target .word").first.hover()
    page.wait_for_timeout(500)
    save_picture(page.screenshot(), "transcription.png")


def write_pictures(run: Path, transcriber: Path) -> None:
    """Write the pictures of the runs that exist."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=FLAGS)
        size = {"width": 1120, "height": 540}
        page = browser.new_page(viewport=size, device_scale_factor=2, color_scheme="light")
        if run.exists():
            with run_server("serve", str(run)) as address:
                capture_translation(page, address)
                capture_viewer(page)
            with run_server("watch", str(run)) as address:
                capture_training(page, address)
            capture_tree(page)
        if transcriber.exists():
            smaller = browser.new_page(
                viewport={"width": 1120, "height": 620}, device_scale_factor=1.5, color_scheme="light"
            )
            with run_server("serve", str(transcriber)) as address:
                capture_transcription(smaller, address)  # noise does not compress
        browser.close()


if __name__ == "__main__":
    given = [Path(run) for run in sys.argv[1:3]]
    write_pictures(*(given + [Path("runs/quickstart"), Path("runs/quickstart-transcribe")][len(given) :]))
