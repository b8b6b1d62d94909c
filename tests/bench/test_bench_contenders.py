"""Those who are compared do the same work: the same batches, parameters, weights and lengths."""

from inspect import signature

import pytest
import torch

from dragoman.bench import decoding, training
from dragoman.bench.ctranslate import CTranslate2, Options
from dragoman.bench.decoding import OUTPUT_PIECES, Sentences, contenders, forced_sentences, sentences_of
from dragoman.bench.huggingface import HuggingFace
from dragoman.bench.machine import Peak, this_machine
from dragoman.bench.material import Text, learned, material, random_run
from dragoman.bench.ours import OurDecoder
from dragoman.bench.plain import PlainTraining, PlainTransformer, batches_of, can_be_plain
from dragoman.bench.plan import QUICK, SIZES, Plan, measured, recipe_of_size
from dragoman.bench.stopwatch import TimedDecoder
from dragoman.bench.training import OurTraining, TimedTraining
from dragoman.errors import UserError
from dragoman.model.transformer import Transformer
from dragoman.recipe import Model, Recipe
from dragoman.run import Run
from dragoman.tasks.export import export, pieces
from dragoman.tasks.train import Trainer, ignore, load
from dragoman.tokens import END
from dragoman.training import loop
from dragoman.training.distributed import ALONE
from dragoman.training.session import Stop

PLAN = Plan(effort=QUICK, sentences=6)
TINY = {"model": {"layers": 1, "width": 16, "inner_width": 16, "heads": 2}}
FORCED = {**TINY, "decoding": {"extra_length": 10}}


@pytest.fixture(scope="module")
def text(toy_pairs):
    sources, targets = zip(*toy_pairs, strict=True)
    return Text("toys", list(sources), list(targets))


@pytest.fixture(scope="module")
def tokenizers(text):
    return learned(text, recipe_of_size("tiny", PLAN))


@pytest.fixture(scope="module")
def toy_material(text, tokenizers, tmp_path_factory):
    return material(tmp_path_factory.mktemp("material") / "text", text, recipe_of_size("tiny", PLAN), tokenizers)


@pytest.fixture(scope="module")
def random_folder(tokenizers, tmp_path_factory):
    recipe = recipe_of_size("tiny", PLAN, more=FORCED)
    return random_run(tmp_path_factory.mktemp("runs") / "random", recipe, tokenizers).folder


@pytest.fixture(scope="module")
def random_weights(random_folder):
    return load(random_folder)


def toy_training(precision: str = "float32") -> Recipe:
    return measured(recipe_of_size("tiny", PLAN, more=TINY), PLAN, precision)


def test_a_small_text_has_a_vocabulary_of_full_size(tokenizers):
    assert [len(tokenizer) for tokenizer in tokenizers] == [QUICK.vocabulary] * 2


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_the_plain_transformer_has_as_many_parameters_as_ours(size, norm):
    how = recipe_of_size(size, PLAN, more={"model": {"norm": norm}}).model
    with torch.device("meta"):
        ours, theirs = Transformer(how, 400, 400), PlainTransformer(how, 400, 400)
    assert sum(p.numel() for p in ours.parameters()) == sum(p.numel() for p in theirs.parameters())


@pytest.mark.parametrize(
    ("change", "possible"), [({}, True), ({"positions": "learned"}, False), ({"key_width": 3}, False)]
)
def test_some_models_of_ours_no_plain_transformer_can_be(change, possible):
    assert can_be_plain(Model(**change)) == possible


def test_the_plain_loop_gets_the_very_batches_of_our_training(toy_material):
    recipe = toy_training()
    trainer = Trainer(Run(toy_material.folder), recipe, toy_material.prepared(), ALONE, ignore, Stop())
    theirs = batches_of(recipe, toy_material)
    for number in range(1, 6):
        for ours, (source, prefix, target, tokens) in zip(trainer.batches(number), theirs(number), strict=True):
            assert torch.equal(ours.source, source)
            assert torch.equal(ours.prefix, prefix)
            assert torch.equal(ours.target, target)
            assert ours.tokens == tokens


def test_our_training_gives_the_loop_all_that_dragoman_train_gives_it(monkeypatch, toy_material):
    """A crew was added to the loop with a default of one, and the benchmark trained with one core."""
    given: dict[str, object] = {}
    monkeypatch.setattr(training, "train", lambda *parts, **options: given.update(options))
    OurTraining(toy_training(), toy_material)
    options = {each.name for each in signature(loop.train).parameters.values() if each.kind is each.KEYWORD_ONLY}
    assert given.keys() == options - {"after", "skipped"}  # those two are for going on with a run


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_both_trainings_count_the_same_target_tokens_and_learn(toy_material, precision):
    recipe = toy_training(precision)
    ours, theirs = (TimedTraining(kind, recipe, toy_material) for kind in (OurTraining, PlainTraining))
    before = [parameter.clone() for parameter in theirs.training.model.parameters()]
    turns = ours.turn(2), theirs.turn(2)
    assert turns[0].tokens == turns[1].tokens > 0
    assert all(turn.seconds > 0 and turn.memory > 1e6 for turn in turns)
    assert all((a != b).any() for a, b in zip(before, theirs.training.model.parameters(), strict=True))


