"""Make the README's pictures of the page, the viewer and the training page, with a real server and a real browser.

    python docs/make_screenshots.py runs/quickstart

The run is the quick start's. Needs chromium and what `pip install -e ".[dev]"` brings.
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

HERE = Path(__file__).parent
SENTENCE = "The lamp is old, but it works."
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
COLOURS = 200  # enough for a page, and a quarter of the bytes


@contextmanager
def serving(*arguments: str) -> Iterator[str]:
    """Start `dragoman` with a port of its own; give its address when it answers."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    process = subprocess.Popen([sys.executable, "-m", "dragoman", *arguments, "--port", str(port)])
    address = f"http://127.0.0.1:{port}"
    try:
        wait_for(f"{address}/", process)
        yield address
    finally:
        process.terminate()
        process.wait(30)


def wait_for(url: str, process: "subprocess.Popen[bytes]") -> None:
    """Wait until an address answers."""
    while process.poll() is None:
        try:
            urllib.request.urlopen(url, timeout=5).close()
            return
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    sys.exit(f"the server ended with {process.returncode}")


def keep(picture: bytes, name: str) -> None:
    """Write a picture with few colours, so that it is small."""
    image = Image.open(io.BytesIO(picture)).convert("RGB")
    image.quantize(COLOURS, dither=Image.Dither.NONE).save(HERE / name, optimize=True)
    sys.stdout.write(f"{name}: {image.width} x {image.height}, {(HERE / name).stat().st_size / 1000:.0f} kB\n")


def translating(page: Any, address: str) -> None:
    """Show the page with a sentence and the alternatives to one of its words."""
    page.goto(address)
    page.fill("#source", SENTENCE)
    page.wait_for_selector("#target .word")
    page.locator("#target .word").last.click()
    page.wait_for_selector("#others-list button, #others-status:not(:empty)")
    page.wait_for_timeout(500)
    keep(page.screenshot(), "page.png")
    page.keyboard.press("Escape")


def looking_inside(page: Any) -> None:
    """Show the viewer below the translation, with a word pointed at."""
    page.click("#inspect")
    page.wait_for_selector("#view canvas")
    page.wait_for_timeout(1500)
    page.locator("#view .dv-target .dv-word").nth(1).hover()
    page.wait_for_timeout(500)
    box = page.locator(".inspection").bounding_box()
    frame = {"x": 0, "y": box["y"] - 8, "width": page.viewport_size["width"], "height": box["height"] + 24}
    keep(page.screenshot(clip=frame, full_page=True), "viewer.png")


def training(page: Any, address: str) -> None:
    """Show the page of a training."""
    page.set_viewport_size({"width": 1120, "height": 860})
    page.goto(address)
    page.wait_for_timeout(2000)
    keep(page.screenshot(), "training.png")


def main(run: str) -> None:
    """Make all of them."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=FLAGS)
        size = {"width": 1120, "height": 540}
        page = browser.new_page(viewport=size, device_scale_factor=2, color_scheme="light")
        with serving("serve", run) as address:
            translating(page, address)
            looking_inside(page)
        with serving("watch", run) as address:
            training(page, address)
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "runs/quickstart")
