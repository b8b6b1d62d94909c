"""How `dragoman evaluate` scores each task; presets.py names the evaluator of a task."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dragoman
from dragoman.cli.line_io import add_label, load_for_task
from dragoman.cli.progress import print_report, print_stderr, progress_bar, status_spinner
from dragoman.errors import UserError, format_count

if TYPE_CHECKING:
    from dragoman.evaluation.brackets import BracketScores
    from dragoman.evaluation.error_rates import ScoringScheme
    from dragoman.tasks.sequence_model import SequenceModel
    from dragoman.tasks.task import Example

_PAIR_OPTIONS = ("pairs", "columns", "label")  # of translation only


@dataclass(frozen=True)
class EvaluateOptions:
    """The options of one `dragoman evaluate` command."""

    task: str
    run: Path | None
    source: str | None
    reference: str | None
    pairs: str | None
    columns: tuple[str, str] | None
    label: str | None
    hypotheses: str | None
    against: Path | None
    worst: int
    output: Path | None
    parameters: str | None
    sentences: bool
    ignore_stress: bool
    as_json: bool
    device: str
    decoding: dict[str, Any]

    def reject(self, *names: str) -> None:
        """Raise a UserError if one of these options was given: the task does not support them."""
        _reject_given(self.task, {name: getattr(self, name) or None for name in names})

    def reject_search_options(self) -> None:
        """Raise a UserError if an option of the beam search was given."""
        _reject_given(self.task, self.decoding)

    def write_outputs(self, lines: Iterable[str]) -> None:
        """Write the outputs to --output, one per line, if it was given."""
        if self.output:
            self.output.write_text("".join(line.replace("\n", " ") + "\n" for line in lines), encoding="utf-8")

    def model_outputs(self, model: "SequenceModel", examples: "list[Example[Any]]") -> list[str]:
        """Return a model's outputs for the examples."""
        with progress_bar(f"{model.task.gerund} with {model.run}", len(examples)) as progress:
            outputs: list[str] = model.predict(
                [example.source for example in examples], progress=progress, **self.decoding
            )
            return outputs


def _reject_given(task: str, options: dict[str, Any]) -> None:
    """Raise a UserError for the first option that has a value."""
    for name, value in options.items():
        if value is not None:
            raise UserError(f"--{name.replace('_', '-')} is not supported for --task {task}; remove it.")


def evaluate_examples(options: EvaluateOptions) -> None:
    """Print the scores of a run, one per line."""
    from dragoman.tasks.task import TransductionTask

    options.reject(*_PAIR_OPTIONS, "hypotheses", "against", "parameters", "worst", "sentences", "ignore_stress")
    if options.run is None:
        raise UserError(f"--task {options.task} needs a RUN, whose outputs are scored.")
    model = dragoman.load(options.run, device=options.device)
    task = model.task
    assert isinstance(task, TransductionTask), f"{task.name} has no scores of outputs"
    examples = task.read_examples(options.source, options.reference, print_stderr)
    outputs = options.model_outputs(model, examples)
    options.write_outputs(outputs)
    scores = list(task.score(examples, outputs))
    if options.as_json:
        print(json.dumps({score.name: score.value for score in scores}, ensure_ascii=False, indent=2))
        return
    print_report("\n".join(map(str, scores)))


def evaluate_translations(options: EvaluateOptions) -> None:
    """Print BLEU, chrF and TER of a run's translations or of --hypotheses."""
    from dragoman.data.lines import read_lines
    from dragoman.evaluation import scores, tables

    _check_translate_options(options)
    sources, references = _read_translations(options)
    if options.run:
        outputs = _translate_sources(options.run, sources, len(references), options)
    else:
        outputs = list(read_lines(str(options.hypotheses), print_stderr))
    options.write_outputs(outputs)
    other_outputs = _translate_sources(options.against, sources, len(references), options) if options.against else None
    with status_spinner("Scoring"):
        corpus_scores = scores.score_translations(outputs, references)
        rows = scores.score_by_length(sources, outputs, references) if sources else []
        worst = (
            scores.worst_sentences(sources or [""] * len(outputs), outputs, references, options.worst)
            if options.worst
            else []
        )
        comparison = scores.compare_systems(outputs, other_outputs, references) if other_outputs is not None else None
    if options.as_json:
        result: dict[str, Any] = scores.to_json(corpus_scores)
        result["by_length"] = [scores.to_json(row) for row in rows]
        result["worst"] = [scores.to_json(sentence) for sentence in worst]
        result["against"] = scores.to_json(comparison) if comparison else None
        print(json.dumps(result, ensure_ascii=False, indent=2))
        return
    parts = [tables.scores_table(corpus_scores), tables.length_table(rows) if rows else ""]
    print_report(
        "\n\n".join(filter(None, [*parts, tables.worst_sentences_table(worst) if worst else "", str(comparison or "")]))
    )


