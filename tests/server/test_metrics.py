"""What operators watch: every number is there, cheap to ask for, and what the shipped dashboard shows exists."""

from __future__ import annotations

import json
import logging
import re
import socket
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from context_compactor.server import metrics as metrics_module
from context_compactor.server.tokens import add_token
from context_compactor.store import statistics as survey_module
from context_compactor.store.statistics import SessionStatistics
from tests.cli.conftest import conversation
from tests.server.filling import Talk
from tests.server.running import running
from tests.server.streams import event, following
from tests.waiting import wait_for

ROOT = Path(__file__).parent.parent.parent
GRAFANA = ROOT / "docs/operations/grafana.json"
_NAME = re.compile(r"\b(?:compactor|process)_[a-z_]+\b")


@pytest.fixture(autouse=True)
def _always_fresh(monkeypatch):
    monkeypatch.setattr(metrics_module, "_CACHE_SECONDS", 0.0)
    monkeypatch.setattr(survey_module, "_FRESH_SECONDS", 0.0)


def numbers(server, **headers) -> dict[tuple[str, ...], float]:
    """Every sample by its name and the values of its labels, which are in the order of their names."""
    got = server.get("/metrics", **headers)
    assert got.status == 200, got.raw
    assert got.headers["content-type"].startswith("text/plain")
    families = text_string_to_metric_families(got.raw.decode())
    return {(each.name, *each.labels.values()): each.value for family in families for each in family.samples}


def until(server, *name: str) -> dict[tuple[str, ...], float]:
    """The numbers, as soon as there is one of this name."""
    found: dict[tuple[str, ...], float] = {}

    def is_there() -> object:
        found.update(numbers(server))
        return found.get(name)

    wait_for(is_there, lambda: found, pause=0.05)
    return found


def test_a_compaction_is_counted_with_all_that_is_known_of_it(server):
    path = server.made("run", window=60_000)
    server.post(f"{path}/messages", {"messages": conversation()})
    report = server.post(f"{path}/compact", {"target_tokens": 9_000}).json["report"]
    found = until(server, "compactor_compactions_total", "none", report["status"])
    assert found["compactor_tokens_saved_total",] == report["tokens_saved"]
    assert found["compactor_messages_removed_total",] == report["messages_removed"]
    assert found["compactor_compaction_ratio_count",] == 1
    ratio = report["tokens_after"] / report["tokens_before"]
    assert found["compactor_compaction_ratio_sum",] == pytest.approx(ratio, abs=1e-6)
    assert found["compactor_fidelity_share_sum", "retained"] == pytest.approx(report["metrics"]["retained_share"])
    assert found["compactor_compaction_seconds_count",] == 1
    assert found["compactor_events_total", "session.compacted"] == 1
    assert found["compactor_sessions", "none"] == 1
    assert found["compactor_context_tokens",] > 0


def test_sessions_are_counted_by_level_and_jobs_by_state(server):
    Talk(server, "soft", wait_for_boundary=False).fill(0.83)
    Talk(server, "aggressive", idle_seconds=60).fill(0.88)
    server.made("empty")
    found = numbers(server)
    levels = {level: found["compactor_sessions", level] for level in ("none", "soft", "aggressive", "emergency")}
    assert levels == {"none": 1, "soft": 1, "aggressive": 1, "emergency": 0}
    waiting = {name: value for name, value in found.items() if name[0] == "compactor_jobs"}
    assert waiting["compactor_jobs", "compact", "waiting"] == 2
    assert waiting["compactor_jobs", "idle", "waiting"] == 1


def test_what_models_cost_is_counted(server):
    calls = [{"model": "openai/small", "tokens_shown": 900, "tokens_written": 100, "attempts": 1, "cost": 0.25}] * 2
    compacted = {"tokens_before": 10, "tokens_after": 5, "status": "success", "level": "soft", "model_calls": calls}
    server.service.bus.emit(event("session.compacted", **compacted))
    found = until(server, "compactor_model_calls_total", "openai/small")
    assert found["compactor_model_cost_dollars_total", "openai/small"] == 0.5
    assert found["compactor_model_tokens_total", "shown", "openai/small"] == 1_800
    assert found["compactor_compactions_total", "soft", "success"] == 1


def test_jobs_that_go_wrong_are_counted(server):
    for kind in ("job.queued", "job.retried", "job.retried", "job.dropped", "compaction.failed", "compaction.refused"):
        server.service.bus.emit(event(kind, what="compact", level="aggressive"))
    found = until(server, "compactor_compactions_total", "aggressive", "refused")
    assert found["compactor_jobs_queued_total", "compact"] == 1
    assert found["compactor_job_attempts_ended_total", "retried", "compact"] == 2
    assert found["compactor_job_attempts_ended_total", "dropped", "compact"] == 1
    assert found["compactor_compactions_total", "aggressive", "failed"] == 1


def test_what_others_do_to_the_store_is_seen_by_each_server(tmp_path):
    with running(tmp_path) as one, running(tmp_path) as two:
        one.service.bus.emit(event("threshold.crossed", level="soft"))
        for server in (one, two):
            assert until(server, "compactor_thresholds_crossed_total", "soft")


