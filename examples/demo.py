"""A tour through one compaction: a real coding session that no longer fits well into its window."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from context_compactor import Compaction, Settings
from context_compactor.cli.conversation import TranscriptInput, budget_of, conversation_of, measure_conversation
from context_compactor.cli.output import LineOutput, stdout
from context_compactor.cli.report import biggest, print_plan, print_report
from context_compactor.cli.show import print_sections
from context_compactor.dialects.messages import Text, ToolResult
from context_compactor.dialects.transcripts.reader import read_transcript
from context_compactor.dialects.transcripts.transcript import Transcript
from context_compactor.dialects.turns import split_turns
from context_compactor.text import one_line

SESSION = Path(__file__).with_name("demo_session.jsonl.gz")
WINDOW = 90_000
WIDTH = 110


def tour(out: LineOutput) -> None:
    """Measure, compact, look at what came out, and read one original back."""
    result, after = show_compaction(out)
    _title(out, "How the model reads it")
    _show_beginning(after, out)
    _title(out, "Nothing is lost: one reference, and the original behind it")
    _show_recall(after, result, out)
    _title(out, "Try next")
    _show_commands(out)


def show_compaction(out: LineOutput) -> tuple[Compaction, TranscriptInput]:
    """The first half: what there was, what was decided, what happened, what there is now."""
    # The log also has the provider's counts; the tour shows our own counts, before and after.
    transcript = msgspec.structs.replace(read_transcript(SESSION), usages={})
    before = _open(transcript)
    result = before.compacted()
    after = _open(msgspec.structs.replace(transcript, messages=result.messages))
    _title(out, f"A real coding session of {len(before.messages)} messages, in a window of {WINDOW:,} tokens")
    _show_usage(before, out)
    _title(out, "What was decided: the choices that save most, and why")
    print_plan(biggest(result.decisions), out, most=6)
    _title(out, "What happened")
    print_report(result.report, out)
    _title(out, f"The context after it, {len(after.messages)} messages")
    _show_usage(after, out)
    return result, after


def _open(transcript: Transcript) -> TranscriptInput:
    return conversation_of(transcript, Settings(window=WINDOW))


def _show_usage(conversation: TranscriptInput, out: LineOutput) -> None:
    usage = measure_conversation(conversation, split_turns(conversation.messages), budget_of(conversation))
    print_sections(usage.sections, usage.budget_tokens, out)


def _show_beginning(conversation: TranscriptInput, out: LineOutput) -> None:
    """The beginning of the record, and of its story."""
    lines = list(_lines(conversation))
    story = next(at for at, line in enumerate(lines) if line.startswith("## What happened"))
    for line in lines[:14]:
        out.print(one_line(line, WIDTH), style="dim")
    out.print("…")
    for line in lines[story : story + 16]:
        out.print(one_line(line, WIDTH), style="dim")
    out.print(f"… and {len(lines) - 30:,} more lines")


def _show_recall(conversation: TranscriptInput, result: Compaction, out: LineOutput) -> None:
    line, ref = next(_references(conversation, result))
    original = result.recall(ref)
    out.print(one_line(line, WIDTH) if line.find(ref) < WIDTH else f"… {line[line.find(ref) - 90 :]}")
    out.print(f'>>> result.recall("{ref}")    # {len(original):,} characters, byte for byte', style="bold")
    for line in original.splitlines()[:6]:
        out.print(one_line(line, WIDTH), style="dim")
    out.print("…")


def _references(conversation: TranscriptInput, result: Compaction) -> Iterator[tuple[str, str]]:
    """Lines that name the original of a file, with the name."""
    archived = {item.id for item in result.report.archived}
    for line in _lines(conversation):
        found = re.search(r"\bfile_\d{3,}\b", line)
        if found and found[0] in archived:
            yield line, found[0]


def _lines(conversation: TranscriptInput) -> Iterator[str]:
    for message in conversation.messages:
        for part in message.parts:
            if isinstance(part, Text | ToolResult):
                yield from part.text.splitlines()


def _show_commands(out: LineOutput) -> None:
    for command in (
        "compactor show examples/demo_session.jsonl.gz --window 200k",
        "compactor plan examples/demo_session.jsonl.gz --target 25% --most 20",
        "compactor compact examples/demo_session.jsonl.gz --target 10% -o smaller.json",
        "compactor compact examples/demo_session.jsonl.gz --target 25% --session demo",
    ):
        out.print(f"  .venv/bin/{command}")


def _title(out: LineOutput, text: str) -> None:
    out.print()
    out.print(text, style="bold")
    out.print("─" * len(text), style="dim")


if __name__ == "__main__":
    tour(stdout())