def _read_translations(options: EvaluateOptions) -> tuple[list[str] | None, list[str]]:
    """Read the sources, if they are given, and the references."""
    from dragoman.data.corpus import ParallelCorpus
    from dragoman.data.lines import read_lines

    if options.pairs is None:
        references = list(read_lines(str(options.reference), print_stderr))
        return list(read_lines(options.source, print_stderr)) if options.source else None, references
    corpus = ParallelCorpus.from_files(pairs=options.pairs, languages=options.columns)
    for notice in corpus.notices():
        print_stderr(notice)
    pairs = list(corpus.pairs())
    return [source for source, _ in pairs], [target for _, target in pairs]


def _check_translate_options(options: EvaluateOptions) -> None:
    """Raise a UserError for missing, unsupported or conflicting options."""
    options.reject("parameters", "sentences", "ignore_stress")
    if options.pairs and (options.source or options.reference):
        raise UserError("--pairs has both source and reference; remove --source and --reference.")
    if options.columns and not options.pairs:
        raise UserError("--columns is for a file of --pairs; remove it.")
    if options.reference is None and options.pairs is None:
        raise UserError("--reference is missing: give a file of reference translations, one per line, or --pairs.")
    if (options.run is None) == (options.hypotheses is None):
        raise UserError("Give either a RUN, which translates --source, or --hypotheses, a file of translations.")
    if options.source is None and options.pairs is None and (options.run or options.against):
        raise UserError("--source is missing: give the text that the run translates.")


def _translate_sources(run: Path, sources: list[str] | None, expected: int, options: EvaluateOptions) -> list[str]:
    """Translate the sources with the model in a run, after checking the number of lines."""
    assert sources is not None, "_check_translate_options requires it"
    if len(sources) != expected:
        raise UserError(
            f"--source has {format_count(len(sources), 'line')} but --reference has {expected:,}; the files must "
            "be aligned line by line."
        )
    model = load_for_task(run, "translate", options.device)
    with progress_bar(f"Translating with {run}", len(sources)) as progress:
        inputs = list(add_label(model, sources, options.label))
        translations: list[str] = model.predict(inputs, progress=progress, **options.decoding)
        return translations


def evaluate_trees(options: EvaluateOptions) -> None:
    """Print bracket precision, recall and F1 of a run's trees or of --hypotheses."""
    from dragoman.data.lines import read_lines
    from dragoman.evaluation import brackets, tables
    from dragoman.evaluation.brackets import COLLINS, read_rules

    _check_parse_options(options)
    rules = (
        read_rules(read_lines(options.parameters, print_stderr), options.parameters) if options.parameters else COLLINS
    )
    lines, hypotheses, references = _parse_references(options) if options.run else _read_tree_pairs(options)
    with status_spinner("Scoring"):
        scores = brackets.score_brackets(hypotheses, references, rules)
    _report_unscored(options, lines, scores)
    if options.as_json:
        print(json.dumps(brackets.to_json(scores, lines, each=options.sentences), ensure_ascii=False, indent=2))
        return
    listing = tables.sentence_counts_table(lines, scores.sentences) if options.sentences else ""
    print_report("\n\n".join(filter(None, [listing, tables.brackets_table(scores)])))


def _parse_references(options: EvaluateOptions) -> tuple[list[int], list[str], list[str]]:
    """Parse the words of the reference; return sentence numbers, the run's trees and the reference trees."""
    assert options.run, "_check_parse_options requires it"
    model = dragoman.load(options.run, device=options.device)
    examples = model.task.read_examples(options.source, options.reference, print_stderr)
    outputs = options.model_outputs(model, examples)
    options.write_outputs(outputs)
    return list(range(1, len(outputs) + 1)), outputs, [example.references[0] for example in examples]