def test_requests_are_timed_by_route_and_status_and_readers_are_counted(server):
    server.get("/v1/sessions/nobody")
    server.get("/v1/sessions")
    with following(server):
        found = numbers(server)
        assert found["compactor_event_readers",] == 1
    assert found["compactor_http_request_seconds_count", "GET", "/v1/sessions/{id}", "404"] == 1
    assert found["compactor_http_request_seconds_count", "GET", "/v1/sessions", "200"] == 1
    assert not any("nobody" in label for name in found for label in name)


def test_what_is_too_large_and_who_went_away_are_no_failures_of_the_server(tmp_path, caplog):
    head = "POST /v1/sessions/run/messages HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    counted = ("compactor_http_request_seconds_count", "POST", "/v1/sessions/{id}/messages")
    with running(tmp_path, max_body_bytes=2_000) as server, caplog.at_level(logging.WARNING):
        path = server.made("run")
        assert server.post(f"{path}/messages", b" " * 3_000).status == 413
        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            connection.sendall(f"{head}Content-Length: 1000\r\n\r\n".encode() + b'{"mess')
        found = until(server, *counted, "499")
        assert found[*counted, "413"] == 1
        assert (*counted, "500") not in found
    assert "Traceback" not in caplog.text
    assert not [record for record in caplog.records if record.exc_info]


def test_names_that_callers_choose_cannot_make_series_without_end(server):
    for number in range(100):
        call = {"model": f"model-{number}", "tokens_shown": 1, "tokens_written": 1}
        server.service.bus.emit(event("session.compacted", tokens_before=2, tokens_after=1, model_calls=[call]))
    found = until(server, "compactor_model_calls_total", "other")
    assert sum(name[0] == "compactor_model_calls_total" for name in found) <= 41


def test_an_event_of_another_version_is_counted_as_far_as_it_is_known(server):
    server.service.bus.emit(event("session.compacted", level=7, metrics=[1], model_calls=[{}], tokens_before="many"))
    server.service.bus.emit(event("job.queued", what="compact"))
    assert (
        until(server, "compactor_jobs_queued_total", "compact")["compactor_compactions_total", "none", "success"] == 1
    )


def test_with_tokens_a_token_that_may_read_is_needed_unless_metrics_are_public(tmp_path):
    tokens = tmp_path / "tokens"
    token = add_token(tokens, "wall", "team", read_only=True)
    with running(tmp_path, token_file=tokens) as server:
        assert server.get("/metrics").status == 401
        assert ("compactor_sessions", "none") in numbers(server, Authorization=f"Bearer {token}")
    with running(tmp_path, token_file=tokens, public_metrics=True) as server:
        assert ("compactor_sessions", "none") in numbers(server)
        assert server.get("/v1/sessions").status == 401
        assert server.get("/v1/events").status == 401


def test_a_look_reads_only_the_sessions_that_have_changed(server, monkeypatch):
    paths = [server.made(f"run-{at}") for at in range(30)]
    survey = SessionStatistics(server.service.store)
    assert sum(survey.read().levels.values()) == 30
    read: list[int] = []
    count = survey._count
    survey._count = lambda number, state: (read.append(number), count(number, state))[1]
    monkeypatch.setattr(survey_module, "_CLOCKS_DIFFER", 0)  # as if all had been quiet for a while
    before = survey.read().tokens
    read.clear()
    server.post(f"{paths[3]}/messages", {"messages": [{"role": "user", "content": "Hello there"}]})
    after = survey.read()
    assert 4 in read
    assert len(read) <= 2  # the last one of the look before is looked at again
    assert after.tokens > before
    assert sum(after.levels.values()) == 30


def test_a_look_finds_everything_however_many_changed_in_the_same_moment(server, monkeypatch):
    monkeypatch.setattr(survey_module, "_AT_ONCE", 7)
    store = server.service.store
    for at in range(40):
        store.open_session(f"same-{at}", b"{}", "2026-01-01T00:00:00.000+00:00")
    survey = SessionStatistics(store)
    assert sum(survey.read().levels.values()) == 40
    assert sum(survey.read().levels.values()) == 40


def test_every_metric_of_the_shipped_dashboard_is_exported(server):
    path = server.made("run")
    server.post(f"{path}/messages", {"messages": conversation()})
    call = {"model": "openai/small", "tokens_shown": 1, "tokens_written": 1, "cost": 0.1}
    shares = {"retained_share": 1.0}
    compacted = {"tokens_before": 2, "tokens_after": 1, "model_calls": [call], "metrics": shares}
    for kind in ("job.queued", "job.retried", "threshold.crossed"):
        server.service.bus.emit(event(kind, level="soft", what="compact"))
    server.service.bus.emit(event("session.compacted", **compacted))
    until(server, "compactor_compactions_total", "none", "success")
    exported = {name[0] for name in numbers(server)}
    shown = {name for text in _expressions(json.loads(GRAFANA.read_text())) for name in _NAME.findall(text)}
    assert len(shown) >= 15
    assert shown <= exported, sorted(shown - exported)


def test_every_panel_of_the_shipped_dashboard_has_a_title_a_place_and_a_query():
    panels = json.loads(GRAFANA.read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    for panel in panels:
        assert panel["title"]
        assert panel["gridPos"].keys() == {"h", "w", "x", "y"}
        assert panel["type"] == "row" or all(target["expr"] for target in panel["targets"])


def _expressions(value) -> list[str]:
    if isinstance(value, dict):
        own = [value["expr"]] if "expr" in value else []
        return own + [text for inner in value.values() for text in _expressions(inner)]
    return [text for inner in value for text in _expressions(inner)] if isinstance(value, list) else []
