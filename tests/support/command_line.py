"""Run the commands of `hkrr` in this process."""

from typer.testing import CliRunner

from hkrr import cli


def run(*arguments, input=None):
    return CliRunner().invoke(cli.app, [str(each) for each in arguments], input=input)


def refused(*arguments, status=2):
    """Run a command that must fail with one line on standard error, and return the line."""
    result = run(*arguments)
    assert result.exit_code == status, result.output
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert len(line) < 500
    return line
