"""What a live check looks at: each promise that is made to the user of an agent, with what was seen of it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from context_compactor.agents.hook_log import read_hook_log
from tools.agents.home import Home
from tools.agents.scripted import Request
from tools.agents.story import LOST, RULE, SUMMARY, log_text

_MARK = re.compile(r"compactor-brief-[0-9a-f]{12}")
_REFERENCE = re.compile(r'recall\("(\w+)"\)')
_RECORD = "[Context record."
_FOUND = re.compile(r"^(tool_\d+) \(", re.MULTILINE)
_SHOWN = 300
_COMPARING = ("session-start", "post-compact")
# Codex tells hooks the beginning and the end of a long output, 10,000 tokens together.
_CODEX_CUTS = 30_000


class Promise(Struct, frozen=True):
    """Something that must be so, whether it is, and what was seen."""

    what: str
    is_kept: bool
    seen: str


class Seen(Struct, frozen=True):
    """What was there to see: the home, what the model was asked, the logs of the agent and its complaints."""

    home: Home
    requests: Sequence[Request]
    logs: Sequence[Path]
    complaints: Sequence[str]
    shortens: bool
    """Whether hooks of this agent can shorten an output."""
    hears_all: bool
    """Whether hooks of this agent are told all of a long output."""

    def hook_log(self, event: str, what: str) -> dict[str, Any]:
        """The last line of the hook log about this; empty when there is none."""
        lines = [
            line for line in read_hook_log(str(self.home.project)) if (line["event"], line["what"]) == (event, what)
        ]
        return lines[-1] if lines else {}

    def result(self, label: str) -> str:
        """What the model was told of a call, when it was told first."""
        return next((request.results[label] for request in self.requests if label in request.results), "")

    @property
    def after(self) -> list[Request]:
        """What the agent asked once it had compacted."""
        lanes = [request.lane for request in self.requests]
        at = lanes.index("compact") if "compact" in lanes else len(lanes)
        return [request for request in self.requests[at:] if request.lane == "main"]


def promises(seen: Seen) -> Iterator[Promise]:
    """All of them."""
    if seen.shortens:
        yield from _shortened(seen)
    yield _child_briefed(seen)
    archived = seen.hook_log("pre-compact", "archived")
    yield Promise("everything is archived before the compaction", archived.get("trigger") == "auto", _told(archived))
    yield _brief_in_next(seen)
    yield _brief_arrived(seen)
    compared = next((line for line in (seen.hook_log(event, "compared") for event in _COMPARING) if line), {})
    yield Promise("what the summary lost is known", bool(compared.get("lost")), _told(compared.get("lost")))
    yield _found(seen)
    yield _recalled(seen)
    failed = [line for line in read_hook_log(str(seen.home.project)) if line["what"] == "failed"]
    yield Promise("no hook failed in the hook log", not failed, _told(failed))
    yield Promise("the agent complains about no hook", not seen.complaints, _told(seen.complaints))


def extension_promises(seen: Seen, most_asked: int) -> Iterator[Promise]:
    """Those for an agent in which an extension of ours stands for its own compaction."""
    given = seen.hook_log("compact", "record given")
    yield Promise("our record is given", given.get("trigger") == "auto", _told(given))
    asked = [sum(map(len, request.texts)) for request in seen.requests if request.lane == "compact"]
    words = f"{len(asked)} requests of {sum(asked):,} characters"
    yield Promise("the model writes no summary", sum(asked) <= most_asked, words)
    after = [request for request in seen.requests if any(_RECORD in text for text in request.texts)]
    found = next((text for request in after[:1] for text in request.texts if _RECORD in text), "")
    yield Promise("the next request has our record", RULE in found, f"{len(found):,} characters with “{RULE}”")
    yield _found(seen)
    before, recalled = seen.result("failing"), seen.result("recall")
    is_same = LOST in before and before.strip() in recalled
    words = f"{len(before):,} characters in the {len(recalled):,} that recall gave"
    yield Promise("the model recalls an output byte for byte", is_same, words)
    failed = [line for line in read_hook_log(str(seen.home.project)) if line["what"] == "failed"]
    yield Promise("no hook failed in the hook log", not failed, _told(failed))
    yield Promise("the agent complains about no extension", not seen.complaints, _told(seen.complaints))


def _shortened(seen: Seen) -> Iterator[Promise]:
    whole, result = log_text(), seen.result("oversized")
    found = _REFERENCE.search(result)
    is_kept = found is not None and len(result) < len(whole) / 4 and whole.split("\n")[0] in result
    what = "a long output reaches the model shortened, with a reference"
    yield Promise(
        what, is_kept, f"{len(result):,} of {len(whole):,} characters, {found[0] if found else 'no reference'}"
    )
    if found is None:
        return
    recalled = seen.home.compactor("recall", found[1]).stdout
    is_much = len(recalled) > _CODEX_CUTS and whole[:1_000] in recalled and whole[-1_000:].strip() in recalled
    much = "all of it" if seen.hears_all else "all that hooks are told of it"
    is_kept = recalled == whole if seen.hears_all else is_much
    yield Promise(f"`compactor recall` prints {much}", is_kept, f"{len(recalled):,} characters of {found[1]}")


def _child_briefed(seen: Seen) -> Promise:
    first = next((request for request in seen.requests if request.lane == "sub"), None)
    found = [text for text in first.texts if RULE in text] if first else []
    words = f"{len(found[0]):,} characters with “{RULE}”" if found else "the rule of the user is in none of its texts"
    return Promise("a sub-agent is told what its caller knows", bool(found), words)


def _brief_in_next(seen: Seen) -> Promise:
    texts = seen.after[0].texts if seen.after else []
    found = next((text for text in texts if _MARK.search(text)), "")
    is_kept = RULE in found and any(SUMMARY in text for text in texts)
    words = _MARK.findall(found) or f"no brief in {len(texts)} texts"
    return Promise("the brief is in the first request after the compaction, beside the summary", is_kept, _told(words))


def _brief_arrived(seen: Seen) -> Promise:
    mark = str(seen.hook_log("post-tool-use", "brief arrived").get("marker", "no marker"))
    lines = [line for log in seen.logs for line in log.read_text().splitlines() if mark in line]
    what = "the marker of the brief is seen in the agent's log"
    return Promise(what, bool(lines), f"{mark} in {len(lines)} lines of the log")


def _found(seen: Seen) -> Promise:
    result = seen.result("search")
    hits = _answer(result).get("hits", [])
    found = [hit["id"] for hit in hits if LOST in hit["text"]] or _FOUND.findall(result if LOST in result else "")
    return Promise("the model finds with search_archive what the summary lost", bool(found), _told(found))


def _recalled(seen: Seen) -> Promise:
    before, answer = seen.result("failing"), _answer(seen.result("recall"))
    after = "\n".join(seen.after[0].texts) if seen.after else ""
    is_lost = LOST in before and before not in after and LOST not in SUMMARY
    text = answer.get("text", "")
    is_kept = is_lost and before in (text, _plain(text))
    words = f"{len(text):,} characters of {answer.get('id', 'nothing')} for {len(before):,}; lost before: {is_lost}"
    return Promise("the model recalls it byte for byte", is_kept, words)


def _answer(result: str) -> dict[str, Any]:
    """What one of our tools has answered, out of what an agent makes of it."""
    try:
        value = json.JSONDecoder().raw_decode(result[result.index("{") :])[0]
    except ValueError:
        return {}
    found = value.get("structuredContent", value)
    return found if isinstance(found, dict) else {}


def _plain(text: str) -> str:
    """The text in a result that an agent keeps in pieces."""
    try:
        return "\n".join(piece["text"] for piece in json.loads(text))
    except (ValueError, TypeError, KeyError):
        return text


def _told(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)[:_SHOWN] if value else "nothing"
