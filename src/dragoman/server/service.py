"""What the routes do: choose a model, take texts apart, ask the worker, put answers together. Knows no HTTP."""

import asyncio
import math
from collections.abc import AsyncIterator, Sequence
from typing import Any

from dragoman import __version__
from dragoman.server.admission import Admission
from dragoman.server.languages import language_name
from dragoman.server.limits import Limits
from dragoman.server.metrics import ServerMetrics
from dragoman.server.problems import Problem
from dragoman.server.schemas import AttentionRequest, TranslateRequest
from dragoman.server.segmentation import SegmentedText, split_text
from dragoman.server.worker_client import WorkerClient

_RankedTranslations = list[dict[str, Any]]  # translations of one text, the best first
_HEALTH_TIMEOUT_SECONDS = 5.0
_PROBE_TEXT = "1"


class TranslationService:
    """Everything that is served."""

    def __init__(self, worker: WorkerClient, admission: Admission, limits: Limits, metrics: ServerMetrics) -> None:
        self.worker, self.admission, self.limits, self.metrics = worker, admission, limits, metrics
        self.is_draining = False
        self.health_probe: asyncio.Task[bool] | None = None

    def find_model(
        self, name: str | None = None, source: str | None = None, target: str | None = None
    ) -> dict[str, Any]:
        """Return the model that is meant, the first if there are several."""
        for field, wanted in (("name", name), ("source", source), ("target", target)):
            if wanted is not None and all(model[field] != wanted for model in self.worker.models):
                raise Problem(404, "unknown", f"No such {_FIELD_NAMES[field]} is served.", field=_FIELD_NAMES[field])
        wish = {"name": name, "source": source, "target": target}
        for model in self.worker.models:
            if all(value is None or model[key] == value for key, value in wish.items()):
                return model
        raise Problem(404, "unknown", "No model is served from this language into that one.", field="target")

    @property
    def translators(self) -> list[dict[str, Any]]:
        """The models that lead from one language into another."""
        return [model for model in self.worker.models if model["languages"]]

    async def translate(self, request: TranslateRequest) -> dict[str, Any]:
        """Answer `/v1/translate`."""
        texts = self.request_texts(request)
        model = self.find_model(request.model, request.source, request.target)
        _check_supported(request, model)
        wish = _search_options(request)
        if model["goes_on"]:
            found = await self.run_operation("write", model, texts, n_best=request.n_best, **request.sampling_options)
        elif request.prefix:
            found = await self.run_operation("continue", model, texts, prefix=request.prefix, **wish)
        else:
            found = await self.translate_segmented(
                model, [split_text(text, split=_should_split(request, model)) for text in texts], **wish
            )
        return {"translations": found, "model": model["name"]}

    def request_texts(self, request: TranslateRequest) -> list[str]:
        """Return the texts of a request, if it has what belongs together."""
        if (request.text is None) == (request.texts is None):
            raise Problem(422, "invalid", "Give either text or texts.", field="text")
        if request.texts is not None and (request.prefix or request.stream):
            raise Problem(422, "invalid", "A prefix or a stream is for a single text.", field="texts")
        if request.beam is not None and request.beam < request.n_best:
            raise Problem(422, "invalid", "The beam is narrower than n_best; widen it or ask for fewer.", field="beam")
        return request.texts if request.texts is not None else [request.text or ""]

    async def translate_segmented(
        self, model: dict[str, Any], texts: Sequence[SegmentedText], **options: Any
    ) -> list[_RankedTranslations]:
        """Translate texts that were taken apart, all sentences at once, and put them together."""
        sentences = [sentence for layout in texts for sentence in layout.sentences]
        found = iter(await self.run_operation("translate", model, sentences, **options) if sentences else [])
        return [_merge_ranked(layout, [next(found) for _ in layout.sentences]) for layout in texts]

    async def run_operation(
        self, operation: str, model: dict[str, Any], texts: Sequence[str], **options: Any
    ) -> list[_RankedTranslations]:
        """Ask the worker for the translations of each text, if there is room for so much."""
        characters = sum(map(len, texts))
        self.check_lengths(texts)
        with self.admission.reserve(characters):
            found: list[_RankedTranslations] = await self.worker.request(
                operation, model=model["name"], texts=list(texts), **options
            )
        self.metrics.sentences += len(texts)
        self.metrics.characters += characters
        return found

    def check_lengths(self, texts: Sequence[str]) -> None:
        """Refuse a text that is longer than this server allows, which may be less than the API allows."""
        if any(len(text) > self.limits.text_characters for text in texts):
            most = self.limits.text_characters
            raise Problem(422, "invalid", f"A text may have {most} characters at most.", field="text")

    async def stream(self, request: TranslateRequest) -> AsyncIterator[dict[str, Any]]:
        """Yield what becomes of one text as it grows, at last the answer of `translate`."""
        (text,) = self.request_texts(request)
        model = self.find_model(request.model, request.source, request.target)
        _check_supported(request, model)
        if model["goes_on"]:
            operation, layout = "write", SegmentedText((text,), ("", ""))
            wish: dict[str, Any] = {"n_best": request.n_best, "tell": True, **request.sampling_options}
        else:
            operation, layout = "stream", split_text(text, split=_should_split(request, model))
            wish = _search_options(request)
        written = [""] * len(layout.sentences)
        found: list[_RankedTranslations] = []
        with self.admission.reserve(len(text)):
            question = {"model": model["name"], "texts": layout.sentences, **wish}
            async for message in self.worker.stream(operation, **question):
                if "found" in message:
                    found = message["found"]
                else:
                    written[message["part"]["place"]] = message["part"]["text"]
                    yield {"text": "".join(written) if model["goes_on"] else layout.fill(written).rstrip()}
        yield {"translations": [_merge_ranked(layout, found)], "model": model["name"]}

    async def inspect_translation(self, request: AttentionRequest) -> dict[str, Any]:
        """Answer `/v1/attention`."""
        model = self.find_model(request.model)
        with self.admission.reserve(len(request.text)):
            wish = request.model_dump(exclude={"model"})
            shown: dict[str, Any] = await self.worker.request("look", model=model["name"], **wish)
        return shown

    async def head_report(self, name: str | None) -> dict[str, Any]:
        """Return what was measured about a model's heads."""
        found: dict[str, Any] | None = await self.worker.request("report", model=self.find_model(name)["name"])
        if found is None:
            raise Problem(404, "no_report", "The heads of this model have not been measured.")
        return found

    async def checkpoints(self, name: str | None) -> dict[str, Any]:
        """Return the checkpoints that a model's run has."""
        model = self.find_model(name)["name"]
        return {"model": model, "checkpoints": await self.worker.request("checkpoints", model=model)}

    async def detect_language(self, text: str) -> list[dict[str, Any]]:
        """Rank the languages that are served by how well their models get on with a text, the likeliest first."""
        models = {model["source"]: model for model in reversed(self.translators)}
        first = split_text(text).sentences[:1]
        if len(models) < 2 or not first:
            return [{"language": code, "confidence": round(100 / len(models), 1)} for code in models]
        found = await asyncio.gather(
            *(self.run_operation("translate", each, first, beam=1) for each in models.values())
        )
        likelihood = [math.exp(max(-50.0, answer[0][0]["score"])) for answer in found]
        total = sum(likelihood) or 1.0
        ranked = sorted(zip(likelihood, models, strict=True), reverse=True)
        return [{"language": code, "confidence": round(100 * share / total, 1)} for share, code in ranked]

    def info(self) -> dict[str, Any]:
        """Return what is served, and within which limits."""
        models = [
            {**model, "source_name": language_name(model["source"]), "target_name": language_name(model["target"])}
            for model in self.worker.models
        ]
        return {"version": __version__, "models": models, "limits": vars(self.limits)}

    async def is_healthy(self) -> bool:
        """Say whether a real translation passes; who asks while one is under way shares it."""
        if self.health_probe is None or self.health_probe.done():
            self.health_probe = asyncio.create_task(self.run_health_probe())
        return await asyncio.shield(self.health_probe)

    async def run_health_probe(self) -> bool:
        """Translate something with the first model."""
        try:
            async with asyncio.timeout(_HEALTH_TIMEOUT_SECONDS):
                wish = {"texts": [_PROBE_TEXT], "beam": 1, "read": True}
                found = await self.worker.request("translate", model=self.find_model()["name"], **wish)
            return bool(found[0][0]["score"] > -1e29)
        except (Problem, TimeoutError):
            return False

    @property
    def is_ready(self) -> bool:
        """Say whether requests are welcome."""
        return self.worker.is_ready and not self.is_draining


