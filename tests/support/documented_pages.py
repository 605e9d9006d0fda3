"""Runs a page of the documentation as a reader would: every block, pasted from the top.

What is changed: `s3://lake` and `/data/lake` are a directory, and the port of the service is a free
one. Commands of other programs are not run; each is listed in `OF_OTHERS`.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import time
import tomllib
import urllib.request
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import yaml

import lakehand
from lakehand.cli.main import cli, run
from lakehand.service.config import parse_config
from support.server_process import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
#: Programs that pages name and that this test does not run, because they change the machine, need
#: an account, or take long.
OF_OTHERS = frozenset(
    {
        *(".", "aws", "bash", "cp", "eval", "kubectl", "ls", "make", "podman", "python3", "sudo"),
        *("versitygw", "wait", ".venv/bin/pip", ".venv/bin/lakehand", ".venv/bin/python"),
        *("_LAKEHAND_COMPLETE=fish_source", "dbt", "airflow", "dagster"),
    }
)
#: Names of fences whose content is not run: output, syntax, examples of shells.
SHOWN = frozenset({"text", "sh", ""})
#: Commands that need another server, a cluster or a stream: only their options are checked.
_NOT_HERE = re.compile(
    r"\b(unity|hive|glue|lance):\w|--master|--remote|--engine spark|--metrics-push|locking_provider"
    r"|AWS_PROFILE|--stream|--clone|service drain"
)
_QUARANTINE = re.compile(r"20260101T120000-1a2b3c4d")
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_STARTED_SECONDS = 120


@dataclass
class Page:
    """One page, and the directory in which its reader works."""

    name: str
    place: Path
    #: Where a service answers, if the page needs one.
    service_url: str | None = None
    #: Names that the Python blocks have defined.
    names: dict[str, Any] = field(default_factory=dict)
    #: Whether the output that the page shows is compared.
    is_compared: bool = False
    background: subprocess.Popen[bytes] | None = None

    def run(self) -> None:
        text = (ROOT / self.name).read_text()
        for found in _FENCE.finditer(text):
            language, block = found.groups()
            line = text[: found.start()].count("\n") + 2
            try:
                self.run_block(language, self.in_this_place(block), before=text[: found.start()])
            except BaseException as error:
                error.add_note(f"in the block at {self.name}:{line}")
                raise

    def in_this_place(self, block: str) -> str:
        block = re.sub(r"s3a?://lake\b|/data/lake\b", str(self.place / "lake"), block)
        block = block.replace("/var/lib/node_exporter", str(self.place))
        if self.service_url:
            block = block.replace("http://127.0.0.1:8484", self.service_url)
        return block

    def run_block(self, language: str, block: str, *, before: str) -> None:
        if language == "python" or (language == "py" and "spark" in self.names):
            exec(compile(block, self.name, "exec"), self.names)
        elif language == "console":
            for command, output in commands(block):
                self.run_command(command, output)
        elif language == "sql":
            lakehand.run_sql(block, service=self.names.get("client"))
        elif language == "toml":
            self.take_configuration(block, is_saved="Save it as `lakehand.toml`" in before[-400:])
        elif language == "yaml":
            assert yaml.safe_load(block)
        elif language == "json":
            assert json.loads(block)
        else:
            assert language in SHOWN | {"py"}, f"what is to be done with {language} blocks?"

    def take_configuration(self, block: str, *, is_saved: bool) -> None:
        document = tomllib.loads(block)
        parse_config(document)
        if is_saved:
            web = "" if "web" in document else f'\n[web]\nlisten = "127.0.0.1:{free_port()}"\n'
            (self.place / "lakehand.toml").write_text(block + web)

    def run_command(self, command: str, output: list[str]) -> None:
        words = shlex.split(command, comments=True)
        while words and re.fullmatch(r"[A-Z][A-Z_]*=.*", words[0]):
            name, _, value = words.pop(0).partition("=")
            os.environ[name] = value
        program = words[0]
        if program == "lakehand":
            self.run_lakehand(words[1:], command, output)
        elif program == "export":
            os.environ.update(word.split("=", 1) for word in words[1:])
        elif program in {"pip", "pipx"}:
            check_extras(words)
        elif program == "curl":
            assert self.service_url, "the page needs a service"
            subprocess.run(command, shell=True, check=True, capture_output=True)
        elif program == "wait" and self.background:
            assert self.background.wait(_STARTED_SECONDS) == 0
        else:
            assert program in OF_OTHERS, f"is {program} to be run?"

    def run_lakehand(self, words: list[str], command: str, output: list[str]) -> None:
        if words[0] == "serve" or (_NOT_HERE.search(command) and not self.background):
            check_options(words)
            if words[-1] == "&":
                self.serve(words[:-1])
            return
        if words == ["sql"]:  # A shell; statements are typed into it.
            words = ["sql", *(line.removeprefix("lakehand> ").rstrip(";") for line in output)]
        if words[:2] == ["service", "init"]:  # The service runs already, with another file.
            words = [*words, "--config", "another.toml", "--force"]
        if "--undo" in words:
            words = [_QUARANTINE.sub(self.quarantine_id(Path(words[1])), word) for word in words]
        if "<" in words:
            words, file = words[: words.index("<")], words[words.index("<") + 1]
            words.append((self.place / file).read_text())
        expected = int(found[1]) if (found := re.search(r"# exit code (\d)", command)) else 0
        printed = StringIO()
        with redirect_stdout(printed):
            code = run(words)
        assert code == expected, f"{command}: exit code {code}\n{printed.getvalue()}"
        if self.is_compared:
            compare(command, output, printed.getvalue())

    def quarantine_id(self, table: Path) -> str:
        return next((table / "_lakehand" / "quarantine").iterdir()).stem

    def serve(self, words: list[str]) -> None:
        """Start the service in the background, and wait until it has done its first job."""
        program = [sys.executable, "-c", "from lakehand.cli.main import main; main()", *words]
        with (self.place / "serve.log").open("wb") as log:
            self.background = subprocess.Popen(program, cwd=self.place, stdout=log, stderr=log)
        config = tomllib.loads((self.place / "lakehand.toml").read_text())
        url = f"http://{config['web']['listen']}/healthz"
        wait_until(lambda: answers(url), self.place / "serve.log")
        done = re.compile(r" ended \(job \d+\)")
        wait_until(
            lambda: len(done.findall((self.place / "serve.log").read_text())) >= 1,
            self.place / "serve.log",
        )

    def close(self) -> None:
        if self.background:
            self.background.kill()
            self.background.wait()
        if "client" in self.names:
            self.names["client"].close()


def commands(block: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the commands of a console block with the lines that are shown as their output."""
    command, output, is_open = "", [], False
    for line in block.splitlines():
        if line.startswith("$ "):
            if command:
                yield command, output
            command, output = line[2:], []
        elif is_open:
            command = command[:-1] + " " + line.strip()
        else:
            output.append(line)
        is_open = command.endswith("\\") and not output
    if command:
        yield command, output


