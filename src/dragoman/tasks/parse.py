"""Parsing: the words of a sentence, its constituents as brackets (section 6.3 of the paper)."""

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor

from dragoman.data.corpus import Pair
from dragoman.data.lines import read_lines
from dragoman.decoding.grammar import Grammar, TreeWriter
from dragoman.errors import UserError
from dragoman.evaluation import brackets
from dragoman.evaluation.brackets import BracketScores
from dragoman.evaluation.trees import SPACE, Tree, tree_of, well_formed_sentences
from dragoman.model.transducer import Transducer
from dragoman.recipe import Data, Decoding
from dragoman.tasks.task import Example, PlainTask, Say
from dragoman.tasks.treebank import Treebank, cleaned, linearised, numbered_trees, refuse_invisible, tree_over
from dragoman.text.tokenizer import Tokenizer
from dragoman.text.vocabulary import well_formed
from dragoman.tokens import END, RESERVED, UNKNOWN
from dragoman.viewer.tree_drawing import svg

GAP = re.compile(rf"[{SPACE}]+")
PARENTHESES = {"(": "-LRB-", ")": "-RRB-"}


class Parse(PlainTask):
    """From words to a tree over them."""

    name, noun, doing, measure = "parse", "parser", "Parsing", "F1"
    unit = "trees"
    asks = "Type a sentence, or several, a line each, with spaces between words and marks: It works ."
    usage = ('dragoman parse {run} "The words of a sentence ."', "dragoman evaluate {run} --reference TREES")

    def corpora(self, data: Data) -> tuple[Treebank, Treebank | None]:
        """Find the treebanks that the recipe names."""
        if not data.file:
            raise UserError("The recipe names no treebank to train on: set [data] file.")
        return Treebank(Path(data.file)), Treebank(Path(data.valid_file)) if data.valid_file else None

    def examples_of(self, pairs: Iterable[Pair]) -> list[Example]:
        """Each sentence has one tree."""
        return [Example(source, (self.shown(source, target),)) for source, target in pairs]

    def examples(self, source: str | None, reference: str | None, say: Say) -> list[Example]:
        """Read a treebank, and perhaps a text that must have its words."""
        if reference is None:
            raise UserError(
                "There is nothing to compare with: give --reference, a file of trees; its words are parsed."
            )
        trees = well_formed_sentences(list(read_lines(reference, say)), reference)
        found = [example_of(text, f"{reference}: line {line:,}") for line, text in trees if text.strip()]
        if not found:
            raise UserError(f"{reference}: has no trees in it; expected brackets like (TOP (S (NP (NN dog)) …)).")
        if source is not None:
            self.refuse_other_words(found, source, reference, say)
        return found

    def refuse_other_words(self, examples: Sequence[Example], source: str, reference: str, say: Say) -> None:
        """Object to a text that is not, line by line, the words of the trees."""
        lines = [self.read(line) for line in read_lines(source, say)]
        if len(lines) != len(examples):
            raise UserError(
                f"{source} has {len(lines):,} lines but {reference} has {len(examples):,} trees; line n must be the "
                "words of tree n. --source may be left out: the words of the trees are parsed."
            )
        for number, (line, example) in enumerate(zip(lines, examples, strict=True), start=1):
            if line != example.source:
                raise UserError(
                    f'{source}: line {number:,}: the words "{shortened(line)}" are not those of tree {number:,} of '
                    f'{reference}, "{shortened(example.source)}".'
                )

    def read(self, text: str) -> str:
        """Return the words with a single space between them, and with brackets written as treebanks do."""
        return " ".join(escaped(word) for word in GAP.split(well_formed(text)) if word.strip())

    def shown(self, source: str, output: str) -> str:
        """Put the words into the brackets; what is no tree is shown as nothing."""
        tree = tree_over(source.split(" "), output.split(" ")) if output else None
        return str(tree) if tree else ""

    def expected(self, source: str, answer: str) -> str:
        """Take the words out of a tree; what has brackets and tags alone is taken as it is."""
        if not answer or tree_over(source.split(" "), answer.split(" ")):
            return answer
        tree = one_tree(answer, "The tree given")
        if " ".join(tree.words) != source:
            raise UserError(
                f'The words of the tree given, "{shortened(" ".join(tree.words))}", are not those of the sentence, '
                f'"{shortened(source)}".'
            )
        return " ".join(linearised(tree))

    def picture(self, shown: str) -> str | None:
        """Draw the tree."""
        return svg(tree_of(shown)) if shown else None

    def quick(self, examples: Sequence[Example], outputs: Sequence[str]) -> float:
        """Return the F1 of the brackets."""
        return self.score(examples, outputs).everything.f1

    def score(self, examples: Sequence[Example], outputs: Sequence[str]) -> BracketScores:
        """Return precision, recall, F1 and more, as EVALB counts them."""
        return brackets.score(outputs, [example.references[0] for example in examples])

    def constrained(self, model: Transducer, tokenizers: tuple[Tokenizer, Tokenizer], how: Decoding) -> TreeWriter:
        """Return the model held to trees over the words of its source."""
        source, target = tokenizers
        return TreeWriter(model, grammar_of(target), words_of(source), how)

    def words(self, source: Tokenizer, target: Tokenizer) -> tuple[Tensor, Tensor]:
        """Count the words on one side and their tags on the other."""
        return words_of(source), grammar_of(target).tags


def example_of(text: str, where: str) -> Example:
    """Return the words of a tree as a person would give them, and the tree as a parser learns it."""
    tree = one_tree(text, where)
    return Example(" ".join(tree.words), (str(tree),))


def one_tree(text: str, where: str) -> Tree:
    """Return the tree that a text is, as a parser learns it."""
    trees = [tree for _, tree in numbered_trees([text], where)]
    whole = [clean for clean in map(cleaned, trees) if clean is not None]
    if len(trees) != 1 or not whole:
        raise UserError(f"{where}: expected one tree with words in it, found {len(whole)}.")
    refuse_invisible(whole[0], where)
    return whole[0]


def escaped(word: str) -> str:
    """Write the brackets of a word so that they are not taken for brackets of the tree, as the Penn Treebank does."""
    return "".join(PARENTHESES.get(letter, letter) for letter in word)


def shortened(text: str) -> str:
    """Return a text, or its beginning, to be put in a message."""
    return text if len(text) <= 60 else f"{text[:60]}…"


@lru_cache(maxsize=4)
def grammar_of(target: Tokenizer) -> Grammar:
    """Return what each piece of a vocabulary does to a tree."""
    if not target.splits_at_spaces:
        raise UserError(
            'A parser writes brackets and tags as whole pieces: train with [tokenizer] target_kind = "words".'
        )
    return Grammar.of(target.spellings)


@lru_cache(maxsize=4)
def words_of(source: Tokenizer) -> Tensor:
    """Return how many words (V) each piece of a text begins, whose words have a single space between them.

    A piece is a word where text is cut at spaces. Otherwise spaces are counted: pieces of bytes have one before each
    word, the first one too, and never lose one; in front of the first of many characters there is none, so END counts.
    """
    if source.splits_at_spaces:
        counts = torch.ones(len(source), dtype=torch.long)
        counts[:RESERVED] = 0
        counts[UNKNOWN] = 1
        return counts
    counts = torch.tensor([0] * RESERVED + [piece.count(" ") for piece in source.spellings[RESERVED:]])
    if not source.byte_level:
        if not counts.any():
            raise UserError(
                "The vocabulary has no space, so the words of a text cannot be counted. Train on sentences of several "
                'words, or with [tokenizer] kind = "bpe".'
            )
        counts[END] = 1
    return counts