_FIELD_NAMES = {"name": "model", "source": "source", "target": "target"}


def _search_options(request: TranslateRequest) -> dict[str, Any]:
    """Return what the worker is told of how to search, and of what to tell."""
    return {name: getattr(request, name) for name in ("beam", "n_best", "details", "pictures")}


def _should_split(request: TranslateRequest, model: dict[str, Any]) -> bool:
    """Say whether a text is cut at the ends of sentences, not only of lines."""
    return request.split and not model["whole"]


def _check_supported(request: TranslateRequest, model: dict[str, Any]) -> None:
    """Refuse what the model that is meant cannot do."""
    noun = model["noun"]
    if request.sampling_options and not model["goes_on"]:
        first = min(request.sampling_options)
        raise Problem(422, "invalid", f"{first} is for a language model, and the model is a {noun}.", field=first)
    unfit = ("prefix", "details", "beam") if model["goes_on"] else () if model["plain"] else ("prefix", "details")
    for name in unfit:
        if getattr(request, name):
            raise Problem(422, "invalid", f"{name} cannot be asked for where the model is a {noun}.", field=name)


def _merge_ranked(text: SegmentedText, sentences: Sequence[_RankedTranslations]) -> _RankedTranslations:
    """Make translations of a text from those of its sentences: the best of each, the second best of each, …"""
    ranks = max((len(row) for row in sentences), default=1)
    return [_merge_sentences(text, [row[min(rank, len(row) - 1)] for row in sentences]) for rank in range(ranks)]


