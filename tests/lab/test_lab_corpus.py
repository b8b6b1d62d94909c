"""The corpora of the laboratory: the phrasebook, folders and pairs of files."""

import gzip

import pytest

from dragoman.errors import UserError
from dragoman.lab.corpus import find_corpus as find


def test_the_phrasebook_is_written_once_with_its_links(tmp_path, monkeypatch):
    monkeypatch.setattr("dragoman.lab.corpus.PHRASEBOOK_SIZES", {"train": 30, "valid": 3, "test": 5})
    result = find("phrasebook", tmp_path)
    assert [len(result.pairs(split)) for split in ("train", "valid", "test")] == [30, 3, 5]
    assert len(result.links.read_text().splitlines()) == 5
    written_at = result.train[0].stat().st_mtime_ns
    assert find("phrasebook", tmp_path) == result
    assert result.train[0].stat().st_mtime_ns == written_at


def test_another_seed_gives_another_phrasebook(tmp_path, monkeypatch):
    monkeypatch.setattr("dragoman.lab.corpus.PHRASEBOOK_SIZES", {"train": 30, "valid": 3, "test": 5})
    first, second = (find("phrasebook", tmp_path, seed=seed) for seed in (1, 2))
    assert first.pairs("train") != second.pairs("train")
    assert second.pairs("train") == find("phrasebook", tmp_path / "elsewhere", seed=2).pairs("train")


def test_two_files_are_split_without_overlap(tmp_path):
    for side in ("a", "b"):
        (tmp_path / f"text.{side}").write_text("".join(f"{side} {n % 40}\n" for n in range(80)))
    result = find(f"{tmp_path}/text.a:{tmp_path}/text.b", tmp_path / "lab")
    parts = [set(result.pairs(split)) for split in ("train", "valid", "test")]
    assert [len(part) for part in parts] == [32, 4, 4]
    assert len(set.union(*parts)) == 40
    assert all(source.replace("a", "b") == target for source, target in result.pairs("train"))


def test_the_splits_of_a_folder_are_used_as_they_are(tmp_path):
    for split in ("train", "val", "test_2016"):
        for language in ("de", "en"):
            with gzip.open(tmp_path / f"{split}.{language}.gz", "wt") as file:
                file.write(f"{split} {language}\n")
    result = find(str(tmp_path), tmp_path / "lab", languages="en:de")
    assert result.pairs("test") == [("test_2016 en", "test_2016 de")]
    assert result.name.endswith("en–de")
    assert find(str(tmp_path), tmp_path / "lab").pairs("test") == [("test_2016 de", "test_2016 en")]


def test_a_folder_of_three_languages_needs_a_choice_of_two(tmp_path):
    for tongue in ("cs", "de", "en"):
        (tmp_path / f"train.{tongue}").write_text("a\n")
    with pytest.raises(UserError, match="has the languages cs, de, en; choose two, for example --languages cs:de"):
        find(str(tmp_path), tmp_path / "lab")
    with pytest.raises(UserError, match="has the languages cs, de, en"):
        find(str(tmp_path), tmp_path / "lab", languages="en:fr")


def test_filtering_by_length_does_not_change_the_test_split(tmp_path, corpus):
    short = corpus.filter_shorter_than(4, tmp_path / "short")
    assert max(len(source.split()) for source, _ in short.pairs("train")) == 3
    assert short.test == corpus.test
    with pytest.raises(UserError, match="no source in the train files has fewer than 1 words"):
        corpus.filter_shorter_than(1, tmp_path / "none")


@pytest.mark.parametrize(
    ("wanted", "message"),
    [("nowhere", "is neither"), ("a.en:a.de", "a.en"), ("{}", "does not have two files named train.LANGUAGE")],
)  # fmt: skip
def test_a_missing_corpus_is_an_error(tmp_path, wanted, message):
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=message):
        find(wanted.format(tmp_path / "empty"), tmp_path / "lab")
