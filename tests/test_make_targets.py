"""Test the workflows, and test that the Makefile has all targets that workflows, hooks and CONTRIBUTING use."""

import re

import pytest
import yaml

from support.paths import ROOT


def _makefile_targets():
    return set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))


def _jobs(path):
    return yaml.safe_load(path.read_text())["jobs"]


def _steps(path, kind):
    """Return the values of the key `kind` ("run" or "uses") in the steps of a workflow."""
    return [step[kind] for job in _jobs(path).values() for step in job["steps"] if kind in step]


def _commands(path):
    """Return the text of the shell commands in a file."""
    text = path.read_text()
    if path.parent.name == "workflows":
        return "\n".join(_steps(path, "run"))
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


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows(path):
    """Test that jobs have a system and a time limit, that actions have a version, and that commands run a target."""
    for job in _jobs(path).values():
        assert job["runs-on"]
        assert 0 < job["timeout-minutes"] <= 120
        assert all(("run" in step) != ("uses" in step) for step in job["steps"])
    for action in _steps(path, "uses"):
        assert re.fullmatch(r"[\w-]+/[\w/-]+@(v\d+(\.\d+)*|[0-9a-f]{40})", action)
    for command in _commands(path).strip().splitlines():
        target = re.fullmatch(r"make ([a-z]+)( [A-Z]+=\S+)*", command)
        assert target is not None, command
        assert target[1] in _makefile_targets()


def test_the_tests_run_on_three_systems_with_three_versions_of_python():
    job = _jobs(ROOT / ".github" / "workflows" / "tests.yml")["test"]
    systems = ["ubuntu-latest", "macos-latest", "windows-latest"]
    assert job["strategy"]["matrix"] == {"os": systems, "python": ["3.11", "3.12", "3.13"]}
    assert job["runs-on"] == "${{ matrix.os }}"
    versions = [step["with"]["python-version"] for step in job["steps"] if "setup-python" in step.get("uses", "")]
    assert versions == ["${{ matrix.python }}"]


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
