"""Does an export translate like its run? Where it does not, does the model or the search differ?

    python benchmarks/export_equality.py runs/multi30k-en-de --source test.en --reference test.de

Prints a table and writes one JSON record. Besides the searches of Dragoman and CTranslate2 there is a third: the rules
of CTranslate2, implemented here, with Dragoman's model. If it finds what CTranslate2 finds, the exported model is the
same, and all other differences come from the search.
"""

import json
import platform
import tempfile
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import ctranslate2
import torch
import typer

import dragoman
from dragoman.data.lines import read_lines
from dragoman.decoding.engine import Engine as OurEngine
from dragoman.decoding.scoring import length_penalty
from dragoman.evaluation.scores import score_translations
from dragoman.interop.ctranslate2 import export_run, search_options
from dragoman.models.transducer import Source
from dragoman.tasks.sequence_model import Prediction
from dragoman.tasks.translate import Translator
from dragoman.tokens import END, START

PACKAGES = ("dragoman", "torch", "ctranslate2", "tokenizers", "sacrebleu")
Sentences = list[list[int]]


@dataclass(frozen=True)
class Row:
    """One way to translate, and how often it gives what another one gives."""

    way: str
    bleu: float
    signature: str
    compared_with: str = ""
    identical: int | None = None


class Engine:
    """An export under CTranslate2, asked with our tokens."""

    def __init__(self, run: Path, quantization: str, model: Translator) -> None:
        with tempfile.TemporaryDirectory() as folder:
            place = export_run(run, Path(folder) / "export", quantization=quantization)
            self.engine = ctranslate2.Translator(str(place), inter_threads=1, intra_threads=torch.get_num_threads())
        self.source, self.target = model.source_tokenizer.backend, model.target_tokenizer.backend

    def search(self, sources: Sentences, **how: Any) -> list[Any]:
        """Translate tokens without their END."""
        pieces = [[self.source.id_to_token(token) for token in source] for source in sources]
        return list(self.engine.translate_batch(pieces, max_batch_size=64, return_scores=True, **how))

    def best(self, sources: Sentences, **how: Any) -> Sentences:
        """Return the tokens that CTranslate2 ranks first."""
        return [self.tokens(found.hypotheses[0]) for found in self.search(sources, **how)]

    def best_by_our_penalty(self, sources: Sentences, alpha: float, **how: Any) -> Sentences:
        """Return the tokens that rank first when the n best are divided by our length penalty instead."""
        found = self.search(sources, num_hypotheses=how["beam_size"], **how)
        return [max(self.ranked(one, alpha, how["length_penalty"]))[1] for one in found]

    def ranked(self, found: Any, alpha: float, own_alpha: float) -> list[tuple[float, list[int]]]:
        """Return the hypotheses of a sentence with our scores; both engines count END to the length."""
        rows = [(score, self.tokens(pieces)) for score, pieces in zip(found.scores, found.hypotheses, strict=True)]
        return [
            (score * (len(row) + 1) ** own_alpha / length_penalty(len(row) + 1.0, alpha), row) for score, row in rows
        ]

    def tokens(self, pieces: list[str]) -> list[int]:
        """Return the ids of pieces."""
        return [self.target.token_to_id(piece) for piece in pieces]

    def log_probabilities(self, sources: Sentences, targets: Sentences) -> list[float]:
        """Return how probable the export finds given targets."""
        pieces = (
            [[tokenizer.id_to_token(token) for token in row] for row in rows]
            for tokenizer, rows in ((self.source, sources), (self.target, targets))
        )
        return [sum(one.log_probs) for one in self.engine.score_batch(*pieces, max_batch_size=64)]


@torch.inference_mode()
def search_by_their_rules(model: Translator, source: list[int], alpha: float, how: dict[str, Any]) -> list[int]:
    """Search one sentence on our model as CTranslate2 does, and rank by our penalty.

    Of the 2 W best extensions, those among the first W that end are finished, and the next best that do not end take
    their places. The search is over when W · patience hypotheses have been finished.
    """
    width, longest = how["beam_size"], how["max_decoding_length"]
    memory = model.model.encode(Source.from_ids(torch.tensor([[*source, END]])))
    state = model.model.initial_state(memory)
    tokens, sums = torch.tensor([[START]]), torch.zeros(1)
    finished: list[tuple[float, list[int]]] = []
    for produced in range(1, longest + 1):
        logits, state = model.model.step(tokens[None, :, -1], memory, state)
        if produced == 1:
            logits[..., END] = -torch.inf
        likely = (sums[:, None] + logits[0].log_softmax(-1)).flatten()
        best, places = likely.topk(2 * width)
        parents, token = places // logits.shape[-1], places % logits.shape[-1]
        last = produced == longest
        closing = [place for place in range(width) if last or token[place] == END]
        finished += [
            (float(best[place]) / length_penalty(float(produced), alpha), [*tokens[parents[place], 1:].tolist()])
            for place in closing
        ]
        if last or len(finished) >= round(width * how["patience"]):
            break
        spare = iter([place for place in range(width, 2 * width) if token[place] != END])
        going_on = torch.tensor([next(spare, place) if place in closing else place for place in range(width)])
        tokens = torch.cat([tokens[parents[going_on]], token[going_on, None]], dim=1)
        sums, state = best[going_on], state.reorder(parents[going_on][None])
    return max(finished)[1]


