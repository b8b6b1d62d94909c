import math

import pytest
import torch

from dragoman.errors import TrainingDiverged
from dragoman.model_config import TransformerConfig
from dragoman.models.transducer import Source
from dragoman.models.transformer import Transformer
from dragoman.parallel import SINGLE_THREAD
from dragoman.recipe import TrainingConfig
from dragoman.tokens import END, PAD, START
from dragoman.training.distributed import SINGLE_PROCESS
from dragoman.training.loop import LossSums, TensorBatch, accumulate_gradients, build_adam, train
from dragoman.training.loss import cross_entropy_objective
from dragoman.training.schedule import schedule

OBJECTIVE = cross_entropy_objective(0.1)
SENTENCES = [[5, 6, 7, 8, 9, 5], [9, 8], [6], [7, 7, 7], [5, 9, 6, 8]]


def batch(numbers, length):
    """Sentences and the same as their translations, filled up to a length."""
    written = [[*SENTENCES[number], END] for number in numbers]
    target = torch.tensor([row + [PAD] * (length - len(row)) for row in written])
    prefix = torch.tensor([[START, *row[:-1]] + [PAD] * (length - len(row)) for row in written])
    return TensorBatch(Source.from_ids(target), prefix, target, sum(map(len, written)), numbers)


def tiny(dropout=0.0):
    torch.manual_seed(1)
    return Transformer(TransformerConfig(layers=1, width=8, inner_width=8, heads=2, dropout=dropout), 10, 10).double()


def gradient(batches):
    model = tiny()
    found = accumulate_gradients(
        model, OBJECTIVE, batches, TrainingConfig(precision="float32"), 1, SINGLE_PROCESS, SINGLE_THREAD
    )
    return found, torch.cat([parameter.grad.flatten() for parameter in model.parameters()])


def test_accumulated_batches_of_unequal_size_give_the_gradient_of_one_big_batch():
    whole, expected = gradient([batch([0, 1, 2, 3, 4], 7)])
    parts, found = gradient([batch([0], 7), batch([1, 2], 3), batch([3, 4], 5)])
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    assert parts[:3] == pytest.approx(whole[:3], rel=1e-12)
    assert parts[2] == sum(len(sentence) + 1 for sentence in SENTENCES)


class Poison:
    """Batches for a model whose gradient is spoilt at some steps."""

    def __init__(self, model, steps, with_value=math.nan):
        self.now, self.steps = False, steps
        next(model.parameters()).register_hook(lambda gradient: gradient * with_value if self.now else gradient)

    def __call__(self, number):
        self.now = number in self.steps
        return [batch([0, 1], 7), batch([number % 5], 7)]


def weights(model):
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("clip", [0.0, 1.0])
def test_a_gradient_that_is_not_finite_never_reaches_the_weights_and_its_pairs_are_named(value, clip):
    model, config = tiny(dropout=0.1), TrainingConfig(steps=6, clip=clip, warmup=1)
    optimizer = build_adam(model, TrainingConfig())
    steps = train(model, optimizer, OBJECTIVE, Poison(model, {3, 4}, value), config, schedule(config, 8))
    next(steps), next(steps)
    before, moments = weights(model), optimizer.state_dict()["state"][0]["exp_avg"].clone()
    third, fourth = next(steps), next(steps)
    torch.testing.assert_close(weights(model), before, rtol=0, atol=0)
    torch.testing.assert_close(optimizer.state_dict()["state"][0]["exp_avg"], moments, rtol=0, atol=0)
    assert (third.skipped, third.line_numbers) == (1, [0, 1, 3])
    assert (fourth.skipped, fourth.line_numbers) == (2, [0, 1, 4])
    fifth = next(steps)
    assert (fifth.skipped, fifth.line_numbers) == (0, ())
    assert all(torch.isfinite(tensor).all() for tensor in weights(model).values())
    assert not any(torch.equal(now, before[name]) for name, now in weights(model).items())


def test_ten_spoilt_steps_in_a_row_end_the_training_with_advice():
    model = tiny()
    config = TrainingConfig(steps=100, warmup=1, rate=0.5)
    taken = []
    with pytest.raises(TrainingDiverged, match=r"10 steps in a row \(the last was step 12\)") as stopped:
        taken += train(
            model, build_adam(model, config), OBJECTIVE, Poison(model, range(3, 100)), config, schedule(config, 8)
        )
    assert math.isfinite(taken[-1].loss)  # only the gradient is spoilt
    for words in (
        "the gradient norm was nan",
        f"the loss was {taken[-1].loss:.4g} and",
        "Saved checkpoints are intact",
        "lower training.rate (now 0.5)",
        "training.warmup (now 1)",
        "clip = 1.0",
    ):
        assert words in str(stopped.value)
    assert stopped.value.exit_code == 3


def test_nine_spoilt_steps_in_a_row_do_not():
    model = tiny()
    config = TrainingConfig(steps=24, warmup=1)
    spoilt = Poison(model, {*range(2, 11), *range(13, 22)})
    steps = list(train(model, build_adam(model, config), OBJECTIVE, spoilt, config, schedule(config, 8)))
    assert [step.skipped for step in steps] == [0, *range(1, 10), 0, 0, *range(1, 10), 0, 0, 0]


def test_a_count_of_spoilt_steps_goes_on_where_a_resumed_training_had_it():
    model = tiny()
    config = TrainingConfig(steps=24, warmup=1)
    with pytest.raises(TrainingDiverged, match="the last was step 9"):
        spoilt = Poison(model, range(99))
        list(
            train(
                model,
                build_adam(model, config),
                OBJECTIVE,
                spoilt,
                config,
                schedule(config, 8),
                steps_done=6,
                skipped=7,
            )
        )


def test_the_loop_minimises_the_objective_that_it_is_given():
    """The mean square of the hidden states falls, while the log-likelihood is only reported."""
    model = tiny().float()
    config = TrainingConfig(steps=30, warmup=1, rate=0.05, schedule="constant", precision="float32")

    def objective(model, batch):
        hidden = model.hidden_states(batch.prefix, model.encode(batch.source))
        return LossSums(hidden.square().sum(), torch.tensor(7.0 * batch.tokens))

    steps = list(
        train(model, build_adam(model, config), objective, lambda _: [batch([0, 1], 7)], config, schedule(config, 8))
    )
    assert steps[-1].loss < steps[0].loss / 2
    assert {round(step.nll, 5) for step in steps} == {7.0}