def check_extras(words: list[str]) -> None:
    """Check that extras exist that a page installs."""
    for extras in re.findall(r"lakehand\[([\w,]+)\]", " ".join(words)):
        assert set(extras.split(",")) <= EXTRAS.keys()


def check_options(words: list[str]) -> None:
    """Check the options of a command that runs until a signal ends it."""
    # The help option that click makes first is the one that it keeps, so it must be the real one.
    above = click.Context(cli, **cli.context_settings)
    command = cli.get_command(above, words[0])
    words = [word for word in words if word != "&"]
    while isinstance(command, click.Group):
        words = words[1:]
        command = command.get_command(click.Context(command), words[0])
    assert command is not None
    command.make_context(words[0], words[1:], parent=above)


def compare(command: str, expected: list[str], actual: str) -> None:
    """Compare output as far as it does not depend on the machine: any number, anything for `…`."""
    pattern = "".join(_line_pattern(line) for line in expected)
    if pattern:
        assert re.fullmatch(pattern, actual.rstrip("\n") + "\n"), f"$ {command}\n{actual}"


def _line_pattern(line: str) -> str:
    if line.strip() == "…":
        return r"(?:.*\n)*?"
    words = re.split(r"(…|[\d][\d,.:%-]*(?: (?:[KMG]i)?B\b| m?s\b| min\b)?|\s+)", line.rstrip())
    parts = []
    for word in words:
        if word == "…":
            parts.append(r".*")
        elif re.match(r"\d", word):
            parts.append(r"[\d][\d,.:%-]*(?: (?:[KMG]i)?B\b| m?s\b| min\b)?")
        else:
            parts.append(r"\s+" if word.isspace() else re.escape(word))
    return r"\s*".join(["", "".join(parts).removeprefix(r"\s+")]) + r"\s*?\n(?:\s*\n)*"


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return answer.status == 200
    except OSError:
        return False


def wait_until(is_so: Any, log: Path) -> None:
    deadline = time.monotonic() + _STARTED_SECONDS
    while not is_so():
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.2)