@pytest.mark.parametrize("beam", [1, 4])
def test_random_weights_answer_with_the_forced_length(random_weights, random_folder, text, beam):
    sentences = forced_sentences(text, random_weights, PLAN)
    assert {len(source) for source in sentences.sources} == {decoding.SOURCE_PIECES + 1}
    assert len(sentences.sources) == 6
    answer = TimedDecoder(OurDecoder, (random_folder, 1, "float32"), sentences.sources, 2).turn("bulk", beam)
    assert {len(output) for output in answer.outputs} == {OUTPUT_PIECES}


@pytest.mark.parametrize("beam", [1, 4])
def test_ctranslate2_gives_our_translations_from_the_same_weights(trained, text, beam, tmp_path):
    pytest.importorskip("ctranslate2")
    translator = load(trained)
    folder = export(trained, tmp_path / "exported", quantization="float32")
    vocabularies = pieces(translator.source_tokenizer), pieces(translator.target_tokenizer)
    sources = sentences_of(text, translator, PLAN, pytest.fail).sources
    options = Options("float32", 1, 1, longest=60)
    theirs = TimedDecoder(CTranslate2, (folder, *vocabularies, options), sources, 2)
    ours = TimedDecoder(OurDecoder, (trained, 1, "float32"), sources, 2)
    assert theirs.turn("warm-up", beam).batches
    found = [each.turn("bulk", beam).outputs for each in (ours, theirs)]
    assert [len(outputs) for outputs in found] == [6, 6]
    assert beam > 1 or found[0] == found[1]  # with a beam the two penalise length differently


def test_hugging_face_answers_with_the_forced_length(text):
    pytest.importorskip("transformers")
    sources = [[*range(4, 19), END]] * 3
    timed = TimedDecoder(HuggingFace, (Model(**TINY["model"]), 40, OUTPUT_PIECES, 1), sources, 2)
    assert timed.turn("warm-up", 1).batches == "64 examples"
    for beam in (1, 4):
        assert {len(output) for output in timed.turn("bulk", beam).outputs} == {OUTPUT_PIECES}


def test_one_at_a_time_every_sentence_has_its_own_duration(random_folder):
    timed = TimedDecoder(OurDecoder, (random_folder, 1, "float32"), [[5, 6, END]] * 4, 3)
    assert [len(timed.turn(way, 1).seconds) for way in ("warm-up", "bulk", "one at a time")] == [0, 1, 3]


def test_engines_that_are_not_installed_are_left_out_with_a_note(monkeypatch, random_weights, random_folder):
    monkeypatch.setattr(decoding, "installed", lambda package: None)
    notes: list[str] = []
    plan = Plan()
    sentences = Sentences("toys", [[5, END]], None, forced=True)
    with contenders(random_folder, random_weights, sentences, plan, notes.append) as makes:
        assert list(makes) == ["dragoman float32", "dragoman int8"]
    assert [note.split(" is not installed")[0] for note in notes] == ["CTranslate2", "Hugging Face Transformers"]


def test_ctranslate2_runs_in_both_precisions_with_one_worker_and_with_many(random_weights):
    sentences = Sentences("toys", [[5, END]], None)
    ways = decoding.ctranslate2_options(random_weights, sentences, Plan(threads=3))
    assert [(how.quantization, how.workers, how.threads) for how in ways] == [
        ("float32", 1, 3), ("float32", 3, 1), ("int8", 1, 3), ("int8", 3, 1),
    ]  # fmt: skip
    assert {(how.shortest, how.longest) for how in ways} == {(1, 11)}


def test_sentences_that_cannot_be_read_at_once_are_left_out_and_counted(random_weights):
    notes: list[str] = []
    long = " ".join(["a"] * 500)
    found = sentences_of(Text("toys", ["a b", long, " "], ["A", "B", "C"]), random_weights, PLAN, notes.append)
    assert (len(found.sources), found.references) == (1, ["A"])
    assert notes == ["toys: 1 sentences of more than 256 pieces are left out."]


def test_a_text_without_sentences_cannot_be_translated(random_weights):
    for cut in (
        lambda text: sentences_of(text, random_weights, PLAN, pytest.fail),
        lambda text: forced_sentences(text, random_weights, PLAN),
    ):
        with pytest.raises(UserError, match="toys: there is no sentence that can be translated"):
            cut(Text("toys", ["", " "], None))


def test_the_peak_is_measured_for_every_kind_of_number():
    speeds = Peak(1, 32, 0.0).turn()
    assert {"float32", "bfloat16"} <= speeds.keys() <= {"float32", "bfloat16", "int8"}
    assert all(speed > 0 for speed in speeds.values())


def test_a_machine_names_its_processor_threads_and_versions():
    machine = this_machine(threads=2, cores=4)
    assert {"dragoman", "python", "torch"} <= machine.versions.keys()
    assert "2 threads on 4 cores" in str(machine)
    assert machine.processor in str(machine)
