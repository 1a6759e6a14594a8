"""Test that the picture of the architecture shows the imports in the source and the layers of the import contract."""

import importlib.util

import matplotlib.image
import pytest
from importlinter import api
from PIL import Image

from support.paths import DOCS, ROOT


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("draw_architecture", DOCS / "draw_architecture.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_layers_are_those_of_the_import_contract(script):
    """Test that the picture has the layers of import-linter, which contain every package and module of hkrr."""
    contract = api.read_configuration(str(ROOT / "pyproject.toml"))["contracts_options"][0]
    expected = [{name.strip() for name in layer.replace("|", ":").split(":")} for layer in contract["layers"]]
    layers = script.read_layers()
    assert [set(layer) for layer in layers] == expected
    entries = {path.stem for path in (ROOT / "src" / "hkrr").iterdir() if path.suffix == ".py" or path.is_dir()}
    assert {package for layer in layers for package in layer} == entries - {"__init__", "__pycache__"}


def test_arrows_point_down_or_sideways(script):
    """Test that no drawn import points to a higher layer.

    Also test that an import is drawn only if no chain of other imports implies it, with one example of each case.
    """
    row = {package: number for number, layer in enumerate(script.read_layers()) for package in layer}
    imports = script.read_imports()
    drawn = script.without_implied(imports)
    assert ("solvers", "objective") in drawn
    assert ("solvers", "_base") in imports - drawn
    assert all(row[importer] <= row[imported] for importer, imported in drawn)


def test_without_implied_keeps_only_the_needed_imports(script):
    """Test that an import is left out if, and only if, a chain of other imports implies it."""
    assert script.without_implied({("a", "b"), ("b", "c"), ("a", "c"), ("a", "d")}) == {
        ("a", "b"),
        ("b", "c"),
        ("a", "d"),
    }


def test_the_picture_in_the_documentation_is_up_to_date(script):
    """Test that the picture has the layers, captions and arrows of the source. If not, run the script again."""
    expected = script.describe_picture(script.read_layers(), script.without_implied(script.read_imports()))
    with Image.open(script.PICTURE) as picture:
        assert picture.text["Description"].splitlines() == expected.splitlines()


def test_script_draws_the_picture(script, tmp_path):
    script.draw(tmp_path / "architecture.png")
    picture = matplotlib.image.imread(tmp_path / "architecture.png")
    assert picture.shape[0] > 1000
    assert picture.std() > 0.05
