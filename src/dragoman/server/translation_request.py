"""Translation in the worker, in stages: split and tokenize, search, record details, put the answer together.

The texts of a message are translated one by one. If it has a `layout`, they are sentences of longer texts: the layout
has the gaps before, between and after the sentences of each, and the answer is the translations of the longer texts as
JSON. Answers have up to megabytes, which are encoded here, in parts, and not read before they are sent to the client.
"""

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, TypeVar

from dragoman.decoding.hypothesis import Hypothesis
from dragoman.decoding.search import Beam
from dragoman.errors import UserError
from dragoman.processes import Message
from dragoman.recipe import DecodingConfig
from dragoman.server.details import merge_details, merge_sentences
from dragoman.server.encoding import encode_json
from dragoman.server.inspection import Details, check_details_length, record_details
from dragoman.server.limits import Limits
from dragoman.server.registry import ServedModel
from dragoman.server.stage import Look, Request, Stage, looking
from dragoman.server.work import check_work, described_hypotheses, search_work
from dragoman.tasks.sequence_model import Prediction
from dragoman.text.sentences import SegmentedText
from dragoman.tokens import END

MIN_SCORE = -1e30  # JSON has no infinity
_CHUNK_CHARACTERS = 512  # of texts that are tokenized together
_CHUNK_TOKENS = 1024  # of hypotheses that are converted to text together
_JOINED_TOGETHER = 1024  # segments, at least 16 per text, or tokens with details
_DETAILS_TOKENS = 256  # source and target tokens whose attention is recorded together

OnPart = Callable[[int, str], None]  # called with the index of a text and its output so far
_Item = TypeVar("_Item")
_Segment = tuple[str, tuple[int, ...]]  # a segment and its output
_Translations = list[dict[str, Any]]  # translations of one text, best first


@dataclass(frozen=True)
class _SplitText:
    """A text as the model reads it."""

    text: str
    source: str  # in the model's own format
    segmented: SegmentedText
    tokens: list[list[int]]  # of each segment


