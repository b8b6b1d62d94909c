import itertools
import shutil

import pytest
import torch

from dragoman import checkpoints
from dragoman.checkpoints import OPTIMIZER_FILE, PROGRESS_FILE, WEIGHTS_FILE, TrainingProgress
from dragoman.errors import UserError
from dragoman.model_files import write_tensors
from dragoman.run import MANIFEST_FILE

FILES = (WEIGHTS_FILE, OPTIMIZER_FILE, PROGRESS_FILE, MANIFEST_FILE)


def parts(seed=1):
    """A model with 2 000 weights, so that its files are longer than a page, and its optimiser after one update."""
    torch.manual_seed(seed)
    model = torch.nn.Linear(40, 50)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    model(torch.rand(1, 40)).sum().backward()
    optimizer.step()
    return model, optimizer


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """Two checkpoints, of steps 3 and 6."""
    folder = tmp_path_factory.mktemp("original") / "checkpoints"
    for step in (3, 6):
        checkpoints.save_checkpoint(
            folder, TrainingProgress(step=step, loss=1 / step, validated_at=step), *parts(seed=step)
        )
    return folder


@pytest.fixture
def saved(original, tmp_path):
    """A copy of the two checkpoints, to be damaged."""
    return shutil.copytree(original, tmp_path / "checkpoints")


def cut_to(share):
    return lambda path, _: path.write_bytes(path.read_bytes()[: int(path.stat().st_size * share)])


def cut_one_byte_off(path, _):
    path.write_bytes(path.read_bytes()[:-1])


def keep_one_byte(path, _):
    path.write_bytes(path.read_bytes()[:1])


def flip_a_bit(path, _):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def zero_a_page(path, _):
    content = bytearray(path.read_bytes())
    start = min(4096, len(content) // 2)
    content[start : start + 4096] = bytes(len(content[start : start + 4096]))
    path.write_bytes(content)


def delete(path, _):
    path.unlink()


def take_from_another_step(path, other):
    path.write_bytes(other.read_bytes())


DAMAGES = {
    "emptied": cut_to(0), "one byte left": keep_one_byte, "halved": cut_to(0.5), "a byte short": cut_one_byte_off,
    "a bit flipped": flip_a_bit, "a page of zeros": zero_a_page, "deleted": delete,
    "of another step": take_from_another_step,
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_a_checkpoint_with_a_damaged_file_is_passed_over_and_the_file_is_named(saved, name, damage):
    damage(saved / "000000006" / name, saved / "000000003" / name)
    place, damaged = checkpoints.newest_checkpoint(saved)
    assert place == saved / "000000003"
    assert len(damaged) == 1
    assert damaged[0].startswith(f"{saved / '000000006'}: ")
    assert ".safetensors" in damaged[0] or ".json" in damaged[0]
    assert name in damaged[0] or name == MANIFEST_FILE  # a wrong sum in the manifest looks like a wrong file


def test_no_single_bit_of_the_manifest_can_turn_unnoticed(saved):
    manifest = saved / "000000006" / MANIFEST_FILE
    content = manifest.read_bytes()
    for place, bit in zip(range(len(content)), itertools.cycle(range(8)), strict=False):
        manifest.write_bytes(content[:place] + bytes([content[place] ^ 1 << bit]) + content[place + 1 :])
        assert checkpoints.find_damage(saved / "000000006") is not None, f"byte {place}, bit {bit}"


def test_if_every_checkpoint_is_damaged_each_is_named(saved):
    for place in checkpoints.checkpoint_dirs(saved):
        (place / PROGRESS_FILE).unlink()
    assert checkpoints.newest_checkpoint(saved) == (
        None,
        [f"{saved}/{step}: {PROGRESS_FILE} is missing" for step in ("000000006", "000000003")],
    )


def test_a_checkpoint_of_a_newer_format_is_said_to_be_one(saved):
    manifest = saved / "000000006" / MANIFEST_FILE
    manifest.write_text(manifest.read_text().replace("dragoman-1", "dragoman-2"))
    assert "has format 'dragoman-2', this version reads 'dragoman-1'" in str(checkpoints.newest_checkpoint(saved)[1])


def test_what_is_restored_is_what_was_saved(saved):
    model, optimizer = parts(seed=6)
    expected, moments = model.weight.detach().clone(), optimizer.state[model.weight]["exp_avg"].clone()
    fresh = torch.nn.Linear(40, 50)
    fresh_optimizer = torch.optim.Adam(fresh.parameters())
    progress = checkpoints.load_checkpoint(saved / "000000006", fresh, fresh_optimizer)
    assert progress == TrainingProgress(step=6, loss=1 / 6, validated_at=6)
    assert torch.equal(fresh.weight, expected)
    assert torch.equal(fresh_optimizer.state[fresh.weight]["exp_avg"], moments)
    assert fresh_optimizer.state[fresh.weight]["step"] == 1


OPTIMIZERS = {
    "SGD": lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    "SGD with momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
    "AMSGrad": lambda parameters: torch.optim.AdamW(parameters, lr=0.1, amsgrad=True),
    "Adafactor": lambda parameters: torch.optim.Adafactor(parameters, lr=0.1),
}


@pytest.mark.parametrize("build", OPTIMIZERS.values(), ids=OPTIMIZERS.keys())
def test_any_optimiser_continues_as_if_it_had_never_been_saved(tmp_path, build):
    def update(model, optimizer, seed):
        torch.manual_seed(seed)
        model(torch.rand(3, 4)).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    torch.manual_seed(1)
    model, fresh = torch.nn.Linear(4, 5), torch.nn.Linear(4, 5)
    optimizer, fresh_optimizer = build(model.parameters()), build(fresh.parameters())
    update(model, optimizer, seed=2)
    path = checkpoints.save_checkpoint(tmp_path / "checkpoints", TrainingProgress(step=1), model, optimizer)
    checkpoints.load_checkpoint(path, fresh, fresh_optimizer)
    update(model, optimizer, seed=3)
    update(fresh, fresh_optimizer, seed=3)
    assert torch.equal(fresh.weight, model.weight)
    assert torch.equal(fresh.bias, model.bias)


def test_further_parts_are_saved_read_back_and_checked(tmp_path):
    average = {"weight": torch.rand(3)}
    path = checkpoints.save_checkpoint(
        tmp_path / "checkpoints", TrainingProgress(step=1), *parts(), {"average": average}
    )
    assert torch.equal(checkpoints.read_part(path, "average")["weight"], average["weight"])
    (path / "average.safetensors").unlink()
    assert checkpoints.find_damage(path) == "average.safetensors is missing"


def test_an_optimiser_state_that_lacks_an_entry_is_refused(saved):
    model = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Linear(5, 4))
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.rand(3, 4)).sum().backward()
    optimizer.step()
    path = checkpoints.save_checkpoint(saved, TrainingProgress(step=9), model, optimizer)
    tensors = checkpoints.read_part(path, "optimizer")
    del tensors["1.bias.exp_avg"]
    write_tensors(path / OPTIMIZER_FILE, tensors, {})
    with pytest.raises(UserError, match=r"1\.bias\.exp_avg is missing"):
        checkpoints.load_checkpoint(path, model, optimizer)


