"""Those who are compared do the same work: the same batches, parameters, weights and lengths."""

from dataclasses import asdict

import pytest
import torch

from dragoman.bench import decoding
from dragoman.bench.config import QUICK_WORKLOAD, SIZES, BenchmarkConfig, endless_training_recipe, recipe_for_size
from dragoman.bench.ctranslate2_engine import CTranslate2Decoder, CTranslate2Options
from dragoman.bench.data import BenchmarkText, learn_tokenizers, tokenize_text, write_random_run
from dragoman.bench.decoding import (
    OUTPUT_TOKENS,
    BenchmarkSentences,
    decoding_engines,
    fixed_length_sentences,
    tokenize_sentences,
)
from dragoman.bench.dragoman_engine import DragomanDecoder
from dragoman.bench.huggingface_engine import HuggingFaceDecoder
from dragoman.bench.machine import MatmulPeak, describe_machine
from dragoman.bench.timing import TimedDecoder
from dragoman.bench.torch_baseline import TorchTransformer, batch_loader, is_torch_compatible
from dragoman.bench.training import TimedTraining
from dragoman.bench.workers import engine_spec
from dragoman.errors import UserError
from dragoman.interop.ctranslate2 import export_run, vocabulary_pieces
from dragoman.model_config import TransformerConfig
from dragoman.models.transformer import Transformer
from dragoman.recipe import Recipe
from dragoman.run import Run
from dragoman.tasks.sequence_model import load
from dragoman.tokens import END
from dragoman.training.trainer import Trainer

PLAN = BenchmarkConfig(workload=QUICK_WORKLOAD, sentences=6)
TINY = {"model": {"layers": 1, "width": 16, "inner_width": 16, "heads": 2}}
FORCED = {**TINY, "decoding": {"extra_length": 10}}


@pytest.fixture(scope="module")
def text(toy_pairs):
    sources, targets = zip(*toy_pairs, strict=True)
    return BenchmarkText("toys", list(sources), list(targets))


@pytest.fixture(scope="module")
def tokenizers(text):
    return learn_tokenizers(text, recipe_for_size("tiny", PLAN))


@pytest.fixture(scope="module")
def toy_material(text, tokenizers, tmp_path_factory):
    return tokenize_text(tmp_path_factory.mktemp("material") / "text", text, recipe_for_size("tiny", PLAN), tokenizers)


@pytest.fixture(scope="module")
def random_folder(tokenizers, tmp_path_factory):
    recipe = recipe_for_size("tiny", PLAN, overrides=FORCED)
    return write_random_run(tmp_path_factory.mktemp("runs") / "random", recipe, tokenizers).folder


@pytest.fixture(scope="module")
def random_weights(random_folder):
    return load(random_folder)


def toy_training(precision: str = "float32") -> Recipe:
    return endless_training_recipe(recipe_for_size("tiny", PLAN, overrides=TINY), PLAN, precision)


def test_a_small_text_has_a_vocabulary_of_full_size(tokenizers):
    assert [len(tokenizer) for tokenizer in tokenizers] == [QUICK_WORKLOAD.vocabulary_size] * 2


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_the_plain_transformer_has_as_many_parameters_as_ours(size, norm):
    config = recipe_for_size(size, PLAN, overrides={"model": {"norm": norm}}).model
    with torch.device("meta"):
        ours, theirs = Transformer(config, 400, 400), TorchTransformer(config, 400, 400)
    assert sum(p.numel() for p in ours.parameters()) == sum(p.numel() for p in theirs.parameters())


@pytest.mark.parametrize(
    ("change", "possible"), [({}, True), ({"positions": "learned"}, False), ({"key_width": 3}, False)]
)
def test_some_models_of_ours_no_plain_transformer_can_be(change, possible):
    assert is_torch_compatible(TransformerConfig(**change)) == possible


def test_the_plain_loop_gets_the_very_batches_of_our_training(toy_material):
    recipe = toy_training()
    trainer = Trainer(Run(toy_material.folder), recipe, toy_material.prepared_data())
    theirs = batch_loader(recipe, toy_material)
    for number in range(1, 6):
        for ours, (source, prefix, target, tokens) in zip(trainer.batches_of_step(number), theirs(number), strict=True):
            assert torch.equal(ours.source.values, source)
            assert torch.equal(ours.prefix, prefix)
            assert torch.equal(ours.target, target)
            assert ours.tokens == tokens


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_both_trainings_count_the_same_target_tokens_and_learn(toy_material, precision):
    recipe = toy_training(precision)
    described = recipe.model_dump(mode="json"), toy_material.describe()
    ours, theirs = TimedTraining("dragoman", *described), TimedTraining("torch", *described)
    before = [parameter.clone() for parameter in theirs.training.model.parameters()]
    turns = ours.run_turn(2), theirs.run_turn(2)
    assert turns[0].tokens == turns[1].tokens > 0
    assert all(turn.seconds > 0 and turn.memory > 1e6 for turn in turns)
    assert all((a != b).any() for a, b in zip(before, theirs.training.model.parameters(), strict=True))


