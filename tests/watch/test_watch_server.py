"""The served page: what it answers, what it refuses, and that it ends with the training and never harms it."""

import asyncio
import json
import shutil
import signal
import socket
import subprocess
import sys
import urllib.parse
import urllib.request

import pytest
from sites import until

import dragoman
from dragoman.server.problems import Problem
from dragoman.watch import inspector
from dragoman.watch.background import background_page


def test_the_page_and_all_it_needs_come_from_here(site):
    page = site.get("")
    assert page.status == 200
    assert page.headers["content-type"].startswith("text/html")
    for name in ("watch.js", "watch.css", "curve.js", "icon.svg"):
        assert site.get(f"watch/page/{name}").status == 200
    assert b"style=" not in page.body and b"<script>" not in page.body and b"http" not in page.body


def test_every_answer_has_the_headers_that_keep_a_browser_safe(site):
    for path in ("", "summary", "samples/4", "nothing", "watch/page/watch.js"):
        headers = site.get(path).headers
        assert headers["content-security-policy"].startswith("default-src 'self'")
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_one_can_only_read(site, method):
    assert site.get("summary", method).status == 405


def test_another_name_and_another_sites_page_are_refused(site):
    assert site.get("summary", Host="evil.example").status == 421
    assert site.get("summary", Origin="http://evil.example").status == 403


@pytest.mark.parametrize("path", ["watch/page/../app.py", "watch/page/%2e%2e/app.py", "watch/page/..%2f..%2frun.py"])
def test_nothing_else_can_be_read(site, path):
    assert site.get(path).status == 404


def test_the_summary_is_that_of_the_run(site):
    summary = site.get("summary").json()
    assert (summary["status"], summary["step"]) == ("finished", 8)


def test_events_tell_of_a_file_that_grows(site):
    run = site.run
    with urllib.request.urlopen(site.address + "events", timeout=60) as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        first = json.loads(stream.readline().removeprefix(b"data: "))
        with (run / "metrics.jsonl").open("a") as file:
            file.write('{"event": "train", "step": 9, "nll": 1.0}\n{"event": "tra')
        stream.readline()
        second = json.loads(stream.readline().removeprefix(b"data: "))
    assert (first["step"], second["step"]) == (8, 9)


def test_samples_are_answered_by_validation(site):
    assert len(site.get("samples/4").json()) == 2
    assert site.get("samples/5").status == 404
    assert site.get("samples/five").status == 404


def test_a_look_is_made_when_it_is_asked_for(site):
    newest = site.get("inspect?text=a+b+c").json()
    assert newest["checkpoint"] == 8
    assert newest["source"]["text"] == "a b c"
    assert newest["kinds"]["cross"]["heads"] == 2
    earlier = site.get("inspect?text=a+b+c&checkpoint=4").json()
    assert earlier["checkpoint"] == 4
    assert earlier["kinds"]["cross"]["weights"] != newest["kinds"]["cross"]["weights"]
    head = urllib.parse.quote('[["cross", 0, 1]]')
    assert site.get(f"inspect?text=a+b+c&ablate_heads={head}").json()["ablated_heads"] == [["cross", 0, 1]]
    assert [each["step"] for each in site.get("checkpoints").json()] == [4, 6, 8]


@pytest.mark.parametrize(
    "question",
    [
        "", "text=", "text=%20", "text=" + "a" * 1001, "text=" + "+a" * 450,
        "text=a&checkpoint=x", "text=a&checkpoint=-1", "text=a&checkpoint=5",
        "text=a&ablate_heads=x", "text=a&ablate_heads=7", "text=a&ablate_heads={}", "text=a&ablate_heads=[[1]]",
        'text=a&ablate_heads=[["cross",9,9]]', 'text=a&ablate_heads=[["cross","0",1]]',
    ],
)  # fmt: skip
def test_a_look_that_makes_no_sense_is_refused_in_words(site, question):
    answer = site.get("inspect?" + question.replace('"', "%22"))
    assert answer.status == 422
    assert len(answer.json()["error"]) > 20


def test_the_page_ends_when_the_training_is_killed(trained):
    script = (
        "import sys, socket\nfrom pathlib import Path\nfrom dragoman.watch.background import background_page\n"
        "listening = socket.create_server(('127.0.0.1', 0))\nport = listening.getsockname()[1]\n"
        "with background_page(Path(sys.argv[1]), listening):\n    print(port, flush=True)\n    sys.stdin.read()\n"
    )
    training = subprocess.Popen(
        [sys.executable, "-c", script, str(trained)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert training.stdout
    port = int(training.stdout.readline())
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/summary", timeout=60) as answer:
        assert answer.status == 200
    training.send_signal(signal.SIGKILL)
    training.wait()
    assert until(lambda: not answers(port))


def test_stopping_the_page_while_it_is_open_writes_nothing(trained):
    """uvicorn complained about the stream of events, which had not ended."""
    command = [sys.executable, "-m", "dragoman", "watch", str(trained), "--port", "0"]
    page = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert page.stdout
    with urllib.request.urlopen(page.stdout.readline().strip() + "events", timeout=60) as stream:
        stream.readline()
        page.send_signal(signal.SIGINT)
        _, errors = page.communicate()
    assert (page.returncode, errors) == (0, "")


def answers(port):
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    except OSError:
        return False
    return True


def test_a_training_is_not_disturbed_by_being_watched(command, toy_recipe, tmp_path):
    (tmp_path / "recipe.toml").write_text(toy_recipe(tmp_path / "watched", "training.steps=4").to_toml())
    result = command("train", tmp_path / "recipe.toml", "--watch", "--watch-port", 0)
    assert result.code == 0
    assert "Live page: http://127.0.0.1:" in result.err
    alone = dragoman.train(toy_recipe(tmp_path / "alone", "training.steps=4")).folder
    names = ("model.safetensors", "tokenizer.json")
    assert all((tmp_path / "watched" / name).read_bytes() == (alone / name).read_bytes() for name in names)


def test_a_training_goes_on_when_its_page_dies(trained, monkeypatch):
    monkeypatch.setattr(sys, "executable", shutil.which("false"))
    with background_page(trained, socket.create_server(("127.0.0.1", 0))):
        pass


def test_a_port_that_is_taken_is_refused_before_the_training_begins(command, toy_recipe, tmp_path):
    (tmp_path / "recipe.toml").write_text(toy_recipe(tmp_path / "run").to_toml())
    with socket.create_server(("127.0.0.1", 0)) as taken:
        result = command("train", tmp_path / "recipe.toml", "--watch", "--watch-port", taken.getsockname()[1])
    assert result.code == 2
    assert "Cannot listen on 127.0.0.1" in result.err
    assert not (tmp_path / "run").exists()


def test_others_may_not_watch_without_a_token(command, trained):
    result = command("watch", trained, "--host", "0.0.0.0")
    assert result.code == 2
    assert "Set --token" in result.err
    assert command("watch", trained / "recipe.toml").code == 2


def test_a_looker_that_dies_is_an_answer_and_the_next_one_is_another(trained, monkeypatch):
    async def asked():
        asking = inspector.Inspector(trained)
        monkeypatch.setattr(sys, "executable", shutil.which("true"))
        child = await asking._running_child()
        with pytest.raises(Problem, match="try again"):
            await asking.request(text="a")
        assert asking.child is None
        assert asking.waiting == 0
        await child.process.wait()

    asyncio.run(asked())
