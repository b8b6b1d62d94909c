"""A run that leaves for CTranslate2: what comes out of the export is what comes out of the run."""

import json
import re
import shutil
import sys

import pytest
from tokenizers import Tokenizer

import dragoman
from dragoman.errors import UserError
from dragoman.interop.ctranslate2 import EXPORTED_FILES, QUANTIZATIONS, export_run, search_options
from dragoman.recipe import Recipe

pytestmark = pytest.mark.slow

ctranslate2 = pytest.importorskip("ctranslate2", reason='CTranslate2 is not installed: pip install "dragoman[bench]"')

# Enough to learn most of the toy language: translations end, and one hypothesis is clearly the best.
LEARNED = [
    "training.steps=250", "training.batch_tokens=512", "training.warmup=25", "training.schedule=linear",
    "training.rate=0.01", "model.dropout=0.0", "model.width=32", "model.inner_width=32", "training.average=1",
    "training.checkpoint_every=1000", "training.validate_every=1000", "data.longest=20", "decoding.extra_length=10",
]  # fmt: skip
SEPARATE = ["tokenizer.joint=false", "model.share_embeddings=false"]
VARIANTS = {
    "as in the paper": [],
    "norm first, gelu, a shallow decoder": ["model.norm=pre", "model.activation=gelu", "model.decoder_layers=1"],
    "learned positions, an output of its own": [
        "model.positions=learned", "model.longest=32", "model.share_output=false",
    ],
    "separate vocabularies": SEPARATE,
    "norm first, all apart": ["model.norm=pre", *SEPARATE, "model.share_output=false", "model.key_width=16"],
}  # fmt: skip
KINDS = {
    "bpe": ["tokenizer.kind=bpe", "tokenizer.size=280"],
    "wordpiece": ["tokenizer.kind=wordpiece", "tokenizer.size=280"],
    "bytes": ["tokenizer.kind=bytes"],
    "characters": ["tokenizer.kind=characters"],
    "words": ["tokenizer.kind=words"],
}
# What other programs reserve, separate by, or do not show.
ODD = ["<s> </s> <unk> <pad> <blank>", "a￨b ￨ ▁a ##b Ġa @@", "⟨ pad ⟩ ⁇ ⟨U+200D⟩ \u200d \u2028 a", "a\t \xa0 é e\u0301"]


class Exported:
    """An export in use, without a line of Dragoman."""

    def __init__(self, folder):
        names = sorted(path.name for path in folder.glob("tokenizer*.json"))  # source before target
        self.source, self.target = (Tokenizer.from_file(str(folder / name)) for name in (names[0], names[-1]))
        self.engine = ctranslate2.Translator(str(folder), inter_threads=1, intra_threads=1)

    def translate(self, texts, **options):
        found = self.engine.translate_batch([self.source.encode(text).tokens for text in texts], **options)
        tokens = [[self.target.token_to_id(piece) for piece in one.hypotheses[0]] for one in found]
        return [self.target.decode(row, skip_special_tokens=False) for row in tokens]

    def score(self, sources, targets):
        pieces = (
            [tokenizer.encode(text).tokens for text in texts]
            for tokenizer, texts in ((self.source, sources), (self.target, targets))
        )
        return [sum(one.log_probs) for one in self.engine.score_batch(*pieces)]


@pytest.fixture(scope="module", params=VARIANTS.values(), ids=VARIANTS.keys())
def both(request, toy_recipe, tmp_path_factory):
    """A model that has learned something, and its export."""
    folder = tmp_path_factory.mktemp("learned")
    run = dragoman.train(toy_recipe(folder / "run", *LEARNED, *request.param))
    return dragoman.load(run, device="cpu"), Exported(export_run(run, folder / "export"))


def ended(model, texts, beam):
    """Return our translations by source, but for those cut at the longest length: CTranslate2 has another."""
    found = zip(texts, model.translate(texts, beam=beam, details=True), strict=True)
    return {source: best.text for source, best in found if not best.truncated}


def test_the_greedy_translation_is_the_same(both, toy_pairs):
    model, exported = both
    ours = ended(model, [source for source, _ in toy_pairs], beam=1)
    assert len(ours) > 60
    assert exported.translate([*ours], **{**search_options(model), "beam_size": 1}) == [*ours.values()]


def test_the_beam_finds_nearly_always_the_same(both, toy_pairs):
    """Not always: we keep a place for the greedy hypothesis, and rank by another formula."""
    model, exported = both
    ours = ended(model, [source for source, _ in toy_pairs], beam=4)
    theirs = exported.translate([*ours], **search_options(model))
    assert len(ours) > 60
    assert sum(map(str.__eq__, theirs, ours.values())) >= 0.95 * len(ours)


def test_log_probabilities_are_the_same_to_rounding(both, toy_pairs):
    model, exported = both
    sources, targets = zip(*toy_pairs, strict=True)
    ours = [one.log_probability for one in model.score(sources, targets)]
    assert exported.score(sources, targets) == pytest.approx(ours, abs=1e-4)


