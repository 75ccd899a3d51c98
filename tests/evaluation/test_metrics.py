"""The five numbers of every report: compression, retention, failed attempts, restoring, what must not be touched."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from msgspec import structs

from context_compactor import compact
from context_compactor.dialects.detection import find_dialect
from context_compactor.dialects.messages import ToolResult
from context_compactor.dialects.transcripts.reader import read_transcript, read_transcripts
from context_compactor.dialects.turns import split_turns
from context_compactor.engine.report import Metrics
from context_compactor.engine.result import failures_share, named_references
from context_compactor.evaluation.corpus import default_corpus
from context_compactor.facts.failures import find_failures
from tests.evaluation.talks import openai_talk
from tests.sessions.talk import messages as talk
from tests.sessions.talk import opened

ROOT = Path(__file__).parents[2]
SHIPPED = ROOT / "examples" / "demo_session.jsonl.gz"
RECALLABLE = (
    "of the references in the new context, the share whose original is in the archive, "
    "from this compaction or an earlier one of the session"
)
FAILING = (
    ("edit_file", {"path": "src/app.py", "old_string": "a = 1", "new_string": "a = 2"}, "Error: old_string not found"),
    ("search_docs", {"q": "how", "most": 3}, "Error: the service timed out after 3 seconds"),
    (
        "bash",
        {"command": 'echo "a" && pytest -q\n'},
        "Exit code 1\n\x1b[31mFAILED\x1b[0m tests/test_a.py - assert 1 == 2",
    ),
)


@pytest.fixture(scope="module")
def messages():
    return read_transcript(SHIPPED).messages


@pytest.mark.parametrize("target", [3_000, 1_500])
def test_a_compaction_fills_all_five(target):
    report = compact(openai_talk().messages, target_tokens=target).report
    metrics = report.metrics
    assert metrics.shrink_factor == pytest.approx(report.tokens_before / report.tokens_after)
    assert None not in (metrics.retained_share, metrics.failures_share, metrics.recallable_share, metrics.pins_share)


@pytest.mark.parametrize("target", [30_000, 12_000, 4_000])
def test_a_compaction_of_the_shipped_session_fills_what_it_can(messages, target):
    report = compact(messages, target_tokens=target).report
    metrics = report.metrics
    assert metrics.shrink_factor == pytest.approx(report.tokens_before / report.tokens_after)
    assert 0 < (metrics.retained_share or 0) <= 1
    assert 0 < (metrics.failures_share or 0) <= 1
    assert metrics.recallable_share == 1.0
    assert metrics.pins_share is None  # neither instructions nor an unanswered question in it


def test_nothing_done_measures_nothing(messages):
    assert compact(messages, target_tokens=10_000_000).report.metrics == Metrics()


def test_the_docs_name_each_of_them():
    page = (ROOT / "docs" / "reference" / "report.md").read_text()
    assert all(f"`{name}`" in page for name in Metrics.__struct_fields__)


@pytest.mark.parametrize("page", ["reference/report.md", "operations/README.md", "operations/alerts.yml"])
def test_the_docs_the_alert_and_the_dashboard_define_what_is_recallable_alike(page):
    for path in (page, "operations/grafana.json"):
        assert RECALLABLE in (ROOT / "docs" / path).read_text()


def _compacted_in_a_row(session, times=6):
    for number in range(times):
        session.append(talk(number * 80, number * 80 + 80))
        yield session.compact(target_tokens=1_500 + 300 * number)


def test_while_every_original_is_archived_all_is_recallable_after_each_of_many_compactions(tmp_path):
    with opened(tmp_path, window=60_000, automatic=False) as session:
        reports = list(_compacted_in_a_row(session))
    assert [report.status for report in reports] == ["success"] * 6
    assert [report.metrics.recallable_share for report in reports] == [1.0] * 6


def test_an_original_that_is_gone_from_the_store_lowers_what_is_recallable(tmp_path):
    with opened(tmp_path, window=60_000, automatic=False) as session:
        *_, before = _compacted_in_a_row(session, 2)
        with closing(sqlite3.connect(tmp_path / "sessions.db")) as connection, connection:
            connection.execute("DELETE FROM contents WHERE number IN (SELECT content FROM originals LIMIT 20)")
        session.append(talk(160, 240))
        after = session.compact(target_tokens=2_100)
    assert before.metrics.recallable_share == 1.0
    assert after.metrics.recallable_share < 1.0


def test_without_an_archive_of_before_only_new_references_are_looked_for():
    first = compact(talk(0, 80), target_tokens=1_500)
    second = compact([*first.messages, *talk(80, 160)], target_tokens=1_800)
    assert second.report.metrics.recallable_share == 1.0


CHAIN = (1_500, 1_800, 2_100, 2_400, 2_700)


def _chained(told, **options):
    """The reports of a chain of compactions, each with the references that none of the results can recall."""
    messages, archived = [], set()
    for target, more in zip(CHAIN, told, strict=True):
        result = compact([*messages, *more], target_tokens=target, **options)
        messages = result.messages
        archived |= {original.id for original in result.archive}
        yield result.report, named_references(find_dialect("auto", messages).parse(messages)) - archived


@pytest.mark.parametrize("way", ["library", "store"])
def test_over_a_chain_without_a_session_all_is_recallable_as_long_as_the_caller_has_the_results(way, tmp_path):
    options = {"store": f"sqlite:///{tmp_path / 'originals.db'}"} if way == "store" else {}
    found = [talk(number * 80, number * 80 + 80) for number in range(len(CHAIN))]
    for report, unknown in _chained(found, **options):
        assert report.status == "success"
        assert report.metrics.recallable_share == 1.0
        assert unknown == set()


QUOTED = [
    {"role": "user", "content": "The docs say: " + ", ".join(f'recall("tool_{number}")' for number in range(500, 540))},
    {"role": "assistant", "content": "Noted: " + ", ".join(f"file_{number}" for number in range(500, 540))},
]


def test_ids_that_the_conversation_quotes_are_no_references_of_ours(tmp_path):
    found = [[*QUOTED, *talk(0, 80)], *(talk(number * 80, number * 80 + 80) for number in range(1, len(CHAIN)))]
    assert [report.metrics.recallable_share for report, _ in _chained(found)] == [1.0] * len(CHAIN)
    with opened(tmp_path, window=60_000, automatic=False) as session:
        session.append(QUOTED)
        reports = list(_compacted_in_a_row(session, len(CHAIN)))
    assert [report.metrics.recallable_share for report in reports] == [1.0] * len(CHAIN)


def test_a_session_that_goes_on_with_a_record_made_elsewhere_answers_for_its_own_references(tmp_path):
    first = compact(talk(0, 80), target_tokens=1_500)
    with opened(tmp_path, window=60_000, automatic=False) as session:
        session.append(first.messages)
        reports = []
        for number in range(1, 5):
            session.append(talk(number * 80, number * 80 + 80))
            reports.append(session.compact(target_tokens=1_800 + 300 * number))
    assert [report.metrics.recallable_share for report in reports] == [1.0] * 4


def test_an_original_that_is_gone_counts_although_the_conversation_names_it(tmp_path):
    with opened(tmp_path, window=60_000, automatic=False) as session:
        *_, before = _compacted_in_a_row(session, 2)
        lost = [archived.id for archived in before.archived]
        session.append({"role": "user", "content": f"What was in {', '.join(lost)}?"})
        with closing(sqlite3.connect(tmp_path / "sessions.db")) as connection, connection:
            connection.execute("DELETE FROM contents WHERE number IN (SELECT content FROM originals)")
        session.append(talk(161, 240))
        after = session.compact(target_tokens=2_100)
    assert after.metrics.recallable_share < 1.0


@pytest.mark.slow
@pytest.mark.skipif(not default_corpus().exists(), reason="the corpus is not here")
@pytest.mark.parametrize("name", ["claude_code_entireio", "codex_agentv", "mini_swe_deepseek_chat"])
def test_over_a_chain_of_a_real_conversation_all_is_recallable_in_every_use(name, tmp_path):
    transcripts = sorted(read_transcripts(default_corpus() / f"{name}.jsonl.gz"), key=lambda each: -len(each.messages))
    for at, transcript in enumerate(transcripts[1:3]):
        step = min(len(transcript.messages), 300) // len(CHAIN)
        written = [transcript.messages[number * step : (number + 1) * step] for number in range(len(CHAIN))]
        for options in ({}, {"store": f"sqlite:///{tmp_path / f'originals_{at}.db'}"}):
            shares = {report.metrics.recallable_share for report, _ in _chained(written, **options)}
            assert shares <= {1.0, None}
        with opened(tmp_path, f"run-{at}", window=200_000, automatic=False, dialect=transcript.dialect) as session:
            for target, more in zip(CHAIN, written, strict=True):
                session.append(more)
                assert session.compact(target_tokens=target).metrics.recallable_share in (1.0, None)


def _failing(parameters):
    for number, (name, arguments, error) in enumerate(parameters):
        function = {"name": name, "arguments": json.dumps(arguments)}
        call = {"id": f"failing{number}", "type": "function", "function": function}
        yield {"role": "assistant", "content": None, "tool_calls": [call]}
        yield {"role": "tool", "tool_call_id": f"failing{number}", "content": error}


@pytest.mark.parametrize("failing", FAILING, ids=lambda failing: failing[0])
def test_a_failure_whose_call_and_error_stand_in_the_context_as_they_were_is_kept(failing):
    said = [*talk(0, 81), *_failing([failing]), {"role": "assistant", "content": "It failed."}]
    result = compact(said, target_tokens=1_500)
    assert all(message in result.messages for message in _failing([failing]))
    assert result.report.metrics.failures_share == 1.0


def test_a_failure_that_cannot_be_read_in_the_context_is_not_kept():
    dialect = find_dialect("openai-chat", ())
    said = dialect.parse(list(_failing(FAILING)))
    turns = split_turns(said)
    failures = find_failures(turns)
    assert len(failures) == 3
    assert failures_share(failures, turns, said) == 1.0
    assert failures_share(failures, turns, said[:4]) == pytest.approx(2 / 3)
    assert failures_share(failures, turns, []) == 0.0
    cut = [structs.replace(part, text="[shortened]", content=None) for part in said[1].parts]
    assert all(isinstance(part, ToolResult) for part in cut)
    assert failures_share(failures, turns, [said[0], structs.replace(said[1], parts=tuple(cut))]) == 0.0
