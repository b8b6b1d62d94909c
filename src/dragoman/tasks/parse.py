"""Constituency parsing (section 6.3 of the paper): from the words of a sentence to a bracketed tree."""

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor

from dragoman.data.corpus import Pair
from dragoman.data.lines import read_lines
from dragoman.decoding.tree_constraint import TreeConstraint, TreeGrammar
from dragoman.errors import UserError, format_count
from dragoman.evaluation import brackets
from dragoman.evaluation.brackets import BracketScores
from dragoman.evaluation.trees import WHITESPACE, Tree, read_tree, well_formed_treebank_sentences
from dragoman.models.transducer import IncrementalDecoder
from dragoman.recipe import DataConfig, DecodingConfig
from dragoman.tasks.sequence_model import SequenceModel
from dragoman.tasks.task import Example, OnNotice, TransductionTask
from dragoman.tasks.treebank import (
    Treebank,
    attach_words,
    check_visible_words,
    clean_tree,
    linearise_tree,
    read_numbered_trees,
)
from dragoman.text.tokenizer import Tokenizer
from dragoman.text.vocabulary import replace_surrogates
from dragoman.tokens import END, RESERVED_TOKENS, UNKNOWN
from dragoman.viewer.tree_drawing import tree_svg

_WHITESPACE_RUN = re.compile(rf"[{WHITESPACE}]+")
_PARENTHESES = {"(": "-LRB-", ")": "-RRB-"}


class Parser(SequenceModel):
    """A constituency parser: `parse` returns the tree of a sentence, or of each sentence of a list, as brackets."""

    parse = SequenceModel.predict


class ParsingTask(TransductionTask):
    """From words to a tree over them."""

    name, noun, gerund, validation_metric = "parse", "parser", "Parsing", "F1"
    model_class = "dragoman.tasks.parse:Parser"
    unit = "tree"
    input_hint = "Type sentences, one per line, with spaces between words and punctuation: It works ."
    usage_examples = ('dragoman parse {run} "The words of a sentence ."', "dragoman evaluate {run} --reference TREES")

    def open_corpora(self, config: DataConfig) -> tuple[Treebank, Treebank | None]:
        """Open the treebanks that the recipe names."""
        if not config.file:
            raise UserError("The recipe has no training treebank: set [data] file.")
        return Treebank(Path(config.file)), Treebank(Path(config.valid_file)) if config.valid_file else None

    def examples_from_pairs(self, pairs: Iterable[Pair]) -> list[Example[str]]:
        """Make an example of each sentence and its tree."""
        return [Example(source, (self.from_model_output(source, target),)) for source, target in pairs]

    def read_examples(self, source: str | None, reference: str | None, on_notice: OnNotice) -> list[Example[str]]:
        """Read a treebank, and check that the text, if given, has its words."""
        if reference is None:
            raise UserError("--reference is missing: give a file of trees; their words are parsed.")
        trees = well_formed_treebank_sentences(list(read_lines(reference, on_notice)), reference)
        examples = [_tree_example(text, f"{reference}: line {line:,}") for line, text in trees if text.strip()]
        if not examples:
            raise UserError(f"{reference}: contains no trees; expected brackets like (TOP (S (NP (NN dog)) …)).")
        if source is not None:
            self._check_words(examples, source, reference, on_notice)
        return examples

    def _check_words(self, examples: Sequence[Example[str]], source: str, reference: str, on_notice: OnNotice) -> None:
        """Raise an error unless line n of a text has the words of tree n."""
        lines = [self.to_model_input(line) for line in read_lines(source, on_notice)]
        if len(lines) != len(examples):
            raise UserError(
                f"{source} has {format_count(len(lines), 'line')} but {reference} has "
                f"{format_count(len(examples), 'tree')}; line n must have the words of tree n. "
                "--source is optional: without it, the words of the trees are parsed."
            )
        for number, (line, example) in enumerate(zip(lines, examples, strict=True), start=1):
            if line != example.source:
                raise UserError(
                    f'{source}: line {number:,}: the words "{_shorten(line)}" differ from those of tree {number:,} in '
                    f'{reference}, "{_shorten(example.source)}".'
                )

    def to_model_input(self, text: str) -> str:
        """Return the words separated by single spaces, with brackets written as in treebanks."""
        return " ".join(
            _escape_brackets(word) for word in _WHITESPACE_RUN.split(replace_surrogates(text)) if word.strip()
        )

    def from_model_output(self, source: str, output: str) -> str:
        """Insert the words into the brackets; return an empty string if the output is not a tree."""
        tree = attach_words(source.split(" "), output.split(" ")) if output else None
        return str(tree) if tree else ""

    def to_model_target(self, source: str, answer: str) -> str:
        """Remove the words from a tree; brackets and tags without words are returned unchanged."""
        if not answer or attach_words(source.split(" "), answer.split(" ")):
            return answer
        tree = _read_one_tree(answer, "The given tree")
        if " ".join(tree.words) != source:
            raise UserError(
                f'The words of the given tree, "{_shorten(" ".join(tree.words))}", differ from those of the sentence, '
                f'"{_shorten(source)}".'
            )
        return " ".join(linearise_tree(tree))

    def draw_output(self, text: str) -> str | None:
        """Draw the tree."""
        return tree_svg(read_tree(text)) if text else None

    def validation_score(self, examples: Sequence[Example[str]], outputs: Sequence[str]) -> float:
        """Return the F1 of the brackets."""
        return self.score(examples, outputs).overall.f1

    def score(self, examples: Sequence[Example[str]], outputs: Sequence[str]) -> BracketScores:
        """Return precision, recall, F1 and more, as EVALB computes them."""
        return brackets.score_brackets(outputs, [example.references[0] for example in examples])

    def constrain(
        self, model: IncrementalDecoder, tokenizers: tuple[Tokenizer, Tokenizer], config: DecodingConfig
    ) -> TreeConstraint:
        """Return the model constrained to trees over the words of its source."""
        source, target = tokenizers
        return TreeConstraint(model, _tree_grammar(target), word_start_counts(source), config)

    def word_counts(self, source: Tokenizer, target: Tokenizer) -> tuple[Tensor, Tensor]:
        """Return the number of words that each source piece begins, and 1 for each target piece that is a tag."""
        return word_start_counts(source), _tree_grammar(target).tags


