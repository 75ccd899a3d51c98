"""The prose is checked like the code, and the checks themselves can fail."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from context_compactor.errors import PACKAGE, MissingExtra
from context_compactor.settings import Settings
from tests.cli.conftest import conversation
from tools.checks import docs, exports, imports, names, size, tracked

ROOT = Path(__file__).parent.parent


@pytest.fixture(autouse=True)
def _at_the_root(monkeypatch):
    monkeypatch.chdir(ROOT)


def test_every_exported_name_is_documented():
    assert exports.problems() == []


def test_the_docs_match_the_code():
    assert docs.problems() == []


def test_importing_the_package_loads_nothing_slow():
    loaded = imports.loaded_modules()
    assert not loaded & set(imports.HEAVY)


def test_tracked_files_name_no_machine_and_no_registry():
    assert tracked.problems() == []


def test_names_are_from_the_glossary():
    assert names.problems() == []


@pytest.mark.parametrize(
    "code", ["def process_items(): ...", "class DataHolder: ...", "info = 1", "def f(handled): ..."]
)
def test_a_name_with_a_word_that_means_three_things_is_found(tmp_path, code):
    (tmp_path / "module.py").write_text(code)
    assert len(names.problems(tmp_path)) == 1


def test_a_word_inside_of_another_word_is_no_problem(tmp_path):
    (tmp_path / "module.py").write_text("import subprocess\nmetadata = subprocess\ninformation = 1\n")
    assert names.problems(tmp_path) == []


def test_a_link_that_leads_nowhere_is_found(tmp_path, monkeypatch):
    (tmp_path / "README.md").write_text("[there](docs/gone.md) [web](https://example.com/x)\n```\n[no](link.md)\n```\n")
    monkeypatch.chdir(tmp_path)
    assert list(docs.dead_links()) == ["README.md: the link to docs/gone.md leads nowhere"]


@pytest.mark.parametrize(
    "line",
    [
        "pip install 'context-compactor[server]'",
        "`/opt/x/bin/pip install --upgrade context-compactor`",
        "RUN pip install --no-cache-dir 'context-compactor[server,postgres]'",
        "pipx install context-compactor    # then go on",
        "uv tool install 'context-compactor[mcp]'",
        "pip install '.[sever]'",
    ],
)
def test_a_line_that_tells_to_install_in_a_way_that_does_not_work_is_found(tmp_path, monkeypatch, line):
    (tmp_path / "README.md").write_text(f"{line}\npip install . and `uv tool install` and pip install -e '.[dev]'\n")
    (tmp_path / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text())
    monkeypatch.chdir(tmp_path)
    (problem,) = docs.other_installs()
    assert problem.startswith("README.md:1: ")


def test_the_error_for_a_missing_extra_tells_what_works():
    assert f"pip install '{PACKAGE}[server]'" in str(MissingExtra("the server", "server"))


@pytest.mark.parametrize("line", ["see {home}/notes", "pip install --{index}=x", "https://{registry}/x"])
def test_a_line_that_names_a_machine_or_a_registry_is_found(tmp_path, line):
    page = tmp_path / "page.md"
    page.write_text(line.format(home=Path.home(), index="index" + "-url", registry="pypi" + ".org"))
    assert len(list(tracked.in_file(page))) == 1


def test_the_words_not_used_in_names_are_those_of_the_glossary():
    glossary = (ROOT / "docs/glossary.md").read_text()
    words = re.search(r"three things in this field: ([^.]+)\.", glossary)
    assert words is not None
    assert set(re.findall(r"\w+", words[1])) <= names.WORDS


def test_a_figure_of_the_packages_size_above_its_limit_is_found():
    within = dict(size.LIMITS)
    assert size.problems(within) == []
    assert size.problems({**within, "modules": within["modules"] + 1}) == [
        f"{within['modules'] + 1:,} modules: at most {within['modules']:,}"
    ]


def test_the_modules_that_a_call_runs_through_are_counted():
    path = size.modules()["context_compactor.settings"]
    assert str(path) in size.touched(lambda: Settings(window=1_000))


def test_the_dependencies_are_those_that_were_chosen():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    frameworks = {"langchain", "openai-agents", "pydantic-ai", "adk", "litellm", "agno", "claude-agent-sdk"}
    others = {"server", "postgres", "openai", "anthropic", "tui", "mcp", "proxy", "dev", "all", "frameworks"}
    others |= {"litellm-proxy"}
    assert set(extras) == frameworks | others
    for heavy in ("aiohttp", "openai", "anthropic", "litellm", "litestar", "textual", "mcp", "psycopg"):
        assert not any(name.startswith(heavy) for name in project["dependencies"])


def test_the_constraints_pin_every_core_dependency_and_name_no_address():
    text = (ROOT / "constraints.txt").read_text()
    pinned = {line.split("==")[0] for line in text.splitlines()}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {re.split(r"[<>=\[]", name)[0] for name in project["dependencies"]} <= pinned
    assert "://" not in text


def test_the_quickstart_shows_settings_that_exist():
    toml = re.search(r"```toml\n(.*?)```", (ROOT / "docs/quickstart.md").read_text(), re.DOTALL)
    assert toml is not None
    assert set(tomllib.loads(toml[1])) <= set(Settings.__struct_fields__)


def _code_of(page: str) -> str:
    found = re.search(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    assert found is not None
    return found[1]


_NAMES = """\
from openai.types.chat import ChatCompletionMessage, ChatCompletionMessageParam
def ask_the_model(messages: list[ChatCompletionMessageParam]) -> ChatCompletionMessage: ...
messages: list[ChatCompletionMessageParam] = []
from openai import OpenAI
from openai.types.chat import ChatCompletionMessageToolCallUnion, ChatCompletionToolParam
from context_compactor import Session as Opened
client = OpenAI()
my_tools: list[ChatCompletionToolParam] = []
def answer(session: Opened, call: ChatCompletionMessageToolCallUnion) -> ChatCompletionMessageParam: ...
message: ChatCompletionMessageParam = {"role": "user", "content": ""}
"""


@pytest.mark.slow
def test_the_python_of_the_docs_passes_strict_types_with_the_sdks(tmp_path):
    pages = {"README.md": _NAMES, "docs/quickstart.md": _NAMES, "docs/how-to/provider-sdks.md": ""}
    for page, prelude in pages.items():
        for number, code in enumerate(re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)):
            (tmp_path / f"{Path(page).stem.replace('-', '_')}_{number}.py").write_text(f"{prelude}{code}")
    assert len(list(tmp_path.iterdir())) >= 7
    config = ("--strict", "--config-file=", "--disable-error-code=empty-body", "--cache-dir", str(tmp_path / "cache"))
    command = [sys.executable, "-m", "mypy", *config, str(tmp_path)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout


def test_the_python_of_the_readme_and_the_quickstart_runs():
    for page in ("README.md", "docs/quickstart.md"):
        names: dict[str, Any] = {"messages": conversation()}
        lines = _code_of(page).replace("200_000", "15_000").replace("20_000", "5_000").replace("tool_017", "file_017")
        exec(lines, names)
        assert names["result"].report.status == "success"
