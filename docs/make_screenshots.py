"""Write page.png, viewer.png, training.png and tree.png: the served page, the viewer, a training and a parse tree.

    python docs/make_screenshots.py runs/quickstart

The run is that of the quick start. Needs Chromium and the extra `dev`.
"""

import io
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import sync_playwright

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
    image.quantize(COLOURS, dither=Image.Dither.NONE).save(HERE / name, optimize=True)
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


def main(run: str) -> None:
    """Write all pictures."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=FLAGS)
        size = {"width": 1120, "height": 540}
        page = browser.new_page(viewport=size, device_scale_factor=2, color_scheme="light")
        with run_server("serve", run) as address:
            capture_translation(page, address)
            capture_viewer(page)
        with run_server("watch", run) as address:
            capture_training(page, address)
        capture_tree(page)
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "runs/quickstart")