@pytest.mark.parametrize("beam", [1, 4])
def test_random_weights_answer_with_the_forced_length(random_weights, random_folder, text, beam):
    sentences = fixed_length_sentences(text, random_weights, PLAN)
    assert {len(source) for source in sentences.sources} == {decoding.SOURCE_TOKENS + 1}
    assert len(sentences.sources) == 6
    decoder = engine_spec(DragomanDecoder, str(random_folder), 1, "float32")
    answer = TimedDecoder(decoder, sentences.sources, 2).run_turn("bulk", beam)
    assert {len(output) for output in answer.outputs} == {OUTPUT_TOKENS}


@pytest.mark.parametrize("beam", [1, 4])
def test_ctranslate2_gives_our_translations_from_the_same_weights(trained, text, beam, tmp_path):
    pytest.importorskip("ctranslate2")
    translator = load(trained)
    folder = export_run(trained, tmp_path / "exported", quantization="float32")
    vocabularies = vocabulary_pieces(translator.source_tokenizer), vocabulary_pieces(translator.target_tokenizer)
    sources = tokenize_sentences(text, translator, PLAN, pytest.fail).sources
    options = asdict(CTranslate2Options("float32", 1, 1, max_length=60))
    theirs = TimedDecoder(engine_spec(CTranslate2Decoder, str(folder), *vocabularies, options), sources, 2)
    ours = TimedDecoder(engine_spec(DragomanDecoder, str(trained), 1, "float32"), sources, 2)
    assert theirs.run_turn("warm-up", beam).batch_size
    found = [each.run_turn("bulk", beam).outputs for each in (ours, theirs)]
    assert [len(outputs) for outputs in found] == [6, 6]
    assert beam > 1 or found[0] == found[1]  # with a beam the two penalise length differently


def test_hugging_face_answers_with_the_forced_length(text):
    pytest.importorskip("transformers")
    sources = [[*range(4, 19), END]] * 3
    timed = TimedDecoder(engine_spec(HuggingFaceDecoder, TINY["model"], 40, OUTPUT_TOKENS, 1), sources, 2)
    assert timed.run_turn("warm-up", 1).batch_size == "64 examples"
    for beam in (1, 4):
        assert {len(output) for output in timed.run_turn("bulk", beam).outputs} == {OUTPUT_TOKENS}


def test_one_at_a_time_every_sentence_has_its_own_duration(random_folder):
    timed = TimedDecoder(engine_spec(DragomanDecoder, str(random_folder), 1, "float32"), [[5, 6, END]] * 4, 3)
    assert [len(timed.run_turn(way, 1).seconds) for way in ("warm-up", "bulk", "one at a time")] == [0, 1, 3]


def test_engines_that_are_not_installed_are_left_out_with_a_note(monkeypatch, random_weights, random_folder):
    monkeypatch.setattr(decoding, "installed_version", lambda package: None)
    notes: list[str] = []
    plan = BenchmarkConfig()
    sentences = BenchmarkSentences("toys", [[5, END]], None, fixed_length=True)
    with decoding_engines(random_folder, random_weights, sentences, plan, notes.append) as makes:
        assert list(makes) == ["dragoman float32", "dragoman int8"]
    assert [note.split(" is skipped because it is not installed")[0] for note in notes] == [
        "CTranslate2",
        "Hugging Face Transformers",
    ]


def test_ctranslate2_runs_in_both_precisions_with_one_worker_and_with_many(random_weights):
    sentences = BenchmarkSentences("toys", [[5, END]], None)
    ways = decoding.ctranslate2_options(random_weights, sentences, BenchmarkConfig(threads=3))
    assert [(way.quantization, way.workers, way.threads) for way in ways] == [
        ("float32", 1, 3), ("float32", 3, 1), ("int8", 1, 3), ("int8", 3, 1),
    ]  # fmt: skip
    assert {(way.min_length, way.max_length) for way in ways} == {(1, 11)}


def test_sentences_that_cannot_be_read_at_once_are_left_out_and_counted(random_weights):
    notes: list[str] = []
    long = " ".join(["a"] * 500)
    found = tokenize_sentences(
        BenchmarkText("toys", ["a b", long, " "], ["A", "B", "C"]), random_weights, PLAN, notes.append
    )
    assert (len(found.sources), found.references) == (1, ["A"])
    assert notes == ["toys: sentences skipped because they exceed 256 tokens: 1."]


def test_a_text_without_sentences_cannot_be_translated(random_weights):
    for cut in (
        lambda text: tokenize_sentences(text, random_weights, PLAN, pytest.fail),
        lambda text: fixed_length_sentences(text, random_weights, PLAN),
    ):
        with pytest.raises(UserError, match="toys: no sentence can be translated"):
            cut(BenchmarkText("toys", ["", " "], None))


def test_the_peak_is_measured_for_every_kind_of_number():
    speeds = MatmulPeak(1, 32, 0.0).run_turn()
    assert {"float32", "bfloat16"} <= speeds.keys() <= {"float32", "bfloat16", "int8"}
    assert all(speed > 0 for speed in speeds.values())


def test_a_machine_names_its_processor_threads_and_versions():
    machine = describe_machine(threads=2, cores=4)
    assert {"dragoman", "python", "torch"} <= machine.versions.keys()
    assert "2 threads on 4 cores" in str(machine)
    assert machine.processor in str(machine)
