import json
import os
import subprocess
import sys
from typing import Any

import pytest
import tokenizers

from dragoman import recipe
from dragoman.errors import UserError
from dragoman.text import tokenizer as tokenizer_module
from dragoman.text.streaming import StreamingDecoder
from dragoman.text.tokenizer import Tokenizer
from dragoman.text.vocabulary import RESERVED_NAMES
from dragoman.tokens import RESERVED_TOKENS, UNKNOWN

KINDS = ["bpe", "wordpiece", "bytes", "characters", "words"]
TEXT = " Two  dogs läuft 🙂 e\u0301 ⟨ pad ⟩ "

TRAIN_ELSEWHERE = """
import hashlib, sys
from dragoman import recipe
from dragoman.text.streaming import StreamingDecoder
from dragoman.text.tokenizer import Tokenizer
from dragoman.text.vocabulary import RESERVED_NAMES
from dragoman.tokens import RESERVED_TOKENS, UNKNOWN
words = ["dog", "Hund", "snow", "Schnee", "läuft", "ran", "run", "unrun", "rerun", "nur", "urn", "日本", "本日"]
lines = [" ".join(words[(i * j) % 13] + words[(i + j) % 13] for j in range(1, 9)) for i in range(400)]
for kind in ("bpe", "wordpiece", "bytes", "characters", "words"):
    sys.stdout.buffer.write(Tokenizer.train(lines, recipe.TokenizerConfig(kind=kind, size=600)).to_json().encode())
"""


@pytest.mark.parametrize("kind", KINDS)
def test_a_tokenizer_survives_its_file(trained, kind, tmp_path):
    before = trained(kind)
    (tmp_path / "tokenizer.json").write_text(before.to_json(), encoding="utf-8")
    after = Tokenizer.load(tmp_path / "tokenizer.json")
    assert after.fingerprint == before.fingerprint
    assert after.pieces(TEXT) == before.pieces(TEXT)
    assert len(after) == len(before)


@pytest.mark.parametrize("kind", KINDS)
def test_the_tokenizers_library_reads_the_file_by_itself(trained, kind, tmp_path):
    tokenizer = trained(kind)
    (tmp_path / "tokenizer.json").write_text(tokenizer.to_json(), encoding="utf-8")
    plain = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert plain.encode(TEXT).ids == tokenizer.encode(TEXT)
    assert plain.decode(plain.encode(TEXT).ids) == tokenizer.decode(tokenizer.encode(TEXT))


@pytest.mark.slow
def test_two_fresh_processes_learn_the_same_bytes(tmp_path):
    """Promise A12; the library's own WordPiece learner breaks it."""

    def learned(hash_seed: str, locale: str, folder: str) -> bytes:
        (tmp_path / folder).mkdir()
        environment = os.environ | {"PYTHONHASHSEED": hash_seed, "LC_ALL": locale, "RAYON_NUM_THREADS": hash_seed}
        command = [sys.executable, "-c", TRAIN_ELSEWHERE]
        return subprocess.run(command, env=environment, cwd=tmp_path / folder, check=True, stdout=-1).stdout

    first = learned("1", "C", "here")
    assert first.count(b'"version"') == len(KINDS)
    assert learned("2", "C.UTF-8", "there") == first


def test_two_trainings_in_one_process_learn_the_same(trained):
    lines = ["a dog runs", "ein Hund rennt", "zwei Hunde"] * 5
    config = recipe.TokenizerConfig(kind="wordpiece")
    assert Tokenizer.train(lines, config).fingerprint == Tokenizer.train(iter(lines), config).fingerprint


def test_other_text_gives_another_fingerprint():
    config = recipe.TokenizerConfig(kind="words")
    assert Tokenizer.train(["a"], config).fingerprint != Tokenizer.train(["b"], config).fingerprint


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not valid JSON"),
        ("{", "not valid JSON"),
        ("[" * 100_000, "nested too deeply"),
        ('{"model":' * 100_000, "nested too deeply"),
        ("null", "no vocabulary"),
        ("[]", "no vocabulary"),
        ("{}", "no vocabulary"),
        ('{"model": {"vocab": [["a", -1.5]], "type": "Unigram"}}', "not written by Dragoman"),
        ('{"model": {"vocab": {"a": 0}, "type": "Other"}}', "unsupported tokenizer type 'Other'"),
        ('{"model": {"vocab": {"a": "b"}, "type": "BPE"}}', "not consecutive from 0"),
        ('{"model": {"vocab": {"a": 0, "b": 2}, "type": "BPE"}}', "not consecutive from 0"),
        ('{"model": {"vocab": {"<pad>": 0, "<s>": 1}, "type": "BPE"}}', "not written by Dragoman"),
    ],
)
def test_what_is_no_tokenizer_of_ours_is_refused_by_name(text, words):
    with pytest.raises(UserError, match=r"^runs/ende/tokenizer.json: .*" + words):
        Tokenizer.from_json(text, where="runs/ende/tokenizer.json")


