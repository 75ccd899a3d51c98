"""A conversation about refresh tokens, a good summary of it, and models that say what they are told to say."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from context_compactor.dialects.detection import find_dialect
from context_compactor.dialects.turns import Turn, split_turns
from context_compactor.facts.fact import Fact
from context_compactor.facts.ledgers import extract_facts
from context_compactor.summarize.evidence import Evidence
from context_compactor.summarize.model import Control, ModelAnswer, StopReason
from context_compactor.summarize.request import quote_turns
from context_compactor.testing import Scripted as Line
from context_compactor.testing import ScriptedModel
from tests.engine.talks import Call, bash, edit, read, talk_in
from tests.waiting import PATIENCE

GOOD = """## Task
> Add refresh tokens to the login flow. (turn_001)
Now: the POST /refresh handler in src/auth/routes.ts is being wired (turn_005)
## Rules and corrections by the user
> Never touch legacy/. (turn_001)
## Where things stand
- uncommitted: src/auth/jwt.ts: jwt.sign now has a jti (turn_003)
- done: token rotation in src/auth/jwt.ts (turn_005)
- doing: the POST /refresh handler in src/auth/routes.ts (turn_005)
- blocked: the staging secret is missing (turn_005)
- next: make the test in refresh.test.ts pass (turn_005)
## Findings and decisions
- "httpOnly cookie" for the refresh token, because there is no Redis in production (turn_004)
## Failed, and what came of it
- open: `npm test -- refresh` → TypeError: Cannot read properties of undefined (reading 'exp') (turn_004)
## What happened
1 user: "Add refresh tokens to the login flow. Never touch legacy/." → read src/auth/jwt.ts, added a jti
4 agent: `npm test -- refresh` failed; the httpOnly cookie was chosen
## Exact lines for the work at hand
[turn_003 src/auth/jwt.ts]
return jwt.sign({ ...payload, jti })
"""


def count(text: str) -> int:
    """Tokens, roughly."""
    return len(text) // 4 + 1


def refresh_talk(filler: int = 60) -> list[Turn]:
    """The conversation as turns."""
    talk = talk_in("openai-chat").user(
        "Add refresh tokens to the login flow. Never touch legacy/. We use an httpOnly cookie and this is the plan."
    )
    code = "\n".join(
        f"export function verifyToken{n}(token: string): Payload {{ return check(token, {n}) }}" for n in range(filler)
    )
    talk.step(read("src/auth/jwt.ts", code), text="I read the file first.")
    talk.step(edit("src/auth/jwt.ts", "return jwt.sign(payload)", "return jwt.sign({ ...payload, jti })"))
    talk.step(
        bash(
            "npm test -- refresh",
            "refresh.test.ts\nTypeError: Cannot read properties of undefined (reading 'exp')",
            True,
        ),
        text="We decided to go with the httpOnly cookie because there is no Redis in production.",
    )
    todos = [
        {"content": "Rotate tokens in src/auth/jwt.ts", "status": "completed"},
        {"content": "Wire POST /refresh in src/auth/routes.ts", "status": "in_progress"},
    ]
    talk.step(Call("TodoWrite", {"todos": todos}, "ok"), text="The staging secret is missing, so that waits for you.")
    return turns_of(talk.messages)


def turns_of(messages: list[dict[str, object]]) -> list[Turn]:
    """Messages as turns."""
    return split_turns(find_dialect("auto", messages).parse(messages))


def facts_of(turns: Sequence[Turn]) -> tuple[Fact, ...]:
    """What is known of turns."""
    return tuple(extract_facts(turns))


def evidence_of(turns: Sequence[Turn], language: str = "en", **more: Any) -> Evidence:
    """What a summary of these turns is held against."""
    source = "\n".join(f"[{found.heading}]\n{found.body}" for found in quote_turns(turns))
    return Evidence(source, turns, language=language, facts=facts_of(turns), **more)


def answer(text: str, stop: StopReason = "complete", **more: object) -> ModelAnswer:
    """An answer of this text."""
    return ModelAnswer(text=text, stop=stop, **more)  # type: ignore[arg-type]


def control(seconds: float = PATIENCE, on_text: Callable[[str], None] | None = None) -> Control:
    """A control that nobody has cancelled."""
    return Control(deadline=time.monotonic() + seconds, cancel=threading.Event(), on_text=on_text)


class Scripted(ScriptedModel):
    """A model that says these lines in order, and the last one for ever; a function is asked for each."""

    def __init__(self, *lines: Line, window: int = 100_000) -> None:
        super().__init__(lines, name="scripted/model", window=window, most_output=8_000)

    @property
    def shown(self) -> str:
        """Everything that was ever sent."""
        return "\n".join(message.text for request in self.requests for message in request.messages)
