"""Is a line of several sentences translated as well as its sentences one by one? In Python, by the command and by HTTP.

    python benchmarks/sentences_per_line.py RUN --source dev.en --reference dev.fr

Lines of one to six sentences are drawn with repetition from pairs of one sentence each. Prints a table and writes one
JSON record.
"""

import json
import random
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Annotated

import typer

import dragoman
from dragoman.data.lines import read_lines
from dragoman.evaluation.scores import score_translations
from dragoman.tasks.translate import Translator
from dragoman.text.sentences import split_sentences

MAX_SENTENCES = 6
LONG_LINE_CHARACTERS = 200_000


def main(
    run: Annotated[Path, typer.Argument(help="A run directory of a translator.")],
    source: Annotated[Path, typer.Option(help="Sentences, one per line.")],
    reference: Annotated[Path, typer.Option(help="Their translations.")],
    lines: Annotated[int, typer.Option(help="Number of lines to draw.")] = 5000,
    output: Annotated[Path, typer.Option(help="File of the record.")] = Path("sentences_per_line.json"),
) -> None:
    """Translate drawn lines in every way, and compare with their sentences one by one."""
    pairs = [pair for pair in zip(read_lines(source), read_lines(reference), strict=True) if has_one_sentence(pair[0])]
    random.seed(1)
    drawn = [random.choices(pairs, k=random.randint(1, MAX_SENTENCES)) for _ in range(lines)]
    texts = [" ".join(text for text, _ in line) for line in drawn]
    references = [" ".join(text for _, text in line) for line in drawn]
    model = dragoman.load(run)
    assert isinstance(model, Translator), f"{run} is not a translator"
    sentences = list(dict.fromkeys(text for text, _ in pairs))
    alone = dict(zip(sentences, model.translate(sentences), strict=True))
    outputs = {
        "sentences one by one": [" ".join(alone[text] for text, _ in line) for line in drawn],
        "Python": model.translate(texts),
        "dragoman translate": translate_by_command(run, texts),
        "POST /v1/translate": translate_by_http(run, texts),
        "dragoman translate --no-split": translate_by_command(run, texts, "--no-split"),
    }
    expected = [len(line) for line in drawn]
    record = {}
    for name, translations in outputs.items():
        found = [len(split_sentences(text).sentences) for text in translations]
        bleu = next(iter(score_translations(translations, references)))
        equal = sum(one == other for one, other in zip(translations, outputs["sentences one by one"], strict=True))
        record[name] = {
            "lines": len(translations),
            "sentences": sum(found),
            "lines_with_fewer": sum(count < wanted for count, wanted in zip(found, expected, strict=True)),
            "equal_to_one_by_one": equal,
            "bleu": bleu.value,
            "interval": bleu.interval,
        }
        print(f"{name:30} {record[name]}", flush=True)
    record["one long line"] = long_line(model, sentences, alone)
    print("one long line", record["one long line"])
    output.write_text(json.dumps({"run": str(run), "drawn_sentences": sum(expected), **record}, indent=2) + "\n")


def has_one_sentence(text: str) -> bool:
    """Return whether a text is one sentence and ends like one."""
    return len(split_sentences(text).sentences) == 1 and text.strip()[-1:] in ".!?"


def long_line(model: Translator, sentences: Sequence[str], alone: dict[str, str]) -> dict[str, int]:
    """Translate one line of `LONG_LINE_CHARACTERS` characters; count the sentences whose translation is missing."""
    drawn: list[str] = []
    while sum(map(len, drawn)) + len(drawn) < LONG_LINE_CHARACTERS:
        drawn.append(random.choice(sentences))
    translation = model.translate(" ".join(drawn))
    position = missing = 0
    for sentence in drawn:
        found = translation.find(alone[sentence], position)
        missing += found < 0
        position = position if found < 0 else found + len(alone[sentence])
    return {"characters": len(" ".join(drawn)), "sentences": len(drawn), "missing": missing}


def translate_by_command(run: Path, texts: Sequence[str], *options: str) -> list[str]:
    """Return the output of `dragoman translate`."""
    command = [sys.executable, "-m", "dragoman", "translate", str(run), *options]
    done = subprocess.run(command, input="\n".join(texts) + "\n", capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def translate_by_http(run: Path, texts: Sequence[str]) -> list[str]:
    """Return the answers of `dragoman serve`."""
    with serving(run) as port:
        connection = HTTPConnection("127.0.0.1", port, timeout=600)
        answers = []
        for text in texts:
            body = json.dumps({"text": text})
            connection.request("POST", "/v1/translate", body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            answer = json.loads(response.read())
            if response.status != 200:
                raise SystemExit(f"{response.status}: {answer}")
            answers.append(answer["translations"][0][0]["text"])
        return answers


@contextmanager
def serving(run: Path) -> Iterator[int]:
    """Start `dragoman serve` on a free port and yield the port."""
    command = [sys.executable, "-m", "dragoman", "serve", str(run), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout, "stdout is a pipe"
        try:
            yield next(int(match[1]) for line in process.stdout if (match := re.search(r"http://[^:/]+:(\d+)", line)))
        finally:
            process.terminate()


if __name__ == "__main__":
    typer.run(main)