@pytest.mark.parametrize("joint", [[], SEPARATE], ids=["joint", "separate"])
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())
def test_pieces_of_every_kind_keep_their_ids(tmp_path, kind, joint):
    for name, lines in (("source", ODD), ("target", ODD[::-1])):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines * 5))
    data = {"source": str(tmp_path / "source"), "target": str(tmp_path / "target"), "held_out": 4, "longest": 200}
    model = {"layers": 1, "width": 8, "inner_width": 8, "heads": 2}
    training = {"steps": 1, "threads": 1, "validation_sample": 0}
    table = {"run": str(tmp_path / "run"), "data": data, "model": model, "training": training}
    run = dragoman.train(Recipe.from_table(table, [*kind, *joint]))
    ours = dragoman.load(run, device="cpu")
    exported = Exported(export_run(run, tmp_path / "export"))
    written = sorted((tmp_path / "export").glob("*_vocabulary.json"))
    for file, tokenizer in zip((written[0], written[-1]), (ours.source_tokenizer, ours.target_tokenizer), strict=True):
        pieces = json.loads(file.read_text())
        assert len(set(pieces)) == len(tokenizer)
        assert [tokenizer.backend.token_to_id(piece) for piece in pieces] == list(range(len(tokenizer)))
    scores = [one.log_probability for one in ours.score(ODD, ODD, split=False)]
    assert exported.score(ODD, ODD) == pytest.approx(scores, abs=1e-4)


@pytest.mark.parametrize("quantization", QUANTIZATIONS)
def test_every_quantization_can_be_read_and_scores_alike(trained, tmp_path, toy_pairs, quantization):
    sources, targets = zip(*toy_pairs, strict=True)
    ours = [one.log_probability for one in dragoman.load(trained, device="cpu").score(sources, targets)]
    exported = Exported(export_run(trained, tmp_path / "export", quantization=quantization))
    # Within 2 % where the processor has instructions for int8, within 5 % where CTranslate2 does without them.
    assert exported.score(sources, targets) == pytest.approx(ours, rel=0.08)


def test_int8_takes_a_fraction_of_the_place(trained, tmp_path):
    sizes = [
        (export_run(trained, tmp_path / name, quantization=name) / "model.bin").stat().st_size
        for name in ("float32", "int8")
    ]
    assert sizes[1] < sizes[0]


def test_the_readme_tells_how_to_translate(trained, tmp_path, monkeypatch, capsys):
    folder = export_run(trained, tmp_path / "export")
    (code,) = re.findall(r"```python\n(.*?)```", (folder / "README.md").read_text(), re.DOTALL)
    monkeypatch.chdir(folder)
    names = {}
    exec(code, names)
    assert capsys.readouterr().out.count("\n") == 1
    theirs = Exported(folder).translate(["a b c", ""], **search_options(dragoman.load(trained)))
    assert names["translate"](["a b c", ""]) == theirs
    assert theirs[1] == ""


def test_a_source_too_long_for_learned_positions_is_cut_and_not_an_error(toy_recipe, tmp_path):
    short = ["data.longest=20", "decoding.extra_length=12", "model.positions=learned", "model.longest=32"]
    run = dragoman.train(toy_recipe(tmp_path / "run", *short))
    exported = Exported(export_run(run, tmp_path / "export"))
    assert len(exported.translate(["a " * 500], **search_options(dragoman.load(run)))) == 1


def test_an_export_holds_what_it_may_and_nothing_else(trained, tmp_path):
    export_run(trained, tmp_path / "new" / "export")
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["export"]
    written = {path.name for path in (tmp_path / "new" / "export").iterdir()}
    assert written == {"README.md", "config.json", "model.bin", "shared_vocabulary.json", "tokenizer.json"}
    assert written < EXPORTED_FILES


def test_the_run_is_only_read(trained, tmp_path):
    run = shutil.copytree(trained, tmp_path / "run")
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    export_run(run, tmp_path / "export", quantization="int8")
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


def test_an_older_export_is_replaced_only_when_asked(trained, tmp_path):
    folder = export_run(trained, tmp_path / "export")
    before = (folder / "model.bin").read_bytes()
    with pytest.raises(UserError, match=r"already contains an export; .* replace it with --overwrite"):
        export_run(trained, folder, quantization="int8")
    assert (folder / "model.bin").read_bytes() == before
    export_run(trained, folder, quantization="int8", overwrite=True)
    assert (folder / "model.bin").read_bytes() != before
    assert [path.name for path in tmp_path.iterdir()] == ["export"]


def test_an_empty_folder_and_a_link_to_one_are_filled(trained, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "empty")
    export_run(trained, tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "empty" / "model.bin").exists()


def test_a_full_disk_leaves_the_older_export_and_no_litter(nursery, trained, tmp_path):
    folder = export_run(trained, tmp_path / "exports" / "export")
    before = (folder / "model.bin").read_bytes()
    arguments = ["export", trained, "--output", folder, "--overwrite", "--quantization", "int8"]
    assert nursery.run(*arguments, err=tmp_path / "err", file_limit=2000) == 2
    assert "File too large" in (tmp_path / "err").read_text()
    assert [path.name for path in folder.parent.iterdir()] == ["export"]
    assert (folder / "model.bin").read_bytes() == before


def test_without_ctranslate2_it_says_what_to_install(trained, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ctranslate2.specs", None)
    with pytest.raises(UserError, match=r'CTranslate2 cannot be imported .*pip install -e "\.\[bench\]"'):
        export_run(trained, tmp_path / "new" / "export")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["key_width", "value_width"])
def test_heads_of_another_width_are_refused_before_anything_is_written(toy_recipe, tmp_path, name):
    run = dragoman.train(toy_recipe(tmp_path / "run", f"model.{name}=5", "training.steps=1"))
    with pytest.raises(UserError, match=f"its .model. {name} is 5, but CTranslate2 requires width / heads = 8"):
        export_run(run, tmp_path / "export")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