def _read_tree_pairs(options: EvaluateOptions) -> tuple[list[int], list[str], list[str]]:
    """Read two files of trees; return the line numbers of the hypotheses, and the trees of both files."""
    from dragoman.data.lines import read_lines
    from dragoman.evaluation.trees import treebank_sentences, well_formed_treebank_sentences

    hypotheses, reference = str(options.hypotheses), str(options.reference)
    gold = well_formed_treebank_sentences(list(read_lines(reference, print_stderr)), reference)
    lines = list(read_lines(hypotheses, print_stderr))
    while len(lines) > len(gold) and not lines[-1].strip():  # trailing empty lines belong to no sentence
        lines.pop()
    trees = treebank_sentences(lines, expected=len(gold))
    if len(trees) != len(gold):
        trees = well_formed_treebank_sentences(lines, hypotheses)  # raises if malformed brackets are the cause
        raise UserError(
            f"{hypotheses} has {format_count(len(trees), 'sentence')} but {reference} has {len(gold):,}; both must "
            "have the same sentences in the same order. Use an empty line for a missing tree."
        )
    return [line for line, _ in trees], [text for _, text in trees], [text for _, text in gold]


def _report_unscored(options: EvaluateOptions, lines: list[int], scores: "BracketScores") -> None:
    """Print which sentences were not scored and why; raise a UserError if the files do not match."""
    name = str(options.run or options.hypotheses)
    unscored = [
        (counts.status, f"line {line:,}", counts.why)
        for line, counts in zip(lines, scores.sentences, strict=True)
        if counts.why
    ]
    errors = [f"{position}: {reason}" for status, position, reason in unscored if status == "error"]
    # EVALB stops after MAX_ERROR + 1 errors. A run parsed the words of the reference itself; it can only mistake words
    # for punctuation, which is not scored, or punctuation for words.
    if options.hypotheses and len(errors) > scores.rules.most_errors + 1:
        raise UserError(
            f"{name}: {len(errors):,} of {len(lines):,} sentences do not match their reference; {errors[0]} "
            "Check that both files are in the same order, or raise MAX_ERROR in a --parameters file."
        )
    if not scores.overall.scored:
        hint = " The parser confuses words with punctuation, which is not scored; train it longer."
        raise UserError(
            f"{name}: no sentence can be scored; {unscored[0][1]}: {unscored[0][2]}{hint if options.run else ''}"
        )
    for status, position, reason in unscored:
        print_stderr(f"{name}: {position}: not scored ({status}): {reason}")


def _check_parse_options(options: EvaluateOptions) -> None:
    """Raise a UserError for missing, unsupported or conflicting options."""
    options.reject(*_PAIR_OPTIONS, "against", "worst", "ignore_stress")
    if not options.run:
        options.reject("source", "output")
        options.reject_search_options()
    if options.reference is None or (options.run is None) == (options.hypotheses is None):
        raise UserError(
            "Parsing needs --reference (gold trees) and either a RUN (which parses the words of these trees) or "
            "--task parse with --hypotheses (the trees of another parser)."
        )


def evaluate_pronunciations(options: EvaluateOptions) -> None:
    """Print the error rates of pronunciations, with or without stress."""
    from dragoman.evaluation.error_rates import PRONUNCIATION, UNSTRESSED

    _evaluate_words(options, UNSTRESSED if options.ignore_stress else PRONUNCIATION)


def evaluate_inflections(options: EvaluateOptions) -> None:
    """Print the accuracy of inflected forms."""
    from dragoman.evaluation.error_rates import INFLECTION

    options.reject("ignore_stress")
    _evaluate_words(options, INFLECTION)


