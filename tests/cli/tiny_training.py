"""The smallest training that the commands can start."""


def tiny(kind):
    """Return the options that make a training last a second, with a vocabulary of this kind."""
    settings = (
        f"tokenizer.kind={kind}", "model.layers=1", "model.width=8", "model.heads=2", "model.inner_width=8",
        "training.steps=1", "training.batch_tokens=256", "training.threads=1", "training.validation_sample=1",
    )  # fmt: skip
    return [word for setting in settings for word in ("--set", setting)]
