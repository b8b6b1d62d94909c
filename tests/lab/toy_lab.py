"""A laboratory with a toy language, in which experiments run within seconds."""

from dragoman.lab.corpus import SplitCorpus
from dragoman.lab.laboratory import Laboratory
from dragoman.training.events import StopRequest


def toy_corpus(files, folder):
    """Cut the toy language into three parts."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [file.read_text().splitlines() for file in files]
    parts = {}
    for split, part in (("train", slice(0, 60)), ("valid", slice(60, 70)), ("test", slice(70, 80))):
        parts[split] = folder / f"{split}.source", folder / f"{split}.target"
        for file, side in zip(parts[split], lines, strict=True):
            file.write_text("".join(f"{line}\n" for line in side[part]))
    return SplitCorpus("toy", parts["train"], parts["valid"], parts["test"])


def toy_lab(folder, corpus, *, seconds=10.0, on_event=lambda _event: None, stop=None, name="toy", **more):
    """Return a laboratory in a folder."""
    place = folder / name
    place.mkdir(parents=True, exist_ok=True)
    return Laboratory(name, place, folder, seconds, 1, corpus, on_event, stop or StopRequest(), 1.0, **more)


def train(lab, name, settings, **more):
    """Train one model with changed settings."""
    return lab.train(lab.build_recipe(name, settings, **more), name)
