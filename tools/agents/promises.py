"""What a live check looks at: each promise that is made to the user of an agent, with what was seen of it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from context_compactor.agents.hook_log import read_hook_log
from context_compactor.agents.steering import is_steering
from context_compactor.dialects.record import OPENING
from tools.agents.home import Home
from tools.agents.scripted import Lane, Request
from tools.agents.story import LOST, RULE, SUMMARY, log_text, report_text

_MARK = re.compile(r"compactor-brief-[0-9a-f]{12}")
_REFERENCE = re.compile(r'recall\("(\w+)"\)')
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
    compaction: str
    """Whose text stands after a compaction: "ours", or with "beside" the agent's own."""

    def hook_lines(self, event: str, what: str) -> list[dict[str, Any]]:
        """The lines of the hook log about this."""
        return [
            line for line in read_hook_log(str(self.home.project)) if (line["event"], line["what"]) == (event, what)
        ]

    def hook_log(self, event: str, what: str) -> dict[str, Any]:
        """The last line of the hook log about this; empty when there is none."""
        return next(reversed(self.hook_lines(event, what)), {})

    def result(self, label: str) -> str:
        """What the model was told of a call, when it was told first."""
        return next((request.results[label] for request in self.requests if label in request.results), "")

    @property
    def after(self) -> list[Request]:
        """What the agent asked once it had compacted."""
        asked = [request for request in self.requests if not request.agent]
        at = [n for n, request in enumerate(asked) if request.lane == "compact" or record_in(request)]
        return [request for request in asked[at[0] :] if request.lane == "main"] if at else []


def record_in(request: Request) -> str:
    """The record of ours that a request holds, with what is told behind it; empty when there is none."""
    return next((text for text in request.texts if text.lstrip().startswith(OPENING)), "")


def promises(seen: Seen) -> Iterator[Promise]:
    """All of them."""
    if seen.shortens:
        yield from _shortened(seen)
    yield _child_briefed(seen)
    if seen.compaction == "steered":
        yield _steered(seen)
    yield from _with_our_record(seen) if seen.compaction == "ours" else _beside_a_summary(seen)
    yield _found(seen)
    yield _recalled(seen)
    failed = [line for line in read_hook_log(str(seen.home.project)) if line["what"] == "failed"]
    yield Promise("no hook failed in the hook log", not failed, told(failed))
    yield Promise("the agent complains about no hook", not seen.complaints, told(seen.complaints))


def _steered(seen: Seen) -> Promise:
    texts = [text for request in seen.requests if request.lane == "compact" for text in request.texts[-1:]]
    asked = next((text for text in texts if is_steering(text)), "")
    words = f"{len(asked):,} characters{', with the rule of the user' * (RULE in asked)}" if asked else "it does not"
    return Promise("the request for a summary asks for our format, with the facts", RULE in asked, words)


def _with_our_record(seen: Seen) -> Iterator[Promise]:
    asked = [request for request in seen.requests if request.lane == "compact"]
    yield Promise("no model is asked for a summary", not asked, f"{len(asked)} requests for one")
    yield _record_stands(seen, "main", "our record is all that the agent knows after its compaction")
    yield _record_stands(seen, "sub", "our record is what a sub-agent knows after its own compaction")
    briefs = [text for text in (seen.after[0].texts if seen.after else []) if _MARK.search(text)]
    why = seen.hook_log("session-start", "no brief")
    yield Promise("there is no second brief beside our record", not briefs and bool(why), told(why.get("reason")))
    yield from _report_shortened(seen)


def _record_stands(seen: Seen, lane: Lane, what: str) -> Promise:
    found = next((request for request in seen.requests if request.lane == lane and record_in(request)), None)
    if found is None:
        return Promise(what, False, "no request has one")
    record, given = record_in(found), seen.hook_lines("compact", "record given")
    words = f"{len(record):,} characters, one of {len(given)} that were given, after {told(given[-1:])}"
    is_whole = (RULE in record or lane == "sub") and not found.results
    return Promise(what, is_whole and bool(given), words)


