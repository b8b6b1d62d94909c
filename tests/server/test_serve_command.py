"""`dragoman serve` explains invalid options in a sentence and requires a token on non-loopback hosts."""

import shutil
import socket

import pytest

import dragoman
from dragoman.server import serve


@pytest.fixture
def listening():
    with socket.socket() as own:
        own.bind(("127.0.0.1", 0))
        own.listen()
        yield own.getsockname()[1]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--host", "0.0.0.0"], "without --token anyone can use the server"),
        (["--host", "0.0.0.0", "--without-token"], "give both --without-token and --open-to-all"),
        (["--host", "::", "--open-to-all"], "give both --without-token and --open-to-all"),
        (["--token", "short"], "8 to 512 ASCII letters"),
        (["--token", "with some spaces"], "without spaces"),
        (["--languages", "toy"], "such as NAME=en:de"),
        (["--languages", "toy=en"], "such as NAME=en:de"),
        (["--limit", "bodybytes=3"], 'Did you mean "body_bytes"'),
        (["--host", "no.such.host.invalid", "--token", "long-enough"], "Cannot listen on no.such.host.invalid"),
        (["--host", "192.0.2.1", "--token", "long-enough"], "Cannot listen on 192.0.2.1"),
    ],
)
def test_invalid_options_are_explained(command, run, options, words):
    outcome = command("serve", run, *options)
    assert outcome.code == 2
    assert words in outcome.err
    assert not outcome.out


def test_a_port_in_use_is_named(command, run, listening):
    outcome = command("serve", run, "--port", listening)
    assert outcome.code == 2
    assert f"port {listening}: Address already in use. Choose another --port" in outcome.err


def test_a_directory_that_is_not_a_run_is_named(command, tmp_path):
    assert f"{tmp_path / 'none'}: no such run directory" in command("serve", tmp_path / "none").err
    outcome = command("serve", tmp_path)
    assert (outcome.code, outcome.out) == (2, "")
    assert f"{tmp_path} is not a run directory: it has no recipe.toml" in outcome.err


def test_two_runs_with_the_same_name_and_languages_are_refused(command, run, tmp_path):
    twin = shutil.copytree(run, tmp_path / "toy")
    outcome = command("serve", run, twin, "--port", 0)
    assert outcome.code == 2
    assert f"{run} and {twin} have the same name and the same languages or task (source-target); rename" in outcome.err
    assert "Traceback" not in outcome.err


def test_a_server_can_be_open_to_all_with_two_options(command, run, monkeypatch):
    seen = []

    async def served(plan, listening, _opened):
        seen.append((plan.host, plan.token))
        listening.close()

    monkeypatch.setattr(serve, "serve", served)
    outcome = command("serve", run, "--host", "0.0.0.0", "--port", 0, "--without-token", "--open-to-all")
    assert (outcome.code, seen) == (0, [("0.0.0.0", None)])


def test_int8_weights_are_served_on_request(start, run):
    server = start(run, "--precision", "int8")
    assert server.get("/v1/info").json()["models"][0]["precision"] == "int8"
    assert server.translate("a b c") == dragoman.load(run).translate("a b c", precision="int8")
    assert server.stop() == 0


def test_an_unknown_precision_is_refused_with_the_known_ones(command, run):
    result = command("serve", run, "--precision", "int4", "--port", 0)
    assert result.code == 2
    assert 'precision is "int4"; it must be one of "float32", "int8"' in result.err
