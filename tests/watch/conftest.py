"""A page that is served by a real process, as `dragoman train --watch` starts it."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sites import Site

from dragoman.server.serve import bind_socket
from dragoman.watch.background import background_page


@pytest.fixture(scope="module")
def site(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The page of a copy of the trained run."""
    with page_of(shutil.copytree(trained, tmp_path_factory.mktemp("watched") / "run")) as site:
        yield site


@pytest.fixture(scope="module")
def hearing(transcriber: Path) -> Iterator[Site]:
    """The page of a transcriber."""
    with page_of(transcriber) as site:
        yield site


@contextmanager
def page_of(run: Path) -> Iterator[Site]:
    listening = bind_socket("127.0.0.1", 0)
    port = listening.getsockname()[1]
    with background_page(run, listening):
        yield Site(f"http://127.0.0.1:{port}/", run)