def _tree_example(text: str, where: str) -> Example[str]:
    """Return the words of a tree and the cleaned tree as an example."""
    tree = _read_one_tree(text, where)
    return Example(" ".join(tree.words), (str(tree),))


def _read_one_tree(text: str, where: str) -> Tree:
    """Read one tree and clean it."""
    trees = [tree for _, tree in read_numbered_trees([text], where)]
    cleaned = [clean for clean in map(clean_tree, trees) if clean is not None]
    if len(trees) != 1 or not cleaned:
        found = f"{format_count(len(trees), 'tree')}, {len(cleaned)} with words"
        raise UserError(f"{where}: expected one tree with words; found {found}.")
    check_visible_words(cleaned[0], where)
    return cleaned[0]


def _escape_brackets(word: str) -> str:
    """Escape brackets in a word as the Penn Treebank does."""
    return "".join(_PARENTHESES.get(letter, letter) for letter in word)


def _shorten(text: str) -> str:
    """Return a text, or its beginning, for a message."""
    return text if len(text) <= 60 else f"{text[:60]}…"


@lru_cache(maxsize=4)
def _tree_grammar(target: Tokenizer) -> TreeGrammar:
    if not target.is_word_level:
        raise UserError(
            'A parser requires brackets and tags to be single tokens: train with [tokenizer] target_kind = "words".'
        )
    return TreeGrammar.from_vocabulary(target.spellings)


@lru_cache(maxsize=4)
def word_start_counts(source: Tokenizer) -> Tensor:
    """Return the number of words (V) that each piece begins, for a text with single spaces between words.

    With a word-level tokenizer every piece is a word. Otherwise spaces are counted: byte-level pieces have one before
    each word, also before the first; characters have none before the first word, so END counts as one.
    """
    if source.is_word_level:
        counts = torch.ones(len(source), dtype=torch.long)
        counts[:RESERVED_TOKENS] = 0
        counts[UNKNOWN] = 1
        return counts
    counts = torch.tensor([0] * RESERVED_TOKENS + [piece.count(" ") for piece in source.spellings[RESERVED_TOKENS:]])
    if not source.is_byte_level:
        if not counts.any():
            raise UserError(
                "The source vocabulary has no space character, so words cannot be counted. Train on sentences of "
                'several words, or with [tokenizer] kind = "bpe".'
            )
        counts[END] = 1
    return counts
