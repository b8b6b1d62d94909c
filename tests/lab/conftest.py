"""What the tests of the laboratory share."""

import pytest
from toy_lab import toy_material


@pytest.fixture
def material(toy_files, tmp_path):
    """The toy language in three parts."""
    return toy_material(toy_files, tmp_path / "corpus")
