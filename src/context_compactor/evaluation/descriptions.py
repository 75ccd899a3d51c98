"""What measures, methods and groups mean, for somebody who never read our docs."""

from __future__ import annotations

from msgspec import Struct

from context_compactor.evaluation.methods import COMPACTOR, HANDOFF, REAL, SUMMARY, WITH_MODEL
from context_compactor.evaluation.replay import EVERY_TURN


class MeasureDescription(Struct, frozen=True):
    """A measure in two or three words, in a line, and in a few sentences."""

    title: str
    short: str
    meaning: str


MEASURE_DESCRIPTIONS: dict[str, MeasureDescription] = {
    "FRR": MeasureDescription(
        "Names kept",
        "Names the agent went on to use that are still there.",
        "File paths, function names, addresses, ids and long numbers that the agent went on to use from memory: the "
        "share that can still be read in the shortened context. A lost name has to be looked up again, or is guessed.",
    ),
    "BND": MeasureDescription(
        "Names with their context",
        "The same, near the words they stood with.",
        "The same names, but only those that still stand near half of the words they stood with. A bare list of names "
        "scores high on the measure above and low on this one.",
    ),
    "NAS": MeasureDescription(
        "Next actions fully covered",
        "Next tool calls for which everything from memory is there.",
        "Of the agent's next ten tool calls that need something from memory: the share for which everything they need "
        "is there. One missing argument is enough to fail.",
    ),
    "CSR": MeasureDescription(
        "Copied wording kept",
        "Wording the agent copied later, such as lines of code.",
        "Runs of five words that the agent later copied from the history into its commands and edits, such as lines of "
        "code: the share still there word for word.",
    ),
    "EDT": MeasureDescription(
        "Lines for edits kept",
        "Lines that later edits had to quote exactly.",
        "Lines of files that the agent later replaced by an edit, which have to be quoted exactly: the share still "
        "there. What is lost means that the file has to be read again first.",
    ),
    "FAIL": MeasureDescription(
        "Failed attempts kept",
        "Failed tool calls, with the command and the error.",
        "Tool calls that failed: the share that is still there with the command and the line that says why. An agent "
        "that forgets them tries the same again.",
    ),
    "1Q": MeasureDescription(
        "Names found with one search",
        "Names in the context or found by one search of the archive.",
        "Names that are in the context or in the answer to one search of what was left out, asked in the agent's own "
        "words. Methods that have no archive of their own are given a plain search over the whole history.",
    ),
    "LEGAL": MeasureDescription(
        "Contexts a provider accepts",
        "Contexts that a provider would take.",
        "Whether the shortened list of messages would be taken by its provider: every tool call with its result, roles "
        "in order, no empty message. A context that is refused ends the session.",
    ),
    "RESTORE": MeasureDescription(
        "Originals that come back",
        "Messages that come back byte for byte.",
        "Messages that can be had back byte for byte, from the context itself or by recalling what it refers to. Only "
        "methods with an archive can be asked.",
    ),
    "CACHE": MeasureDescription(
        "Prompt cache that survives",
        "The part of the old prompt that stays as it was.",
        "The share of the old prompt, from its start, that is unchanged. A provider bills it at a fraction of the "
        "price. A method that rewrites the beginning has about 0 at the moment of compaction; what that costs in the "
        "long run is in the cost replay.",
    ),
    "SIZE": MeasureDescription(
        "Budget used",
        "Size against the budget.",
        "The size of the shortened context as a share of what it was allowed to have. Over 100 means that it did not "
        "fit; then nothing counts as kept.",
    ),
    "COST": MeasureDescription(
        "Cost replay",
        "The bill with this method against the bill without.",
        "The whole session replayed in a window of 32,000 tokens. Each request is billed: what the request before "
        "began with at a tenth of the price (prompt cache), the rest at one and a quarter. The number is the bill with "
        "this method divided by the bill without any compaction. 0.4 means that it costs 40 percent.",
    ),
    "COUNT": MeasureDescription(
        "Error of the token count",
        "Our count of tokens against the provider's.",
        "How far our count of a request is from what the provider reported for it. Anchored: starting from the number "
        "that the last reply reported. Blind: having seen only the first five replies of the session.",
    ),
    "HANDOFF": MeasureDescription(
        "Handoff text",
        "Names kept in a text of 500 tokens.",
        "Names kept, alone and with their context, in a text of 500 tokens that is handed to the agent of the next "
        "phase.",
    ),
    "LoCoMo": MeasureDescription(
        "Questions about a dialogue",
        "Questions with all their evidence found.",
        "Questions about a long talk between two people: the share for which one search of 2,000 tokens brings back "
        "every line that is needed for the answer.",
    ),
}

METHOD_DESCRIPTIONS: dict[str, str] = {
    COMPACTOR: "Context Compactor, without a model",
    WITH_MODEL: "the same, with a model that summarizes what leaves the context",
    "keep-last": "keep the last messages that fit",
    "trim": "the system prompt and the last messages that fit, as LangChain's trim does",
    "head-and-tail": "the first and the last turns, the middle is dropped",
    "truncate-outputs": "every tool output cut to its beginning and end, then the oldest turns dropped",
    "masking": "the oldest tool outputs replaced by a mark, then the oldest turns dropped",
    "random-drop": "turns dropped at random until it fits",
    SUMMARY: "the summary that the model really wrote at that point",
    "everything": "the whole history, whatever the budget",
    "nothing": "an empty context",
    "name-list": "a bare list of the names used most",
    "ledger": "a rough list of failures and one line for each name",
    HANDOFF: "the handoff text of Context Compactor",
    EVERY_TURN: "old outputs replaced by a mark before every single reply",
}

SHAPE_DESCRIPTIONS: dict[str, str] = {
    "url": "web addresses",
    "path": "paths",
    "number": "long numbers",
    "hash": "hashes and ids",
    "file": "file names",
    "dotted": "dotted.names",
    "snake": "snake_case names",
    "constant": "CONSTANTS, codes",
    "camel": "camelCase names",
}

WRITER_DESCRIPTIONS: dict[str, str] = {
    "user": "the user's words",
    "assistant": "the agent's words",
    "thinking": "the agent's thinking",
    "call": "tool arguments",
    "result": "tool output",
}


def describe_budget(budget: str) -> str:
    """A budget for people: `25 %`, `10 % and its instructions`, `500 tokens`, `the real summary's size`."""
    if budget == REAL:
        return "the real summary's size"
    if budget.endswith("t"):
        return f"{int(budget[:-1]):,} tokens"
    return f"{budget[:-1]} % and its instructions" if budget.endswith("+") else f"{budget} %"
