import json
import os
import subprocess
import sys
from typing import Any

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman import recipe
from dragoman.errors import UserError
from dragoman.text import tokenizer as tokenizer_module
from dragoman.text import tokenizer_file
from dragoman.text.streaming import StreamingDecoder
from dragoman.text.tokenizer import Tokenizer
from dragoman.text.tokenizer_file import parse_tokenizer
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


BOMB = {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 100}
ESCAPES = {"type": "Replace", "pattern": {"String": " "}, "content": "\x1b]0;owned\x07 "}
SLOW = {"type": "Replace", "pattern": {"Regex": "(a*)*b"}, "content": ""}


@pytest.mark.parametrize(
    ("part", "change"),
    [
        ("normalizer", lambda part: {"type": "Sequence", "normalizers": [*part["normalizers"], *[BOMB] * 6]}),
        ("normalizer", lambda part: {"type": "Sequence", "normalizers": [*part["normalizers"], SLOW]}),
        ("normalizer", lambda _: {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "a" * 1000}] * 3}),
        ("normalizer", lambda _: {"type": "Prepend", "prepend": "a" * 100_000}),
        ("normalizer", lambda _: {"type": "Precompiled", "precompiled_charsmap": "AAAA"}),
        ("normalizer", lambda _: None),
        ("pre_tokenizer", lambda _: {"type": "Split", "pattern": {"Regex": "(a*)*b"}, "behavior": "Isolated",
                                     "invert": False}),
        ("pre_tokenizer", lambda part: {**part, "use_regex": False}),
        ("pre_tokenizer", lambda part: {**part, "use_regex": 1}),
        ("pre_tokenizer", lambda part: {**part, "unheard_of": 1}),
        ("decoder", lambda part: {"type": "Sequence", "decoders": [*part["decoders"], ESCAPES]}),
        ("decoder", lambda _: {"type": "Sequence", "decoders": []}),
        ("decoder", lambda _: {"type": "WordPiece", "prefix": "\x1b[2J", "cleanup": False}),
        ("model", lambda part: {**part, "unk_token": "\x1b[2J"}),
        ("model", lambda part: {**part, "continuing_subword_prefix": "a" * 1000}),
        ("model", lambda part: {**part, "ignore_merges": True}),
    ],
)  # fmt: skip
def test_everything_but_the_vocabulary_is_what_training_writes(trained, part, change):
    """Issue 17, M2: such files took 8 GB, ended in a panic, or wrote escape sequences into every translation."""
    before = json.loads(trained("bpe").to_json())[part]
    with pytest.raises(UserError, match=rf"^tokenizer.json: its {part} has settings that Dragoman does not write"):
        Tokenizer.from_json(changed(trained("bpe"), part, change(before)))


