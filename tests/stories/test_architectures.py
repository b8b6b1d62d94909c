"""A model of any architecture is trained, used and inspected by the same commands."""

import json
import re

import pytest
from matplotlib.image import imread

import dragoman
from dragoman.errors import UserError
from dragoman.interop.ctranslate2 import export_run
from dragoman.models.architectures import ARCHITECTURES
from dragoman.models.weights import running_statistics
from dragoman.server.inspection import record_details
from dragoman.server.registry import _NO_WEIGHTS, ServedModel

CHOICES = {
    **{name: [f"model.architecture={name}"] for name in ARCHITECTURES},
    "concatenated embeddings": ["model.architecture=bag_of_embeddings", "model.pooling=concatenate"],
    "recurrent without attention": ["model.architecture=recurrent", "model.cell=gru", "model.score=none"],
    "batch": ["model.normalisation=batch"],
    "window": ["model.pattern=window", "model.window=2"],
}
KINDS = {
    "recurrent": {"cross"}, "recurrent without attention": set(),
    "convs2s": {"cross"}, "bytenet": set(), "bag_of_embeddings": set(), "concatenated embeddings": set(),
}  # fmt: skip


@pytest.fixture(scope="module", params=CHOICES)
def choice(request):
    return request.param


@pytest.fixture(scope="module")
def run(choice, toy_recipe, tmp_path_factory):
    """A run that was trained for a few steps."""
    short = ["training.steps=3", "training.validation_sample=0", "decoding.extra_length=3", "decoding.beam=2"]
    return dragoman.train(toy_recipe(tmp_path_factory.mktemp("architectures") / "run", *short, *CHOICES[choice])).folder


def test_it_is_trained_and_has_a_model_card(run):
    entries = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert max(entry["step"] for entry in entries) == 3
    assert "million parameters" in (run / "README.md").read_text()


def test_it_translates_one_line_a_line_by_beam_search(run, command):
    found = command("translate", run, "--beam", "2", stdin=b"a b c\n\nh\n")
    assert found.code == 0, found.err
    lines = found.out.split("\n")
    assert len(lines) == 4
    assert not lines[1]
    assert dragoman.load(run).translate(["a b c", "", "h"], beam=2) == lines[:3]


def test_it_is_evaluated_and_described(run, command, tmp_path):
    (tmp_path / "source").write_text("a b\nc\n")
    scored = command("evaluate", run, "--source", tmp_path / "source", "--reference", tmp_path / "source", "--json")
    assert scored.code == 0, scored.err
    described = command("info", run)
    assert described.code == 0, described.err
    assert "width 16" in described.out
    assert json.loads(scored.out)["sentences"] == 2


def test_its_page_offers_the_kinds_of_attention_that_it_has(run, choice, command, tmp_path):
    written = command("attention", run, "a b c", "-o", tmp_path / "page.html")
    assert written.code == 0, written.err
    page = (tmp_path / "page.html").read_text()
    block = re.search(r'<script[^>]*id="dv-record"[^>]*>(.*?)</script>', page, re.DOTALL)
    look = json.loads(block[1])
    offered = {kind for kind, of in look["kinds"].items() if of["layers"]}
    assert offered == KINDS.get(choice, {"encoder", "decoder", "cross"})
    assert bool(look["alignment"]["methods"]) == ("cross" in offered)
    assert look["can_ablate"] == is_transformer(run)


def is_transformer(run):
    """Say whether the model of a run is the paper's, or a variation of it."""
    return dragoman.load(run).recipe.model.architecture == "transformer"


def test_all_that_the_search_tried_is_kept_on_request(run):
    record = dragoman.load(run).inspect("a b c", beam=2, trace=True)
    assert record.beam.attention.shape == (len(record.beam.nodes), len(record.source_pieces))
    assert len(record.steps) == len(record.target_pieces)


def test_its_heads_are_measured_or_it_says_that_it_has_none(run, choice, command):
    found = command("heads", run, "--sentences", "4")
    if KINDS.get(choice, {"cross"}):
        assert found.code == 0, found.err
        report = json.loads((run / "heads" / "model.json").read_text())
        assert {head["kind"] for head in report["heads"]} == KINDS.get(choice, {"encoder", "decoder", "cross"})
        assert all(("importance" in head) == is_transformer(run) for head in report["heads"])
    else:
        assert found.code == 2
        assert "has no attention to measure" in found.err


def test_a_picture_shows_its_heads_or_the_command_says_that_there_are_none(run, choice, command, tmp_path):
    found = command("attention", run, "a b", "-o", tmp_path / "heads.png")
    if KINDS.get(choice, {"cross"}):
        assert found.code == 0, found.err
        assert imread(tmp_path / "heads.png")[..., :3].std() > 0.05  # not blank
    else:
        assert found.code == 2
        assert "has no attention weights" in found.err


def test_only_the_heads_of_a_transformer_can_be_switched_off(run):
    model = dragoman.load(run)
    if is_transformer(run):
        assert model.inspect("a b", ablate_heads=[("cross", 0, 1)]).ablated_heads == (("cross", 0, 1),)
    else:
        with pytest.raises(UserError, match="Only the heads of a Transformer can be ablated"):
            model.inspect("a b", ablate_heads=[("cross", 0, 0)])


def test_only_what_another_engine_computes_is_exported(run, choice, tmp_path):
    if choice == "transformer":  # the only one here that another engine can compute
        pytest.importorskip("ctranslate2")
        assert (export_run(run, tmp_path / "exported") / "model.bin").exists()
    else:
        with pytest.raises(UserError, match=r"cannot be exported: its \[model\] \w+ is"):
            export_run(run, tmp_path / "exported")
        assert not (tmp_path / "exported").exists()


def test_only_batch_normalisation_counts(run, choice):
    assert bool(running_statistics(dragoman.load(run).model)) == (choice == "batch")


def test_the_service_describes_it_and_links_the_words_that_it_can(run, choice):
    translator = dragoman.load(run)
    served = ServedModel("toy", run, "en", "de", translator, _NO_WEIGHTS)
    kinds = KINDS.get(choice, {"encoder", "decoder", "cross"})
    assert served.describe()["attention"].keys() == kinds
    assert (served.describe()["heads"] > 0) == bool(kinds)
    best = translator.build_engine(translator.decoding_config()).search([translator.source_tokens("a b c")])[0][0]
    (details,) = record_details(translator, [("a b c", best.tokens)], None)
    assert len(details["tokens"]) == len(best.tokens)
    assert "cross" in kinds or details["alignment"] == []