def changed(tokenizer: Tokenizer, part: str, value: Any) -> str:
    """Return the tokenizer's file with one part changed, the model's parts by a dotted name."""
    tree = json.loads(tokenizer.to_json())
    *parents, last = part.split(".")
    branch = tree[parents[0]] if parents else tree
    branch[last] = value
    return json.dumps(tree)


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("added_tokens", [{"id": 0, "content": "<s>", "special": True}]),
        ("truncation", {"max_length": 3}),
        ("model.dropout", 0.5),
        ("model.merges", [["never", "seen"]]),
        ("model.merges", 7),
        ("normalizer", {"type": "Telepathy"}),
        ("normalizer", {"type": "Replace", "pattern": {"Regex": "[\\s\\S]"}, "content": ""}),
        ("decoder", {"type": "Replace", "pattern": {"Regex": "(("}, "content": ""}),
    ],
)
def test_a_changed_file_is_refused(trained, part, value):
    with pytest.raises(UserError, match=r"^tokenizer.json: .* Restore the tokenizer"):
        Tokenizer.from_json(changed(trained("bpe"), part, value))


@pytest.mark.parametrize("part", ["truncation", "added_tokens"])
def test_settings_that_would_lose_text_are_refused(trained, part):
    with pytest.raises(UserError, match=f"it sets {part}"):
        Tokenizer.from_json(changed(trained("bpe"), part, [{"max_length": 3}]))


def test_a_vocabulary_without_all_bytes_is_refused(trained):
    vocabulary = json.loads(trained("bpe").to_json())["model"]["vocab"]
    few = {piece: number for piece, number in vocabulary.items() if number < 100}
    with pytest.raises(UserError, match="does not contain all 256 bytes"):
        Tokenizer.from_json(changed(trained("bpe"), "model.vocab", few))


def test_a_missing_file_says_who_writes_it(tmp_path):
    with pytest.raises(UserError, match=r"no such file\. Training writes it"):
        Tokenizer.load(tmp_path / "tokenizer.json")


def test_a_file_that_is_not_utf8_says_where(tmp_path):
    (tmp_path / "tokenizer.json").write_bytes(b'{"version": "\xff"}')
    with pytest.raises(UserError, match="not UTF-8 at byte 13"):
        Tokenizer.load(tmp_path / "tokenizer.json")


def test_a_directory_is_refused(tmp_path):
    with pytest.raises(UserError, match="cannot be read"):
        Tokenizer.load(tmp_path)


def test_an_enormous_file_is_refused_unread(tmp_path, monkeypatch):
    monkeypatch.setattr(tokenizer_module, "MAX_FILE_BYTES", 1 << 20)
    with (tmp_path / "tokenizer.json").open("wb") as file:
        file.truncate((1 << 20) + 1)
    with pytest.raises(UserError, match="larger than 1 MiB"):
        Tokenizer.load(tmp_path / "tokenizer.json")


def test_a_unigram_tokenizer_is_loaded_and_used():
    """SentencePiece's default model; other programs' tokenizers come in this form."""
    pieces = [(RESERVED_NAMES[token], 0.0) for token in range(RESERVED_TOKENS)]
    pieces += [
        ("▁", -3.0),
        *((letter, -4.0) for letter in "adghnortuws."),
        ("▁dog", -1.0),
        ("▁a", -2.0),
        ("runs", -1.0),
    ]
    backend = tokenizers.Tokenizer(tokenizers.models.Unigram(pieces, unk_id=UNKNOWN))
    backend.pre_tokenizer, backend.decoder = tokenizers.pre_tokenizers.Metaspace(), tokenizers.decoders.Metaspace()
    tokenizer = Tokenizer.from_json(backend.to_str())
    tokens = tokenizer.encode("a dog runs.")
    assert tokenizer.spell(tokens) == [" a", " dog", " ", "runs", "."]
    assert tokenizer.decode(tokens) == "a dog runs."
    assert [(piece.start, piece.end) for piece in tokenizer.pieces("a dog")] == [(0, 1), (1, 5)]
    decoder = StreamingDecoder(tokenizer)
    assert "".join(map(decoder.add, tokens)) + decoder.end() == "a dog runs."