def _merge_sentences(layout: SegmentedText, sentences: _RankedTranslations) -> dict[str, Any]:
    """Make one translation of a text from one of each sentence."""
    if len(sentences) == 1 and not any(layout.gaps):
        return sentences[0]
    whole = {
        "text": layout.fill([each["text"] for each in sentences]),
        "score": sum(each["score"] for each in sentences) / max(1, len(sentences)),
        "log_probability": sum(each["log_probability"] for each in sentences),
        "truncated": any(each["truncated"] for each in sentences),
    }
    if sentences and "pictures" in sentences[0]:
        whole["pictures"] = [picture for each in sentences for picture in each["pictures"]]
    text = layout.fill(layout.sentences)
    return _merge_details(whole, layout, text, sentences) if sentences and "tokens" in sentences[0] else whole


def _merge_details(
    whole: dict[str, Any], layout: SegmentedText, text: str, sentences: _RankedTranslations
) -> dict[str, Any]:
    """Move the places of the sentences' pieces and words to those of the whole text."""
    told: dict[str, Any] = {name: [] for name in ("tokens", "source_words", "target_words", "alignment")}
    at = [0, 0]
    for source, one in zip(layout.sentences, sentences, strict=True):
        at = [text.index(source, at[0]), max(0, whole["text"].find(one["text"].strip(), at[1]))]
        shift = at[1] - (len(one["text"]) - len(one["text"].lstrip()))
        before = len(told["source_words"]), len(told["target_words"])
        told["tokens"] += [
            {**each, "start": each["start"] + shift, "end": each["end"] + shift} for each in one["tokens"]
        ]
        told["source_words"] += _shift_spans(one["source_words"], at[0])
        told["target_words"] += _shift_spans(one["target_words"], shift)
        told["alignment"] += [[first + before[0], second + before[1]] for first, second in one["alignment"]]
        at = [at[0] + len(source), at[1] + len(one["text"].strip())]
    return whole | told


def _shift_spans(spans: Sequence[Sequence[int]], shift: int) -> list[list[int]]:
    """Return spans further on."""
    return [[start + shift, end + shift] for start, end in spans]