def compare(run: Path, sources: list[str], references: list[str], beam: int, alpha: float) -> tuple[list[Row], Any]:
    """Translate in every way; return the rows of the table and what else was measured."""
    model = dragoman.load(run, device="cpu")
    tokens = [model.source_tokenizer.encode(text) for text in sources]
    single, quantized = Engine(run, "float32", model), Engine(run, "int8", model)
    how = search_options(model, beam, alpha)
    greedily = {"beam_size": 1, "max_decoding_length": how["max_decoding_length"]}

    def text(rows: Sentences) -> list[str]:
        return [model.target_tokenizer.decode(row) for row in rows]

    ours = f"ours, beam {beam}"
    reranked = "float32, n best ranked by our penalty"
    found = model.translate(sources, beam=beam, length_penalty=alpha, details=True)
    chosen = single.best_by_our_penalty(tokens, alpha, **how)
    outputs = {
        "ours, greedy": model.translate(sources, beam=1),
        "float32, greedy": text(single.best(tokens, **greedily)),
        ours: [best.text for best in found],
        "float32": text(single.best(tokens, **how)),
        reranked: text(chosen),
        "their rules on our model": text([search_by_their_rules(model, source, alpha, how) for source in tokens]),
        "int8": text(quantized.best(tokens, **how)),
    }
    compared = {
        "float32, greedy": "ours, greedy", "float32": ours, reranked: ours, "their rules on our model": reranked,
        "int8": ours,
    }  # fmt: skip
    rows = [row(way, texts, references, compared.get(way, ""), outputs) for way, texts in outputs.items()]
    return rows, {"options": how, **differences(model, single, sources, found, chosen, references, alpha)}


def row(way: str, texts: list[str], references: list[str], other: str, outputs: dict[str, list[str]]) -> Row:
    """Score translations, and count those that are the same in another way."""
    bleu = score_translations(texts, references, intervals=False).bleu
    identical = sum(map(str.__eq__, texts, outputs[other])) if other else None
    return Row(way, bleu.value, bleu.signature, other, identical)


def differences(
    model: Translator, engine: Engine, sources: list[str], ours: list[Prediction], theirs: Sentences,
    references: list[str], alpha: float,
) -> dict[str, float]:  # fmt: skip
    """Say how far apart log-probabilities are, and who has the better score where the searches differ."""
    tokens = [model.source_tokenizer.encode(text) for text in sources]
    targets = [model.target_tokenizer.encode(text) for text in references]
    given = [one.log_probability for one in model.score(sources, references)]
    apart = map(float.__sub__, given, engine.log_probabilities(tokens, targets))
    # Scored by their tokens: cut anew, the text of a translation may fall into other pieces than it was found in.
    scorer = OurEngine(model.model, model.decoding_config(length_penalty=alpha))
    scored = scorer.score([[*row, END] for row in tokens], [[*row, END] for row in theirs])
    pairs = [
        (one.score, other.score)
        for one, other in zip(ours, scored, strict=True)
        if one.text != model.target_tokenizer.decode(other.tokens)
    ]
    return {
        "largest_difference_of_log_probabilities": max(map(abs, apart)),
        "different": len(pairs),
        "of_these_ours_scores_higher": sum(one > other for one, other in pairs),
        "of_these_theirs_scores_higher": sum(one < other for one, other in pairs),
    }


def table(rows: list[Row], sentences: int) -> str:
    """Return the rows as a table to read."""
    lines = [f"{'way':<40} {'BLEU':>6}  identical"]
    for one in rows:
        same = "" if one.identical is None else f"{100 * one.identical / sentences:5.1f} % with {one.compared_with}"
        lines.append(f"{one.way:<40} {one.bleu:>6.2f}  {same}".rstrip())
    return "\n".join(lines)


def main(
    run: Path,
    source: Annotated[Path, typer.Option(help="Text to translate.")],
    reference: Annotated[Path, typer.Option(help="Its translation.")],
    beam: int = 4,
    length_penalty: float = 0.6,
    record: Annotated[Path, typer.Option(help="Where to write the JSON record.")] = Path("export_equality.json"),
) -> None:
    """Compare the translations of RUN with those of its export under CTranslate2."""
    sources, references = list(read_lines(source)), list(read_lines(reference))
    rows, measured = compare(run, sources, references, beam, length_penalty)
    print(table(rows, len(sources)))
    for name, value in measured.items():
        print(f"{name.replace('_', ' ')}: {value}")
    facts = {
        "run": run.name, "source": source.name, "sentences": len(sources), "beam": beam,
        "length_penalty": length_penalty, "threads": torch.get_num_threads(), "python": platform.python_version(),
        **{package: version(package) for package in PACKAGES},
    }  # fmt: skip
    written = {**facts, **measured, "rows": [asdict(one) for one in rows]}
    record.write_text(json.dumps(written, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    typer.run(main)
