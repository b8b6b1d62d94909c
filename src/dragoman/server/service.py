"""What the routes do: choose a model, take texts apart, ask the worker, put answers together. Knows no HTTP."""

import asyncio
import math
from collections.abc import AsyncIterator, Sequence
from typing import Any

from dragoman import __version__
from dragoman.server.admission import Admission
from dragoman.server.keeper import Keeper
from dragoman.server.languages import name_of
from dragoman.server.limits import Limits
from dragoman.server.metrics import Metrics
from dragoman.server.problems import Problem
from dragoman.server.schemas import LookRequest, TranslateRequest
from dragoman.server.texts import Layout, laid_out

Found = list[dict[str, Any]]  # translations of one text, the best first
HEALTH_SECONDS = 5.0
PROBE = "1"


class Service:
    """Everything that is served."""

    def __init__(self, keeper: Keeper, admission: Admission, limits: Limits, metrics: Metrics) -> None:
        self.keeper, self.admission, self.limits, self.metrics = keeper, admission, limits, metrics
        self.draining = False
        self.probe: asyncio.Task[bool] | None = None

    def model(self, name: str | None = None, source: str | None = None, target: str | None = None) -> dict[str, Any]:
        """Return the model that is meant, the first if there are several."""
        for field, wanted in (("name", name), ("source", source), ("target", target)):
            if wanted is not None and all(model[field] != wanted for model in self.keeper.models):
                raise Problem(404, "unknown", f"No such {WORDS[field]} is served.", field=WORDS[field])
        wish = {"name": name, "source": source, "target": target}
        for model in self.keeper.models:
            if all(value is None or model[key] == value for key, value in wish.items()):
                return model
        raise Problem(404, "unknown", "No model is served from this language into that one.", field="target")

    @property
    def translators(self) -> list[dict[str, Any]]:
        """The models that lead from one language into another."""
        return [model for model in self.keeper.models if model["languages"]]

    async def translate(self, asked: TranslateRequest) -> dict[str, Any]:
        """Answer `/v1/translate`."""
        texts = self.texts_of(asked)
        model = self.model(asked.model, asked.source, asked.target)
        check_fit(asked, model)
        wish = searched(asked)
        if model["goes_on"]:
            found = await self.asked("write", model, texts, n_best=asked.n_best, **asked.drawing)
        elif asked.prefix:
            found = await self.asked("continue", model, texts, prefix=asked.prefix, **wish)
        else:
            found = await self.in_layout(model, [laid_out(text, split=splits(asked, model)) for text in texts], **wish)
        return {"translations": found, "model": model["name"]}

    def texts_of(self, asked: TranslateRequest) -> list[str]:
        """Return the texts of a request, if it has what belongs together."""
        if (asked.text is None) == (asked.texts is None):
            raise Problem(422, "invalid", "Give either text or texts.", field="text")
        if asked.texts is not None and (asked.prefix or asked.stream):
            raise Problem(422, "invalid", "A prefix or a stream is for a single text.", field="texts")
        if asked.beam is not None and asked.beam < asked.n_best:
            raise Problem(422, "invalid", "The beam is narrower than n_best; widen it or ask for fewer.", field="beam")
        return asked.texts if asked.texts is not None else [asked.text or ""]

    async def in_layout(self, model: dict[str, Any], layouts: Sequence[Layout], **wish: Any) -> list[Found]:
        """Translate texts that were taken apart, all sentences at once, and put them together."""
        sentences = [sentence for layout in layouts for sentence in layout.sentences]
        found = iter(await self.asked("translate", model, sentences, **wish) if sentences else [])
        return [put_together(layout, [next(found) for _ in layout.sentences]) for layout in layouts]

    async def asked(self, operation: str, model: dict[str, Any], texts: Sequence[str], **wish: Any) -> list[Found]:
        """Ask the worker for the translations of each text, if there is room for so much."""
        characters = sum(map(len, texts))
        self.check_lengths(texts)
        with self.admission.working_on(characters):
            found: list[Found] = await self.keeper.ask(operation, model=model["name"], texts=list(texts), **wish)
        self.metrics.sentences += len(texts)
        self.metrics.characters += characters
        return found

    def check_lengths(self, texts: Sequence[str]) -> None:
        """Refuse a text that is longer than this server allows, which may be less than the API allows."""
        if any(len(text) > self.limits.text_characters for text in texts):
            most = self.limits.text_characters
            raise Problem(422, "invalid", f"A text may have {most} characters at most.", field="text")

    async def growing(self, asked: TranslateRequest) -> AsyncIterator[dict[str, Any]]:
        """Yield what becomes of one text as it grows, at last the answer of `translate`."""
        (text,) = self.texts_of(asked)
        model = self.model(asked.model, asked.source, asked.target)
        check_fit(asked, model)
        if model["goes_on"]:
            operation, layout = "write", Layout((text,), ("", ""))
            wish: dict[str, Any] = {"n_best": asked.n_best, "tell": True, **asked.drawing}
        else:
            operation, layout = "stream", laid_out(text, split=splits(asked, model))
            wish = searched(asked)
        written = [""] * len(layout.sentences)
        found: list[Found] = []
        with self.admission.working_on(len(text)):
            question = {"model": model["name"], "texts": layout.sentences, **wish}
            async for message in self.keeper.stream(operation, **question):
                if "found" in message:
                    found = message["found"]
                else:
                    written[message["part"]["place"]] = message["part"]["text"]
                    yield {"text": "".join(written) if model["goes_on"] else layout.filled(written).rstrip()}
        yield {"translations": [put_together(layout, found)], "model": model["name"]}

    async def look(self, asked: LookRequest) -> dict[str, Any]:
        """Answer `/v1/attention`."""
        model = self.model(asked.model)
        with self.admission.working_on(len(asked.text)):
            wish = asked.model_dump(exclude={"model"})
            shown: dict[str, Any] = await self.keeper.ask("look", model=model["name"], **wish)
        return shown

    async def report(self, name: str | None) -> dict[str, Any]:
        """Return what was measured about a model's heads."""
        found: dict[str, Any] | None = await self.keeper.ask("report", model=self.model(name)["name"])
        if found is None:
            raise Problem(404, "no_report", "The heads of this model have not been measured.")
        return found

    async def checkpoints(self, name: str | None) -> dict[str, Any]:
        """Return the checkpoints that a model's run has."""
        model = self.model(name)["name"]
        return {"model": model, "checkpoints": await self.keeper.ask("checkpoints", model=model)}

    async def detect(self, text: str) -> list[dict[str, Any]]:
        """Rank the languages that are served by how well their models get on with a text, the likeliest first."""
        models = {model["source"]: model for model in reversed(self.translators)}
        first = laid_out(text).sentences[:1]
        if len(models) < 2 or not first:
            return [{"language": code, "confidence": round(100 / len(models), 1)} for code in models]
        found = await asyncio.gather(*(self.asked("translate", each, first, beam=1) for each in models.values()))
        likelihood = [math.exp(max(-50.0, answer[0][0]["score"])) for answer in found]
        total = sum(likelihood) or 1.0
        ranked = sorted(zip(likelihood, models, strict=True), reverse=True)
        return [{"language": code, "confidence": round(100 * share / total, 1)} for share, code in ranked]

    def info(self) -> dict[str, Any]:
        """Return what is served, and within which limits."""
        models = [
            {**model, "source_name": name_of(model["source"]), "target_name": name_of(model["target"])}
            for model in self.keeper.models
        ]
        return {"version": __version__, "models": models, "limits": vars(self.limits)}

    async def healthy(self) -> bool:
        """Say whether a real translation passes; who asks while one is under way shares it."""
        if self.probe is None or self.probe.done():
            self.probe = asyncio.create_task(self.probed())
        return await asyncio.shield(self.probe)

    async def probed(self) -> bool:
        """Translate something with the first model."""
        try:
            async with asyncio.timeout(HEALTH_SECONDS):
                wish = {"texts": [PROBE], "beam": 1, "read": True}
                found = await self.keeper.ask("translate", model=self.model()["name"], **wish)
            return bool(found[0][0]["score"] > -1e29)
        except (Problem, TimeoutError):
            return False

    @property
    def ready(self) -> bool:
        """Say whether requests are welcome."""
        return self.keeper.ready and not self.draining


