"""How a compacted conversation looks, one line per message, compared with the pictures in `shapes/`.

When the engine changes on purpose: `UPDATE_SHAPES=1 python -m pytest tests/engine/test_shapes.py`, then read the diff.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from context_compactor import Compaction, Level, compact
from context_compactor.dialects.messages import Message
from context_compactor.dialects.record import parse_record
from context_compactor.tokens.counting import MessageCounter, counter_for
from tests.engine import promises
from tests.engine.talks import Call, Talk, bash, edit, read, talk_in

SHAPES = Path(__file__).parent / "shapes"
WIDTH = 90


def login() -> Talk:
    """Refresh tokens for a login flow: reads, edits, red tests, a denied push, reasoning with signatures."""
    talk = talk_in("anthropic").system("You are a careful engineer. Never touch legacy/.")
    talk.user("Add refresh tokens to the login flow. Keep Node 18.")
    talk.step(read("src/auth/jwt.ts", _module("verifyToken", 45)), thinking="The token store comes first.")
    talk.step(bash("rg -n verifyToken src", _matches("verifyToken", 41)), text="Who uses it?")
    talk.step(edit("src/auth/jwt.ts", "expiresIn: '15m'", "expiresIn: '15m', jti: randomUUID()"))
    talk.step(bash("npm test -- refresh", _red("refresh", "TypeError: Cannot read properties of undefined"), True))
    talk.step(read("src/auth/routes.ts", _module("route", 60)), read("src/auth/store.ts", _module("store", 40)))
    talk.answer("We decided to go with an httpOnly cookie instead of server sessions because there is no Redis.")
    talk.user("Good. No, not 15 minutes: the access token must live for 10 minutes.")
    talk.step(edit("src/auth/routes.ts", "app.post('/login')", "app.post('/refresh')"), thinking="Now the route.")
    talk.step(bash("git push --force", "The user doesn't want to proceed with this tool use. Never force-push.", True))
    talk.step(bash("gh pr create --fill", "https://github.com/acme/app/pull/118"))
    talk.step(bash("npm test", "> jest\n" + "\n".join(f"PASS tests/case_{n}.test.ts" for n in range(60))))
    return talk.answer("The pull request is open.").user("Which test covers the rotation?")


def billing() -> Talk:
    """A bug in invoices: a traceback, a superseded read, a running sub-agent, the work cut off amid a step."""
    talk = talk_in("openai-chat").system("Answer in short sentences.")
    talk.user("Invoices are rounded wrongly. Find out why and fix it.")
    talk.step(read("src/billing/invoice.py", _module("round_invoice", 50)), text="Reading the invoice first.")
    talk.step(bash("python -m billing --check", _trace("RoundingError: 0.615 became 0.61"), True))
    for area in ("tax", "ledger", "export"):
        talk.step(read(f"src/billing/{area}.py", _module(area, 35)))
        talk.step(bash(f"rg -n round src/billing/{area}.py", _matches("round", 25)))
    talk.step(edit("src/billing/invoice.py", "round(total, 2)", "total.quantize(CENT)"))
    talk.step(read("src/billing/invoice.py", _module("round_invoice", 50)))
    talk.step(Call("Task", {"description": "check the docs", "prompt": "Find every mention of rounding."}, _report()))
    talk.answer("The fix is in. The root cause is that floats were rounded before the tax was added.")
    talk.user("Then run everything once more.")
    return talk.step(bash("pytest -q", "\n".join(f"tests/test_{n}.py ....." for n in range(80)) + "\n400 passed"))


def search() -> Talk:
    """A slow search: long logs, a page from the web, a picture, Japanese words, an unanswered question."""
    talk = talk_in("openai-responses").system("日本語で答えてください。")
    talk.user("検索が遅い理由を調べてください。インデックスは変更しないでください。")
    talk.step(bash("docker logs search", _log(150)), text="まずログを見ます。", thinking="ログに手がかりがある。")
    talk.step(Call("WebFetch", {"url": "https://example.com/tuning"}, "# Tuning\n" + "Use a smaller page. " * 120))
    talk.step(Call("Screenshot", {"url": "http://127.0.0.1:9200"}, "the dashboard", pictures=1))
    talk.step(bash("curl -s localhost:9200/_stats", '{"shards": {"total": 12, "failed": 0}, "took": 841}' * 30))
    talk.step(bash("make bench", _red("bench", "make: *** [bench] Error 2"), True))
    talk.answer("原因はページサイズです。ページを小さくすることに決めました。")
    talk.user("では修正してください。")
    talk.step(edit("src/search/query.py", "size=1000", "size=50"))
    return talk.answer("修正しました。").user("他に遅いところはありますか？")


def _module(name: str, functions: int) -> str:
    return "\n".join(
        f"export function {name}_{n}(token: string): number {{\n  return {name}.table[{n}] + token.length;\n}}"
        for n in range(functions)
    )


def _matches(name: str, count: int) -> str:
    return "\n".join(f"src/part_{n}/use.ts:{n * 7}:  const value = {name}({n});" for n in range(count))


def _red(name: str, error: str) -> str:
    passed = "\n".join(f"ok {n} {name} case {n}" for n in range(50))
    return f"Exit code 1\n{passed}\nFAIL tests/{name}.test.ts\n{error}\n1 failed, 50 passed"


def _trace(error: str) -> str:
    frames = "\n".join(f'  File "src/billing/step_{n}.py", line {n}, in step_{n}\n    next(step)' for n in range(12))
    return f"Exit code 1\nTraceback (most recent call last):\n{frames}\n{error}"


def _log(lines: int) -> str:
    return "\n".join(f"2024-05-01T12:00:{n % 60:02d}Z INFO query {n} took {n * 37 % 900} ms" for n in range(lines))


def _report() -> str:
    return "## Summary\nRounding is told in docs/money.md.\n" + "\n".join(f"- docs/page_{n}.md" for n in range(40))


TALKS = {"login": login, "billing": billing, "search": search}


def picture_of(result: Compaction, dialect: str) -> str:
    """The report in one line, then each message in one line."""
    report = result.report
    head = f"{report.status} {report.tokens_before:,} → {report.tokens_after:,} of {report.target_tokens:,} tokens"
    return "\n".join((head, *_message_lines(promises.parsed(result.messages, dialect), dialect))) + "\n"


def _message_lines(messages: list[Message], dialect: str) -> Iterator[str]:
    counter = MessageCounter(counter_for(None), dialect)
    for at, message in enumerate(messages):
        kinds = "+".join(type(part).__name__.lower().removeprefix("tool") for part in message.parts)
        yield f"{at:>3} {message.role:9} {kinds:18} {counter.count(message):>6}  {_words(message)}"


def _words(message: Message) -> str:
    record = parse_record(message.parts[0].text) if message.parts and hasattr(message.parts[0], "text") else None
    if record:
        output = [f"{title}: {len(lines)}" for title, lines in record.sections.items()]
        happened = f"what happened: {len(record.happened)}"
        return "; ".join(
            (f"RECORD with quotes: {len(record.quotes)}", *output, happened, f"excerpts: {len(record.excerpts)}")
        )
    text = " ".join(part.text or "·" for part in message.parts if hasattr(part, "text"))
    calls = " ".join(f"{call.name} {call.arguments}" for call in message.calls)
    words = " ".join(f"{text} {calls}".split())
    return words if len(words) <= WIDTH else words[: WIDTH - 1] + "…"


@pytest.mark.parametrize("level", list(Level))
@pytest.mark.parametrize("name", TALKS)
def test_a_compacted_conversation_looks_as_in_its_picture(name, level):
    talk = TALKS[name]()
    window = int(promises.tokens_of(talk.messages, talk.dialect) * 1.2)
    result = compact(talk.messages, window=window, level=level, dialect=talk.dialect)
    path, shape = SHAPES / f"{name}-{level}.txt", picture_of(result, talk.dialect)
    if os.environ.get("UPDATE_SHAPES"):
        path.write_text(shape, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == shape