@dataclass(frozen=True)
class TranslationRequest:
    """Texts to translate with the same options."""

    model: ServedModel
    message: Message
    limits: Limits
    on_part: OnPart | None = None  # given: segments are translated one after the other, step by step

    @property
    def n_best(self) -> int:
        """The number of translations of each text."""
        return int(self.message.get("n_best", 1))

    @property
    def config(self) -> DecodingConfig:
        """The settings of the search."""
        return self.model.decoding_config(self.message.get("beam"), self.n_best)

    def stages(self) -> Request:
        """Translate the texts; the first segment begins with `prefix`."""
        texts = yield from self._split_texts()
        segments = [tokens for text in texts for tokens in text.tokens]
        prefix = self.model.translator.prefix_tokens(self.message.get("prefix", ""))
        sizes = [len(tokens) for tokens in segments]
        self._check_sizes(sizes, len(prefix))
        first = len(segments) if self.on_part else 1 if prefix else 0
        hypotheses: list[list[Hypothesis]] = []
        sent = [[""] * len(text.tokens) for text in texts]
        for index, tokens in enumerate(segments[:first]):
            on_beam = self._part_sender(texts, sent, index) if self.on_part else None
            search = partial(self._search, prefix=prefix if index == 0 else (), on_beam=on_beam)
            hypotheses += yield Stage(search, [tokens], sizes[index : index + 1], lane="single")
            number, segment = _locate_segment(texts, index)
            sent[number][segment] = self.model.translator.target_tokenizer.decode(hypotheses[-1][0].tokens)
        key, budget = (id(self.model), id(self.config), self.n_best), self.config.batch_tokens // self.config.beam
        hypotheses += yield Stage(self._search, segments[first:], sizes[first:], key=key, budget=budget)
        predictions = yield from self._predictions(hypotheses)
        details = yield from self._details(texts, hypotheses)
        translations = yield from self._answer(texts, hypotheses, predictions, details)
        if "layout" not in self.message:
            return translations
        return (yield from self._encode(translations))

    def _check_sizes(self, sizes: Sequence[int], prefix: int) -> None:
        """Refuse what costs too much; a sentence is read in one step, whose time grows with its length squared."""
        work = search_work([*sizes, prefix], self.config.beam, described_hypotheses(self.message))
        check_work(work, self.limits.request_work)
        longest, limit = max(sizes, default=0), self.limits.sentence_tokens
        if longest > limit:
            raise UserError(
                f"A sentence has {longest:,} tokens; this server accepts at most {limit:,}. Send shorter sentences."
            )

    def _split_texts(self) -> Generator[Stage, list[Any], list[_SplitText]]:
        chunks = _chunks(self.message["texts"], len, _CHUNK_CHARACTERS)
        sizes = [sum(map(len, chunk)) for chunk in chunks]
        results = yield Stage(self._split_chunks, chunks, sizes, lane="slice", needs_turn=False)
        return [text for chunk in results for text in chunk]

    def _split_chunks(self, chunks: list[list[str]], look: Look) -> list[list[_SplitText]]:
        return [[self._split_text(text, look) for text in chunk] for chunk in looking(chunks, look)]

    def _split_text(self, text: str, look: Look) -> _SplitText:
        translator = self.model.translator
        source = text if self.message.get("is_model_input") else translator.task.to_model_input(text)
        segmented = translator.split_text(source, split=self.message.get("split", True), pause=look)
        tokens = list(map(translator.source_tokens, looking(segmented.sentences, look)))
        return _SplitText(text, source, segmented, tokens)

    def _search(
        self,
        segments: list[list[int]],
        look: Look,
        *,
        prefix: Sequence[int] = (),
        on_beam: Callable[[Beam], None] | None = None,
    ) -> list[list[Hypothesis]]:
        engine = self.model.engine(self.config)
        return engine.search(segments, n_best=self.n_best, prefix=prefix, on_step=on_beam, pause=look)

    def _part_sender(self, texts: list[_SplitText], sent: list[list[str]], index: int) -> Callable[[Beam], None]:
        """Return a function that sends what there is of a text after each step of a search in which it has changed.

        `sent` has the outputs of the segments of each text so far; `index` is that of the segment among those of all.
        """
        number, segment = _locate_segment(texts, index)
        text, translator, on_part = texts[number], self.model.translator, self.on_part

        def send_part(beam: Beam) -> None:
            best = int(beam.log_probabilities[0].argmax())
            tokens = [token for token in beam.tokens[0, best].tolist()[1:] if token != END]
            output = translator.target_tokenizer.decode(tokens)
            if output != sent[number][segment] and on_part:
                sent[number][segment] = output
                on_part(
                    number, translator.task.from_model_output(text.source, text.segmented.fill(sent[number]).rstrip())
                )

        return send_part

    def _predictions(
        self, hypotheses: Sequence[list[Hypothesis]]
    ) -> Generator[Stage, list[Any], list[list[Prediction]]]:
        """Return the hypotheses of each segment as text."""
        chunks = _chunks(hypotheses, _tokens_of, _CHUNK_TOKENS)
        sizes = [sum(map(_tokens_of, chunk)) for chunk in chunks]
        results = yield Stage(_run_each(self._convert_chunk), chunks, sizes, lane="slice", needs_turn=False)
        return [ranked for chunk in results for ranked in chunk]

    def _convert_chunk(self, chunk: list[list[Hypothesis]]) -> list[list[Prediction]]:
        return [list(map(self.model.translator.to_prediction, ranked)) for ranked in chunk]

    def _details(
        self, texts: Sequence[_SplitText], hypotheses: Sequence[list[Hypothesis]]
    ) -> Generator[Stage, list[Any], Mapping[_Segment, Details]]:
        """Return the details of the described hypotheses; those of equal segments are recorded once."""
        segments = [pair for text in texts for pair in zip(text.segmented.sentences, text.tokens, strict=True)]
        sizes: dict[_Segment, int] = {}
        for (segment, tokens), ranked in zip(segments, hypotheses, strict=True):
            for hypothesis in ranked[: described_hypotheses(self.message)]:
                check_details_length(len(tokens), len(hypothesis.tokens))
                sizes[segment, hypothesis.tokens] = len(tokens) + len(hypothesis.tokens)
        run = partial(record_details, self.model.translator)
        key = ("details", id(self.model))
        results = yield Stage(run, list(sizes), list(sizes.values()), key=key, budget=_DETAILS_TOKENS, lane="slice")
        return dict(zip(sizes, results, strict=True))

    def _answer(
        self,
        texts: Sequence[_SplitText],
        hypotheses: Sequence[list[Hypothesis]],
        predictions: Sequence[list[Prediction]],
        details: Mapping[_Segment, Details],
    ) -> Generator[Stage, list[Any], list[_Translations]]:
        """Return the translations of each text, best first."""
        found, outputs = iter(hypotheses), iter(predictions)
        items: list[_RankedText] = []
        for text in texts:
            segments = list(zip(islice(found, len(text.tokens)), islice(outputs, len(text.tokens)), strict=True))
            ranks = max((len(ranked) for ranked, _ in segments), default=1)
            items += [_RankedText(text, rank, segments) for rank in range(ranks)]
        sizes = [
            item.tokens if item.rank < described_hypotheses(self.message) else len(item.segments) for item in items
        ]

        def run(some: list[_RankedText], look: Look) -> list[dict[str, Any]]:
            return [self._format(details, item, look) for item in looking(some, look)]

        formatted = yield Stage(run, items, sizes, budget=_JOINED_TOGETHER, lane="slice", needs_turn=False)
        return _group_ranks([item.rank for item in items], formatted)

    def _format(self, details: Mapping[_Segment, Details], item: "_RankedText", look: Look) -> dict[str, Any]:
        text, translator = item.text, self.model.translator
        rows = [[_at(outputs, item.rank)] for _, outputs in item.segments]
        output = translator.format_output(text.source, translator.join_segments(text.segmented, rows, 1)[0])
        formatted: dict[str, Any] = {
            "text": output.text,
            "score": max(output.score, MIN_SCORE),
            "log_probability": max(output.log_probability, MIN_SCORE),
            "truncated": output.truncated,
        }
        if self.message.get("pictures"):
            formatted["pictures"] = list(filter(None, [translator.task.draw_output(output.text)]))
        if item.rank < described_hypotheses(self.message):
            segments = text.segmented.sentences
            tokens = [_at(ranked, item.rank).tokens for ranked, _ in item.segments]
            parts = [details[segment] for segment in zip(segments, tokens, strict=True)]
            targets = [prediction.text for (prediction,) in rows]
            sources_and_targets = zip(segments, targets, parts, strict=True)
            formatted |= merge_details(looking(sources_and_targets, look), text.text, output.text)
        return formatted

    def _encode(self, translations: Sequence[_Translations]) -> Generator[Stage, list[Any], bytes]:
        """Merge the translations of sentences to those of the texts of the layout, and return them as JSON."""
        sentences, rows = iter(self.message["texts"]), iter(translations)
        items: list[_RankedSentences] = []
        for gaps in self.message["layout"]:
            text = SegmentedText(tuple(islice(sentences, len(gaps) - 1)), tuple(gaps))
            ranked = list(islice(rows, len(gaps) - 1))
            ranks = max(map(len, ranked), default=1)
            items += [_RankedSentences(text, rank, [_at(row, rank) for row in ranked]) for rank in range(ranks)]
        sizes = [sum(_size_of(sentence) for sentence in item.sentences) for item in items]

        def run(some: list[_RankedSentences], look: Look) -> list[bytes]:
            merged = (merge_sentences(item.text, item.sentences, look) for item in looking(some, look))
            return list(map(encode_json, merged))

        encoded = yield Stage(run, items, sizes, budget=_JOINED_TOGETHER, lane="slice", needs_turn=False)
        lists = (b"[%b]" % b",".join(row) for row in _group_ranks([item.rank for item in items], encoded))
        return b"[%b]" % b",".join(lists)


