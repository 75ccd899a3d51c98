"""`compactor wrap` and the commands of the proxy: what users type, and what they get for nonsense."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from context_compactor.proxy.relay import check_upstream
from context_compactor.proxy.wrap import wrapped_command
from context_compactor.testing import ScriptedReply, StrictServer
from tests.proxy.proxies import Place
from tests.waiting import PATIENCE, wait_for

_AGENT = """\
import os, sys, anthropic
client = anthropic.Anthropic(api_key="key-of-the-user")
reply = client.messages.create(model="claude-opus-5-5", max_tokens=100, messages=[{"role": "user", "content": "Hello"}])
print(reply.content[0].text)
sys.exit(int(sys.argv[1]))
"""
_STUBBORN = """\
import signal, sys, time
from pathlib import Path
signal.signal(signal.SIGINT, lambda *_: Path("interrupted").touch() or sys.exit(3))
Path("ready").touch()
while True: time.sleep(0.01)
"""


def compactor(folder: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("COMPACTOR_")}
    return subprocess.run(
        [sys.executable, "-m", "context_compactor", *arguments],
        cwd=folder,
        env=env | more,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


@pytest.mark.parametrize("code", [0, 7])
def test_a_wrapped_program_talks_through_the_proxy_and_its_exit_code_is_ours(tmp_path: Path, code: int):
    (tmp_path / "agent.py").write_text(_AGENT)
    server = StrictServer([ScriptedReply("Hello to you.")])
    with server.serve() as upstream:
        ran = compactor(tmp_path, "wrap", "--upstream", upstream, "--", sys.executable, "agent.py", str(code))
    assert (ran.stdout, ran.returncode) == ("Hello to you.\n", code), ran.stderr
    assert [message["role"] for message in Place(tmp_path).recorded().only] == ["user", "assistant"]


def test_options_behind_the_agents_name_are_the_agents(tmp_path: Path):
    ran = compactor(tmp_path, "wrap", sys.executable, "-c", "import sys; print(sys.argv[1:])", "--mode", "plan", "-p")
    assert ran.stdout == "['--mode', 'plan', '-p']\n", ran.stderr


def test_the_address_is_set_for_the_agent_and_proxies_of_the_environment_do_not_come_between(tmp_path: Path):
    script = "import json, os; print(json.dumps(dict(os.environ)))"
    ran = compactor(tmp_path, "wrap", sys.executable, "-c", script, HTTPS_PROXY="http://other:1", NO_PROXY="a.example")
    seen = json.loads(ran.stdout)
    assert seen["ANTHROPIC_BASE_URL"].startswith("http://127.0.0.1:")
    assert seen["OPENAI_BASE_URL"] == f"{seen['ANTHROPIC_BASE_URL']}/v1"
    assert seen["NO_PROXY"] == "a.example,127.0.0.1,localhost"


def test_ctrl_c_is_the_agents_and_nothing_is_left_running(tmp_path: Path):
    (tmp_path / "agent.py").write_text(_STUBBORN)
    command = [sys.executable, "-m", "context_compactor", "wrap", "--", sys.executable, "agent.py"]
    with subprocess.Popen(command, cwd=tmp_path, start_new_session=True) as wrapped:
        wait_for((tmp_path / "ready").exists)
        family = psutil.Process(wrapped.pid).children(recursive=True)
        os.killpg(wrapped.pid, signal.SIGINT)
        assert wrapped.wait(PATIENCE) == 3
    assert (tmp_path / "interrupted").exists()
    assert len(family) == 2
    wait_for(lambda: not any(each.is_running() and each.status() != "zombie" for each in family))


def test_a_wrapper_that_is_told_to_end_ends_its_agent(tmp_path: Path):
    (tmp_path / "agent.py").write_text(_STUBBORN)
    command = [sys.executable, "-m", "context_compactor", "wrap", "--", sys.executable, "agent.py"]
    with subprocess.Popen(command, cwd=tmp_path) as wrapped:
        wait_for((tmp_path / "ready").exists)
        wrapped.send_signal(signal.SIGTERM)
        assert wrapped.wait(PATIENCE) == 128 + signal.SIGTERM


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("wrap", "no-such-agent"), "'no-such-agent' was not found"),
        (("proxy", "--upstream", "ftp://example.org"), "is not an address"),
        (("proxy", "--upstream", "http://169.254.169.254"), "is no provider's address"),
        (("proxy", "--upstream", "https://me:secret@example.org"), "leave the user out"),
        (("proxy", "--mode", "loud"), "is not one of off, on, record"),
        (("proxy", "--holdout", "many"), "is not a share"),
        (("proxy", "--window", "few"), "window"),
        (("proxy", "--port", "99999"), "is not a port number"),
        (("proxy", "--store", "memory:"), "needs a store that stays"),
        (("proxy", "start"), "is not an action"),
        (("proxy", "report"), "compactor.db"),
    ],
)
def test_nonsense_is_refused_with_what_to_try_and_nothing_is_made(
    tmp_path: Path, arguments: tuple[str, ...], says: str
):
    ran = compactor(tmp_path, *arguments)
    assert (ran.returncode, says in ran.stderr) == (2, True), ran.stderr
    assert "secret" not in ran.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_port_that_is_taken_is_said(tmp_path: Path):
    with StrictServer().serve() as upstream:
        ran = compactor(tmp_path, "proxy", "--port", upstream.rpartition(":")[2])
    assert ran.returncode == 2
    assert "cannot listen" in ran.stderr


def test_without_the_extra_it_is_said_which_one_to_install(tmp_path: Path):
    hidden = "import sys; sys.modules['aiohttp'] = None; from context_compactor.cli.main import main; main()"
    command = [sys.executable, "-c", hidden, "proxy"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert ran.returncode == 2
    assert "[proxy]" in ran.stderr


def test_the_report_is_printed_for_people_and_as_json(tmp_path: Path):
    (tmp_path / "agent.py").write_text(_AGENT)
    with StrictServer([ScriptedReply("Hello.")]).serve() as upstream:
        compactor(tmp_path, "wrap", "--upstream", upstream, "--", sys.executable, "agent.py", "0")
    told = compactor(tmp_path, "proxy", "report")
    assert (told.returncode, "1 request in 1 conversation" in told.stdout) == (0, True)
    given = json.loads(compactor(tmp_path, "proxy", "report", "--json").stdout)
    assert given["total"]["with"]["requests"] == 1


def test_codex_is_told_the_address_in_its_configuration_and_claude_in_its_environment(monkeypatch, tmp_path: Path):
    monkeypatch.setenv("CODEX_HOME", str(tmp_path))
    for name in ("OPENAI_BASE_URL", "ANTHROPIC_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    codex, address = wrapped_command("codex", ["exec", "hi"]), "http://127.0.0.1:1"
    assert list(codex.arguments(address)) == ["-c", 'openai_base_url="http://127.0.0.1:1/v1"']
    assert (codex.upstream, list(codex.command)) == ("https://api.openai.com", ["codex", "exec", "hi"])
    (tmp_path / "auth.json").write_text(json.dumps({"tokens": {"access_token": "x"}, "OPENAI_API_KEY": None}))
    with_account = wrapped_command("codex", [])
    assert with_account.upstream == "https://chatgpt.com"
    assert list(with_account.arguments(address)) == ["-c", 'openai_base_url="http://127.0.0.1:1/backend-api/codex"']
    provider = 'model_provider = "mine"\n[model_providers.mine]\nbase_url = "http://127.0.0.1:9/api/v1"\n'
    (tmp_path / "config.toml").write_text(provider)
    own = wrapped_command("codex", [])
    assert own.upstream == "http://127.0.0.1:9"
    assert list(own.arguments(address)) == ["-c", 'model_providers.mine.base_url="http://127.0.0.1:1/api/v1"']
    claude = wrapped_command("claude", ["-p", "hi"])
    assert claude.environment(address)["ANTHROPIC_BASE_URL"] == address
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "https://gateway.example/api")
    assert wrapped_command("claude", []).upstream == "https://gateway.example/api"


def test_an_address_of_ones_own_is_a_provider_too():
    assert check_upstream("http://127.0.0.1:8080/") == "http://127.0.0.1:8080"
    assert check_upstream("https://gateway.example/api") == "https://gateway.example/api"
