"""A browser, and a real server with models that were trained in seconds."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from wav_files import draw_three_messages, encode_wav

import dragoman
from dragoman.corpora.phrasebook import write_phrasebook
from dragoman.recipe import Recipe

HERE = Path(__file__).parent
NAMES = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = next((found for name in NAMES if (found := shutil.which(name))), None)
FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip
SPEECH_HOST = "speech.test"  # a name for this machine that browsers do not take for secure
WINDOW = {"width": 1200, "height": 900}
MODEL = {"layers": 2, "width": 32, "inner_width": 32, "heads": 2, "dropout": 0.0, "norm": "pre"}
TRAINING = {
    "steps": 40, "batch_tokens": 256, "schedule": "linear", "rate": 0.02, "warmup": 4, "validate_every": 20,
    "validation_sample": 2, "checkpoint_every": 20, "keep": 2, "average": 1, "threads": 1,
}  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the tests of this folder in one process, so that one server serves them, and skip them without a browser."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.xdist_group("browser"))
            if "browser" in getattr(item, "fixturenames", ()) and not CHROMIUM:
                item.add_marker(pytest.mark.skip(reason=f"needs a browser: none of {', '.join(NAMES)} is here"))


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A few hundred pairs of the phrasebook."""
    folder = tmp_path_factory.mktemp("corpus")
    write_phrasebook(folder, {"train": 400})
    return folder


@pytest.fixture(scope="session")
def recipe_of(corpus: Path) -> Callable[..., Recipe]:
    """Return a recipe that trains within seconds: badly, but the words do not matter here."""

    def recipe(run: Path, source: str = "en", target: str = "de", **training: object) -> Recipe:
        files = {"source": str(corpus / f"train.{source}"), "target": str(corpus / f"train.{target}")}
        return Recipe.from_table(
            {
                "run": str(run), "data": {**files, "held_out": 4}, "tokenizer": {"size": 400}, "model": MODEL,
                "training": {**TRAINING, **training},
            }
        )  # fmt: skip

    return recipe


@pytest.fixture(scope="session")
def runs(recipe_of: Callable[..., Recipe], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ...]:
    """A model from English into German, one back, and one more that does what the first does."""
    folder = tmp_path_factory.mktemp("models")
    there = dragoman.train(recipe_of(folder / "there"))
    back = dragoman.train(recipe_of(folder / "back", "de", "en", steps=2, warmup=1, validate_every=2))
    return there.folder, back.folder, Path(shutil.copytree(there.folder, folder / "rival"))


@pytest.fixture(scope="session")
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., str]]:
    """Return a function that starts `dragoman` on a free port and returns its URL, which it prints when it listens."""
    started: list[subprocess.Popen[bytes]] = []

    def begin(*arguments: object) -> str:
        command = [sys.executable, "-m", "dragoman", *map(str, arguments), "--port", "0"]
        log = tmp_path_factory.mktemp("log") / "log"
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        with log.open("wb") as file:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=file, env=environment)
        started.append(process)
        assert process.stdout, "a pipe"
        url = process.stdout.readline().decode().strip().rstrip("/")
        assert url.startswith("http://127.0.0.1:"), log.read_text()
        return url

    yield begin
    for process in started:
        process.send_signal(signal.SIGTERM)
    for process in started:
        process.wait(120)
        process.stdout and process.stdout.close()


@pytest.fixture(scope="session")
def served(start: Callable[..., str], runs: tuple[Path, ...]) -> str:
    """The address of a server with all models."""
    return start("serve", *runs)


@pytest.fixture(scope="session")
def speech_server(start: Callable[..., str], transcriber: Path, runs: tuple[Path, ...]) -> str:
    """The address of a server with a transcriber and a translator."""
    limits = ("--limit", "recording_seconds=60", "--limit", "audio_bytes=2000000")
    return start("serve", transcriber, runs[0], "--allow-host", SPEECH_HOST, *limits)


@pytest.fixture(scope="session")
def recording(transcriber: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording that the transcriber reads in several segments."""
    path = tmp_path_factory.mktemp("recordings") / "three.wav"
    path.write_bytes(encode_wav(draw_three_messages()))
    return path


@pytest.fixture(scope="module")
def browser_flags() -> tuple[str, ...]:
    """Further options of the browser; a module may have its own."""
    return ()


@pytest.fixture(scope="module")
def browser(browser_flags: tuple[str, ...]) -> Iterator[Any]:
    """A browser; not for the whole session, because its event loop would be in the way of other tests."""
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=[*FLAGS, *browser_flags])
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def usual(browser: Any) -> Iterator[Any]:
    """A window that tests share, because a new one takes a second."""
    context = browser.new_context(viewport=WINDOW)
    yield context
    context.close()


@pytest.fixture
def visit(browser: Any, usual: Any) -> Iterator[Callable[..., Any]]:
    """Return a function that opens an address. Whatever is opened has no fault, and asks only its own host."""
    faults: list[str] = []
    opened = []

    def visited(address: str, prepare: Callable[[Any], None] = lambda page: None, **options: Any) -> Any:
        page = browser.new_page(**{"viewport": WINDOW, **options}) if options else usual.new_page()
        opened.append(page)
        page.set_default_timeout(120_000)
        host = address.split("/")[2]
        page.on("pageerror", lambda error: faults.append(f"error: {error}"))
        page.on("console", lambda said: faults.append(said.text) if "Content Security Policy" in said.text else None)
        page.on("request", lambda asked: None if own(asked.url, host) else faults.append(f"asked for {asked.url}"))
        prepare(page)
        page.goto(address)
        return page

    yield visited
    for page in opened:
        page.close()
    assert not faults, faults


def own(url: str, host: str) -> bool:
    """Say whether a request stays on the host, or needs none."""
    return url.split(":")[0] in ("data", "blob") or [*url.split("/"), "", ""][2] == host


@pytest.fixture
def page(visit: Callable[..., Any], served: str) -> Any:
    """The page of the server, ready to be typed into."""
    page = visit(served)
    page.wait_for_selector("#from option", state="attached")
    return page