WORDS = {"name": "model", "source": "source", "target": "target"}


def searched(asked: TranslateRequest) -> dict[str, Any]:
    """Return what the worker is told of how to search, and of what to tell."""
    return {name: getattr(asked, name) for name in ("beam", "n_best", "details", "pictures")}


def splits(asked: TranslateRequest, model: dict[str, Any]) -> bool:
    """Say whether a text is cut at the ends of sentences, not only of lines."""
    return asked.split and not model["whole"]


def check_fit(asked: TranslateRequest, model: dict[str, Any]) -> None:
    """Refuse what the model that is meant cannot do."""
    noun = model["noun"]
    if asked.drawing and not model["goes_on"]:
        first = min(asked.drawing)
        raise Problem(422, "invalid", f"{first} is for a language model, and the model is a {noun}.", field=first)
    unfit = ("prefix", "details", "beam") if model["goes_on"] else () if model["plain"] else ("prefix", "details")
    for name in unfit:
        if getattr(asked, name):
            raise Problem(422, "invalid", f"{name} cannot be asked for where the model is a {noun}.", field=name)


def put_together(layout: Layout, found: Sequence[Found]) -> Found:
    """Make translations of a text from those of its sentences: the best of each, the second best of each, …"""
    ranks = max((len(row) for row in found), default=1)
    return [combined(layout, [row[min(rank, len(row) - 1)] for row in found]) for rank in range(ranks)]


def combined(layout: Layout, sentences: Found) -> dict[str, Any]:
    """Make one translation of a text from one of each sentence."""
    if len(sentences) == 1 and not any(layout.gaps):
        return sentences[0]
    whole = {
        "text": layout.filled([each["text"] for each in sentences]),
        "score": sum(each["score"] for each in sentences) / max(1, len(sentences)),
        "log_probability": sum(each["log_probability"] for each in sentences),
        "truncated": any(each["truncated"] for each in sentences),
    }
    if sentences and "pictures" in sentences[0]:
        whole["pictures"] = [picture for each in sentences for picture in each["pictures"]]
    text = layout.filled(layout.sentences)
    return with_details(whole, layout, text, sentences) if sentences and "tokens" in sentences[0] else whole


def with_details(whole: dict[str, Any], layout: Layout, text: str, sentences: Found) -> dict[str, Any]:
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
        told["source_words"] += moved(one["source_words"], at[0])
        told["target_words"] += moved(one["target_words"], shift)
        told["alignment"] += [[first + before[0], second + before[1]] for first, second in one["alignment"]]
        at = [at[0] + len(source), at[1] + len(one["text"].strip())]
    return whole | told


def moved(spans: Sequence[Sequence[int]], shift: int) -> list[list[int]]:
    """Return spans further on."""
    return [[start + shift, end + shift] for start, end in spans]