@dataclass(frozen=True)
class _RankedText:
    """One translation of a text: that of this rank of each segment, or its last one."""

    text: _SplitText
    rank: int
    segments: list[tuple[list[Hypothesis], list[Prediction]]]

    @property
    def tokens(self) -> int:
        """The number of its tokens."""
        return sum(len(_at(ranked, self.rank).tokens) for ranked, _ in self.segments)


@dataclass(frozen=True)
class _RankedSentences:
    """One translation of a text of the layout: those of this rank of its sentences."""

    text: SegmentedText
    rank: int
    sentences: list[dict[str, Any]]


def _size_of(sentence: Mapping[str, Any]) -> int:
    return 1 + len(sentence.get("tokens", ()))


def _group_ranks(ranks: Sequence[int], values: Sequence[_Item]) -> list[list[_Item]]:
    """Return values in lists, one per text, each of which begins with rank 0."""
    lists: list[list[_Item]] = []
    for rank, value in zip(ranks, values, strict=True):
        lists += [[]] if rank == 0 else []
        lists[-1].append(value)
    return lists


def _at(ranked: Sequence[_Item], rank: int) -> _Item:
    return ranked[min(rank, len(ranked) - 1)]


def _locate_segment(texts: Sequence[_SplitText], index: int) -> tuple[int, int]:
    """Return the index of the text with a segment, and that of the segment in the text."""
    for number, text in enumerate(texts):
        if index < len(text.tokens):
            return number, index
        index -= len(text.tokens)
    raise IndexError(index)


def _tokens_of(ranked: Sequence[Hypothesis]) -> int:
    return sum(len(hypothesis.tokens) for hypothesis in ranked)


def _run_each(function: Callable[[_Item], Any]) -> Callable[[list[_Item], Look], list[Any]]:
    """Return the `run` of a stage whose items are worked on one by one."""
    return lambda items, look: list(map(function, looking(items, look)))


def _chunks(items: Sequence[_Item], size: Callable[[_Item], int], max_size: int) -> list[list[_Item]]:
    """Return the items in chunks of about this size; a larger item is a chunk of its own."""
    return list(_iterate_chunks(items, size, max_size))


def _iterate_chunks(items: Sequence[_Item], size: Callable[[_Item], int], max_size: int) -> Iterator[list[_Item]]:
    chunk: list[_Item] = []
    total = 0
    for item in items:
        chunk.append(item)
        total += size(item) + 1
        if total >= max_size:
            yield chunk
            chunk, total = [], 0
    if chunk:
        yield chunk
