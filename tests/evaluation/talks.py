"""Small hand-made conversations in which it is plain what the future takes from the past."""

from __future__ import annotations

from context_compactor.evaluation.corpus import RecordedCompaction, RecordedConversation


class SilentProgress:
    """A listener that shows nothing."""

    def start(self, what: str, total: int) -> None: ...

    def step(self, amount: int = 1) -> None: ...


FILLER = "The weather report says nothing new about anything at all today.\n" * 40

PRICING = """\
def roundPriceUp(amount_cents, currency, region):  # never down
    return math.ceil(amount_cents / 100) * 100
"""


def call(number, name, **arguments):
    return {"type": "tool_use", "id": f"toolu_{number}", "name": name, "input": arguments}


def result(number, text, **more):
    return {"type": "tool_result", "tool_use_id": f"toolu_{number}", "content": text, **more}


def assistant(*blocks):
    return {"role": "assistant", "content": list(blocks)}


def user(*blocks):
    return {"role": "user", "content": list(blocks)}


def words(text):
    return {"type": "text", "text": text}


def anthropic_talk():
    """A read, a failure and filler; then an edit, a grep and a test run that need what was read."""
    messages = [
        user(words("Please fix the price rounding in the shop.")),
        assistant(words("I look."), call(1, "Read", file_path="/repo/src/shop/pricing_rules.py")),
        user(result(1, PRICING)),
        assistant(call(2, "Bash", command="pytest tests/test_prices.py -k rounding")),
        user(result(2, "Exit code 4\nERROR: file not found: tests/test_prices.py", is_error=True)),
        *filler(10, 17),
        assistant(
            words("Now roundPriceUp needs a guard."),
            call(
                30,
                "Edit",
                file_path="/repo/src/shop/pricing_rules.py",
                old_string="    return math.ceil(amount_cents / 100) * 100",
                new_string="    return 0",
            ),
        ),
        user(result(30, "ok")),
        assistant(call(31, "Grep", pattern="roundPriceUp", path="/repo/src")),
        user(result(31, "src/shop/cart_view.py: roundPriceUp(total)")),
        assistant(call(32, "Bash", command="pytest tests/test_cart.py -k rounding && cat src/shop/cart_view.py")),
        user(result(32, "passed")),
        *filler(40, 42),
    ]
    return RecordedConversation("talk/shop", "hand", "shop", "anthropic", messages)


def long_messages():
    """The same with much filler after what the future needs: long enough to be cut in earnest."""
    messages = anthropic_talk().messages
    return [*messages[:5], *filler(100, 130), *messages[5:]]


def record(messages=None, **more):
    """A recorded conversation as the corpus keeps it."""
    return {
        "id": "hand/shop",
        "source": "hand",
        "schema": "anthropic",
        "messages": messages or long_messages(),
        "events": [],
        **more,
    }


def openai_talk():
    """The same in the other form, with a made-up compaction before the edit."""
    messages = [{"role": "system", "content": "You work in /repo/src with helper_tool."}]
    for message in anthropic_talk().messages:
        messages.extend(_as_openai(message))
    at = next(index for index, message in enumerate(messages) if "guard" in str(message.get("content")))
    summary = "The agent reads pricing_rules.py; roundPriceUp is to be fixed."
    return RecordedConversation("talk/openai", "hand", "shop", "openai", messages, (RecordedCompaction(at, summary),))


def other_talk():
    """A conversation of another project."""
    messages = [
        user(words("Which trains leave Lisbon?")),
        assistant(call(1, "Lookup", station="lisbon_oriente", train="IC-523")),
        user(result(1, "IC-523 leaves at 09:39 from platform_seven")),
        *filler(10, 30),
    ]
    return RecordedConversation("talk/trains", "hand", "trains", "anthropic", messages)


def filler(first, last):
    return [
        message
        for number in range(first, last)
        for message in (
            assistant(call(number, "Bash", command=f"sleep {number}")),
            user(result(number, FILLER)),
        )
    ]


def _as_openai(message):
    blocks = message["content"]
    texts = [block["text"] for block in blocks if block["type"] == "text"]
    calls = [block for block in blocks if block["type"] == "tool_use"]
    results = [block for block in blocks if block["type"] == "tool_result"]
    for block in results:
        yield {"role": "tool", "tool_call_id": block["tool_use_id"], "content": block["content"]}
    if texts or calls:
        plain = {"role": message["role"], "content": "\n".join(texts) or None}
        yield {**plain, "tool_calls": [_openai_call(block) for block in calls]} if calls else plain


def _openai_call(block):
    import json

    function = {"name": block["name"], "arguments": json.dumps(block["input"])}
    return {"id": block["id"], "type": "function", "function": function}