@pytest.mark.parametrize("lowercase", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_what_training_writes_is_allowed(kind, lowercase):
    config = recipe.TokenizerConfig(kind=kind, lowercase=lowercase)
    parse_tokenizer(Tokenizer.train(["A dog runs", "a dog"], config).to_json())


def test_a_key_that_occurs_twice_does_not_reach_the_library_unchecked(trained):
    """The library adds up the added tokens of all occurrences; Python reads the last one."""
    text = trained("words").to_json()
    twice = '{"added_tokens": [{"id": 0, "content": "dog", "single_word": false, "lstrip": true, "rstrip": true, '
    twice += '"normalized": false, "special": true}], ' + text.removeprefix("{")
    assert Tokenizer.from_json(twice).to_json() == text


def grow(tree, **vocabulary):
    tree["model"]["vocab"] |= vocabulary
    return json.dumps(tree)


def test_sizes_are_bounded(trained, monkeypatch):
    words, bpe = (json.loads(trained(kind).to_json()) for kind in ("words", "bpe"))
    with pytest.raises(UserError, match="longer than 131,072 letters"):
        Tokenizer.from_json(grow(words, **{"a" * (1 << 18): len(words["model"]["vocab"])}))
    with pytest.raises(UserError, match="do not consist of bytes"):
        Tokenizer.from_json(grow(bpe, **{"a b": len(bpe["model"]["vocab"])}))
    with pytest.raises(UserError, match="fewer merges than pieces"):
        Tokenizer.from_json(changed(trained("bpe"), "model.merges", [["a", "b"]] * 10_000))
    monkeypatch.setattr(tokenizer_file, "_MAX_PIECES", 10)
    with pytest.raises(UserError, match="at most 10, and"):
        Tokenizer.from_json(trained("words").to_json())


@pytest.mark.parametrize("text", ["[" + "[]," * 6_000_000 + "1]", "[" + '"ab",' * 6_000_000 + "1]"])
def test_a_file_of_millions_of_values_is_refused_before_it_is_parsed(text):
    with pytest.raises(UserError, match="more than 5,000,000 values"):
        Tokenizer.from_json(text)


def test_a_panic_of_the_library_is_an_error_like_others():
    """The retry limit of its regular expressions ends in a panic, which does not derive from Exception."""
    backend = tokenizers.Tokenizer(tokenizers.models.WordLevel({"⁇": 0}, unk_token="⁇"))
    backend.normalizer = tokenizers.normalizers.Replace(tokenizers.Regex("^(a+)+$"), "")
    tokenizer = Tokenizer(backend)
    for use in (tokenizer.encode, lambda text: tokenizer.encode_batch([text])):
        with pytest.raises(UserError, match="The tokenizer failed on a text"):
            use("a" * 40 + "!")


KEYS = ["type", "pattern", "content", "normalizers", "decoders", "vocab", "merges", "id"]
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=20)
    | st.sampled_from(["Sequence", "Replace", "Regex", "ByteLevel", "Prepend", "BPE", "⁇", "(a*)*b", "\ud800"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=3),
    max_leaves=5,
)  # fmt: skip


def branches(tree, path=()):
    """Return the paths of all parts of a JSON tree, except the single pieces of its vocabulary."""
    items = tree.items() if isinstance(tree, dict) else enumerate(tree[:3]) if isinstance(tree, list) else ()
    inner = (
        [] if path[-1:] == ("vocab",) else [branch for key, value in items for branch in branches(value, (*path, key))]
    )
    return [*([path] if path else []), *inner]


@pytest.mark.parametrize("count", [60, pytest.param(3000, marks=pytest.mark.long)])
@pytest.mark.parametrize("kind", ["bpe", "words"])
def test_any_change_of_the_file_is_refused_or_makes_no_difference(trained, kind, count):
    original = trained(kind)
    tree = json.loads(original.to_json())

    @settings(max_examples=count)
    @given(st.sampled_from(branches(tree)), VALUES)
    def check(path, value):
        changed_tree = json.loads(original.to_json())
        branch = changed_tree
        for key in path[:-1]:
            branch = branch[key]
        branch[path[-1]] = value
        try:
            tokenizer = Tokenizer.from_json(json.dumps(changed_tree))
        except UserError:
            return
        definition, expected = tokenizer.definition, original.definition
        assert {**definition, "model": 0} == {**expected, "model": 0}

    check()


def test_a_missing_file_says_who_writes_it(tmp_path):
    with pytest.raises(UserError, match=r"no such file\. Training writes it"):
        Tokenizer.load(tmp_path / "tokenizer.json")


def test_a_file_that_is_not_utf8_says_where(tmp_path):
    (tmp_path / "tokenizer.json").write_bytes(b'{"version": "\xff"}')
    with pytest.raises(UserError, match="not UTF-8 at byte 13"):
        Tokenizer.load(tmp_path / "tokenizer.json")


def test_a_directory_is_refused(tmp_path):
    with pytest.raises(UserError, match="is a directory, not a regular file"):
        Tokenizer.load(tmp_path)


def test_an_enormous_file_is_refused_unread(tmp_path, monkeypatch):
    monkeypatch.setattr(tokenizer_module, "MAX_FILE_BYTES", 1 << 20)
    with (tmp_path / "tokenizer.json").open("wb") as file:
        file.truncate((1 << 20) + 1)
    with pytest.raises(UserError, match="more than the maximum of 1,048,576 bytes"):
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
