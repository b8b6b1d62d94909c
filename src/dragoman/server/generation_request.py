"""Continuing texts with a language model in the worker: each sample is a stage, and looks around after each token."""

from typing import Any

from dragoman.processes import Message
from dragoman.server.registry import ServedModel
from dragoman.server.stage import Look, Request, Stage
from dragoman.server.translation_request import MIN_SCORE, OnPart
from dragoman.server.work import check_work, generated_length, generation_work
from dragoman.tasks.generate import LanguageModel

_SAMPLING_FIELDS = ("temperature", "top_k", "top_p", "seed", "stop")


def generate(model: ServedModel, message: Message, max_work: int, on_part: OnPart | None = None) -> Request:
    """Continue texts; `on_part` gets the first sample of the text while it grows."""
    language_model, texts = model.translator, message["texts"]
    assert isinstance(language_model, LanguageModel), f"{type(language_model)} is not a language model"
    prompt_tokens = yield Stage(
        lambda items, _look: [len(language_model.target_tokenizer.encode(text)) for text in items],
        texts, list(map(len, texts)), lane="slice", needs_turn=False,
    )  # fmt: skip
    check_work(generation_work(message, len(texts), sum(prompt_tokens)), max_work)
    answers = []
    for text in texts:
        samples = []
        for sample in range(message.get("n_best", 1)):
            run = _sampler(language_model, message, sample, on_part if sample == 0 else None)
            samples += yield Stage(run, [text], [0], lane="single")
        answers.append(samples)
    return answers


def _sampler(language_model: LanguageModel, message: Message, sample: int, on_part: OnPart | None) -> Any:
    options = {name: message[name] for name in _SAMPLING_FIELDS if name in message}

    def run(texts: list[str], look: Look) -> list[dict[str, Any]]:
        (text,) = texts
        stream = language_model.stream(
            text, length=generated_length(message), sample=sample, on_token=look or (lambda: None), **options
        )
        generated = ""
        for piece in stream:
            generated += piece
            if on_part:
                on_part(0, generated)
        result = stream.result()
        return [
            {
                "text": result.text,
                "score": max(result.log_probability / max(1, result.tokens), MIN_SCORE),
                "log_probability": max(result.log_probability, MIN_SCORE),
                "truncated": result.finish_reason == "length",
            }
        ]

    return run