def _evaluate_words(options: EvaluateOptions, manner: "ScoringScheme") -> None:
    """Print the error rates of a word task."""
    from dragoman.evaluation import error_rates, tables
    from dragoman.tasks.registry import get_task
    from dragoman.tasks.word_tasks import WordTask

    _check_word_options(options)
    model = dragoman.load(options.run, device=options.device) if options.run else None
    task = model.task if model else get_task(options.task)
    assert isinstance(task, WordTask), f"{task.name} is not a word task"
    task = replace(task, scheme=manner)
    examples = task.read_examples(None, options.reference, print_stderr)
    outputs = (
        options.model_outputs(model, examples)
        if model
        else task.read_outputs(str(options.hypotheses), examples, print_stderr)
    )
    options.write_outputs(task.format_entry(example, output) for example, output in zip(examples, outputs, strict=True))
    with status_spinner("Scoring"):
        rates, by_label = task.score(examples, outputs), task.score_by_label(examples, outputs)
    if options.as_json:
        labels = {name: error_rates.to_json(label_rates) for name, label_rates in by_label.items()}
        result = {**error_rates.to_json(rates, worst=options.worst), "by_label": labels}
        print(json.dumps(result, ensure_ascii=False, indent=2))
        return
    parts = [tables.rates_table(rates), tables.labels_table(by_label) if len(by_label) > 1 else ""]
    if options.worst:
        parts += [tables.confusions_table(rates.confusions()), tables.worst_items_table(rates, options.worst)]
    print_report("\n\n".join(filter(None, parts)))


def evaluate_transcripts(options: EvaluateOptions) -> None:
    """Print word and character error rates of a run's transcripts or of --hypotheses."""
    from dragoman.data.lines import read_lines
    from dragoman.evaluation import error_rates, tables
    from dragoman.tasks.registry import get_task
    from dragoman.tasks.transcribe import TranscriptionTask

    options.reject("source", *_PAIR_OPTIONS, "against", "parameters", "sentences", "ignore_stress")
    if options.reference is None:
        raise UserError("--reference is missing: give a manifest with a recording and its text on each line.")
    if (options.run is None) == (options.hypotheses is None):
        raise UserError("Give either a RUN, which transcribes, or --task transcribe and --hypotheses, an output file.")
    model = dragoman.load(options.run, device=options.device) if options.run else None
    task = model.task if model else get_task(options.task)
    assert isinstance(task, TranscriptionTask), f"{task.name} is not transcription"
    examples = task.read_examples(None, options.reference, print_stderr)
    outputs = (
        options.model_outputs(model, examples) if model else list(read_lines(str(options.hypotheses), print_stderr))
    )
    if len(outputs) != len(examples):
        raise UserError(
            f"{options.hypotheses} has {format_count(len(outputs), 'line')} but {options.reference} has "
            f"{format_count(len(examples), 'recording')}; line n must be the transcript of recording n."
        )
    options.write_outputs(outputs)
    with status_spinner("Scoring"):
        rates = task.score(examples, outputs)
    if options.as_json:
        print(json.dumps(error_rates.to_json(rates, worst=options.worst), ensure_ascii=False, indent=2))
        return
    parts = [tables.rates_table(rates)]
    if options.worst:
        parts += [tables.confusions_table(rates.confusions()), tables.worst_items_table(rates, options.worst)]
    print_report("\n\n".join(parts))


def _check_word_options(options: EvaluateOptions) -> None:
    """Raise a UserError for missing, unsupported or conflicting options."""
    options.reject("source", *_PAIR_OPTIONS, "against", "parameters", "sentences")
    if options.reference is None:
        raise UserError("--reference is missing: give a lexicon with the correct outputs.")
    if (options.run is None) == (options.hypotheses is None):
        raise UserError(
            f"Give either a RUN, whose outputs are scored, or --task {options.task} and --hypotheses, an output file."
        )


def evaluate_language_model(options: EvaluateOptions) -> None:
    """Print the perplexity and bits per byte of a text under a language model."""
    from dragoman.evaluation.perplexity import perplexity_table, to_json
    from dragoman.tasks.generate import LanguageModel

    options.reject(
        "pairs",
        "columns",
        "label",
        "hypotheses",
        "against",
        "parameters",
        "worst",
        "output",
        "sentences",
        "ignore_stress",
    )
    options.reject_search_options()
    if options.run is None:
        raise UserError("--task generate needs a RUN and --reference, the text to score.")
    model = dragoman.load(options.run, device=options.device)
    assert isinstance(model, LanguageModel), f"{type(model)} is not a language model"
    (example,) = model.task.read_examples(options.source, options.reference, print_stderr)
    with progress_bar(f"{model.task.gerund} with {options.run}", None) as progress:
        perplexity = model.perplexity(example.references[0], progress, print_stderr)
    print_report(json.dumps(to_json(perplexity), indent=2) if options.as_json else perplexity_table(perplexity))