def test_a_parameter_that_was_never_updated_has_no_state_and_is_restored_without(tmp_path):
    model = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Linear(5, 4))
    optimizer = torch.optim.Adam(model.parameters())
    model[0](torch.rand(3, 4)).sum().backward()
    optimizer.step()
    path = checkpoints.save_checkpoint(tmp_path / "checkpoints", TrainingProgress(step=9), model, optimizer)
    fresh_optimizer = torch.optim.Adam(model.parameters())
    checkpoints.load_checkpoint(path, model, fresh_optimizer)
    assert fresh_optimizer.state[model[0].weight]["step"] == 1
    assert not fresh_optimizer.state.get(model[1].weight)


def test_a_checkpoint_that_is_there_already_is_not_written_again(saved):
    before = (saved / "000000006").stat().st_ino
    checkpoints.save_checkpoint(saved, TrainingProgress(step=6, loss=1 / 6, validated_at=6), *parts())
    assert (saved / "000000006").stat().st_ino == before


def test_a_damaged_checkpoint_gives_way_to_a_whole_one(saved):
    (saved / "000000006" / WEIGHTS_FILE).write_bytes(b"")
    checkpoints.save_checkpoint(saved, TrainingProgress(step=6), *parts())
    assert checkpoints.find_damage(saved / "000000006") is None
    assert sorted(path.name for path in saved.iterdir()) == ["000000003", "000000006"]


def test_a_checkpoint_that_was_waiting_to_be_replaced_when_all_ended_is_put_back(saved):
    (saved / "000000006").rename(checkpoints.backup_path(saved / "000000006"))
    (saved / ".tmp-half").mkdir()
    checkpoints.clean_up_interrupted_saves(saved)
    assert sorted(path.name for path in saved.iterdir()) == ["000000003", "000000006"]
    assert checkpoints.find_damage(saved / "000000006") is None


def test_old_checkpoints_go_but_the_best_the_newest_and_the_damaged_stay(saved):
    for step, loss in ((9, 0.01), (12, 0.5), (15, 0.6)):
        checkpoints.save_checkpoint(saved, TrainingProgress(step=step, loss=loss, validated_at=step), *parts())
    (saved / "000000006" / WEIGHTS_FILE).write_bytes(b"")
    checkpoints.prune_checkpoints(saved, keep=1, best=1)
    assert [place.name for place in checkpoints.checkpoint_dirs(saved)] == ["000000015", "000000009", "000000006"]


def test_new_files_can_be_read_by_whoever_may_read_files_here(saved):
    modes = {path.stat().st_mode & 0o777 for path in (saved / "000000006").iterdir()}
    assert modes == {(saved / "000000006").stat().st_mode & 0o666}


def test_an_error_of_writing_tensors_has_the_code_of_the_system(tmp_path):
    with pytest.raises(FileNotFoundError, match="could not be written"):
        write_tensors(tmp_path / "missing" / WEIGHTS_FILE, {"one": torch.ones(1)}, {})