def _report_shortened(seen: Seen) -> Iterator[Promise]:
    what, whole = "the long report of a sub-agent in the background reaches the model shortened", report_text()
    texts = [text for request in seen.requests for text in request.texts if "<task-notification>" in text]
    text = texts[0] if texts else ""
    found = _REFERENCE.search(text)
    words = f"{len(text):,} of {len(whole):,} characters, {found[0] if found else 'no reference'}"
    yield Promise(what, found is not None and len(text) < len(whole) / 2, words)
    if found is None:
        return
    recalled = seen.home.compactor("recall", found[1]).stdout
    words = f"{len(recalled):,} characters of {found[1]}"
    yield Promise("`compactor recall` prints all of the report", recalled.strip() == whole, words)


def _beside_a_summary(seen: Seen) -> Iterator[Promise]:
    archived = seen.hook_log("pre-compact", "archived")
    yield Promise("everything is archived before the compaction", archived.get("trigger") == "auto", told(archived))
    yield _brief_in_next(seen)
    yield _brief_arrived(seen)
    compared = next((line for line in (seen.hook_log(event, "compared") for event in _COMPARING) if line), {})
    yield Promise("what the summary lost is known", bool(compared.get("lost")), told(compared.get("lost")))


def extension_promises(seen: Seen, most_asked: int) -> Iterator[Promise]:
    """Those for an agent in which an extension of ours stands for its own compaction."""
    given = seen.hook_log("compact", "record given")
    yield Promise("our record is given", given.get("trigger") == "auto", told(given))
    asked = [sum(map(len, request.texts)) for request in seen.requests if request.lane == "compact"]
    words = f"{len(asked)} requests of {sum(asked):,} characters"
    yield Promise("the model writes no summary", sum(asked) <= most_asked, words)
    after = [request for request in seen.requests if any(OPENING in text for text in request.texts)]
    found = next((text for request in after[:1] for text in request.texts if OPENING in text), "")
    yield Promise("the next request has our record", RULE in found, f"{len(found):,} characters with “{RULE}”")
    yield _found(seen)
    before, recalled = seen.result("failing"), seen.result("recall")
    is_same = LOST in before and before.strip() in recalled
    words = f"{len(before):,} characters in the {len(recalled):,} that recall gave"
    yield Promise("the model recalls an output byte for byte", is_same, words)
    failed = [line for line in read_hook_log(str(seen.home.project)) if line["what"] == "failed"]
    yield Promise("no hook failed in the hook log", not failed, told(failed))
    yield Promise("the agent complains about no extension", not seen.complaints, told(seen.complaints))


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
    return Promise("the brief is in the first request after the compaction, beside the summary", is_kept, told(words))


def _brief_arrived(seen: Seen) -> Promise:
    mark = str(seen.hook_log("post-tool-use", "brief arrived").get("marker", "no marker"))
    lines = [line for log in seen.logs for line in log.read_text().splitlines() if mark in line]
    what = "the marker of the brief is seen in the agent's log"
    return Promise(what, bool(lines), f"{mark} in {len(lines)} lines of the log")


def _found(seen: Seen) -> Promise:
    result = seen.result("search")
    hits = answer_of(result).get("hits", [])
    found = [hit["id"] for hit in hits if LOST in hit["text"]] or _FOUND.findall(result if LOST in result else "")
    return Promise("the model finds with search_archive what the summary lost", bool(found), told(found))


def _recalled(seen: Seen) -> Promise:
    before, answer = seen.result("failing"), answer_of(seen.result("recall"))
    after = "\n".join(seen.after[0].texts) if seen.after else ""
    is_lost = LOST in before and before not in after and LOST not in SUMMARY
    text = answer.get("text", "")
    is_kept = before in (text, _plain(text)) and (is_lost or seen.compaction == "ours")
    words = f"{len(text):,} characters of {answer.get('id', 'nothing')} for {len(before):,}; lost before: {is_lost}"
    return Promise("the model recalls it byte for byte", is_kept, words)


def answer_of(result: str) -> dict[str, Any]:
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


def told(value: object) -> str:
    """A value as it is shown, cut."""
    return json.dumps(value, ensure_ascii=False)[:_SHOWN] if value else "nothing"
