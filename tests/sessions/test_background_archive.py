"""In quiet time what a compaction will fold is archived and indexed already; what the model sees does not change."""

from __future__ import annotations

import pytest

from context_compactor.sessions.archive import archive_early
from tests.engine.talks import DIALECT_NAMES, bash, talk_in
from tests.failures.scenarios import fill
from tests.sessions.talk import opened

every_dialect = pytest.mark.parametrize("dialect", DIALECT_NAMES)


def half_full(dialect: str):
    return fill(talk_in(dialect).user("Find the folder that matters."), 30).user("And now?").messages


def refs(session) -> set[str]:
    return {each.ref for each in session._core.store.originals(session.id)}


@every_dialect
def test_a_compaction_that_is_near_finds_everything_archived(dialect, tmp_path):
    with opened(tmp_path, dialect=dialect, window=24_000) as session:
        session.append(half_full(dialect))
        assert not session.totals().compactions
        before = session.context()
        session.prepare()
        known = refs(session)
        assert known
        assert session.context() == before
        assert not session._core.store.unindexed(session.id)
        report = session.compact(target_tokens=3_000)
        assert {each.id for each in report.archived} <= known
        assert all(session.recall(each.id) for each in report.archived)


def test_what_is_archived_ahead_is_what_a_compaction_archives(tmp_path):
    texts = []
    for ahead in (True, False):
        with opened(tmp_path, f"run {ahead}", window=24_000) as session:
            session.append(half_full("openai-chat"))
            if ahead:
                session.prepare()
            report = session.compact(target_tokens=3_000)
            texts.append({each.id: session.recall(each.id) for each in report.archived})
    assert texts[0] == texts[1]


def test_a_turn_that_may_still_grow_is_not_archived_ahead(tmp_path):
    with opened(tmp_path, window=24_000) as session:
        talk = fill(talk_in("openai-chat").user("Find the folder that matters."), 30)
        session.append(talk.step(bash("make watch", None), text="Watching.").messages)
        last = session._core.parse_context().content.turns[-1]
        assert archive_early(session._core)
        assert f"turn_{last.number:03d}" not in refs(session)


@pytest.mark.parametrize("settings", [{"automatic": False}, {"enabled": False}, {"window": 2_000_000}])
def test_nothing_is_archived_for_a_compaction_that_is_not_near(settings, tmp_path):
    with opened(tmp_path, **{"window": 20_000, **settings}) as session:
        session.append(half_full("openai-chat"))
        assert archive_early(session._core) == 0
