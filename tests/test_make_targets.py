"""Test that every `make` command of the workflows, the hooks, the CI script and CONTRIBUTING is in the Makefile."""

import re

import pytest
import yaml

from support.paths import ROOT


def _makefile_targets():
    return set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))


def _commands(path):
    """Return the text of the shell commands in a file."""
    text = path.read_text()
    if path.parent.name == "workflows":
        jobs = yaml.safe_load(text)["jobs"].values()
        return "\n".join(step["run"] for job in jobs for step in job["steps"] if "run" in step)
    if path.name == ".pre-commit-config.yaml":
        return "\n".join(hook["entry"] for repo in yaml.safe_load(text)["repos"] for hook in repo["hooks"])
    if path.suffix == ".md":
        return "\n".join([*re.findall(r"`([^`\n]+)`", text), *re.findall(r"^ {4}(\S.*)", text, flags=re.MULTILINE)])
    return text


def _used_targets(path):
    return set(re.findall(r"^make +([\w-]+)", _commands(path), flags=re.MULTILINE))


WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.y*ml"))
OTHERS = [ROOT / name for name in (".pre-commit-config.yaml", ".ci/run", "CONTRIBUTING.md")]


@pytest.mark.parametrize("path", [*WORKFLOWS, *OTHERS], ids=lambda path: path.name)
def test_make_targets_exist(path):
    used = _used_targets(path)
    assert used
    assert used <= _makefile_targets()


def test_contributing_describes_every_target_of_the_workflows():
    assert WORKFLOWS
    used = set.union(*map(_used_targets, WORKFLOWS))
    assert used <= _used_targets(ROOT / "CONTRIBUTING.md")


def test_every_target_is_phony():
    """Test that all targets of the Makefile are phony.

    Otherwise, a file or folder with the name of a target, such as `docs`, would prevent make from running its commands.
    """
    (phony,) = re.findall(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    assert set(phony.split()) == _makefile_targets()
