"""The same server on PostgreSQL: two of them are one, and sessions are written side by side."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from tests.cli.conftest import conversation
from tests.postgres import new_schema
from tests.server.running import running


def test_two_servers_on_one_database_are_one(tmp_path, postgres_url):
    with running(tmp_path, store=postgres_url) as one, running(tmp_path, store=postgres_url) as two:
        paths = [one.made() for _ in range(4)]

        def talk(at: int) -> None:
            server, path = (one, two)[at % 2], paths[at % 4]
            for number in range(5):
                body = {"messages": [{"role": "user", "content": f"{at} {number}"}]}
                assert server.post(f"{path}/messages", body, Idempotency_Key=f"{at}-{number}").status == 200
                assert server.post(f"{path}/messages", body, Idempotency_Key=f"{at}-{number}").status == 200

        with ThreadPoolExecutor(8) as threads:
            list(threads.map(talk, range(8)))
        for path in paths:
            found = [message["content"] for message in one.get(f"{path}/history").json["messages"]]
            assert found == [message["content"] for message in two.get(f"{path}/history").json["messages"]]
            assert len(found) == 10
        one.post(f"{paths[0]}/messages", {"messages": conversation()})
        assert one.post(f"{paths[0]}/compact", {"target_tokens": 9_000}).json["compacted"]
        assert two.get(f"{paths[0]}/context").json == one.get(f"{paths[0]}/context").json
        assert two.get("/v1/sessions").json["next"] is None
        assert [each["id"] for each in two.get("/v1/sessions").json["sessions"]] == sorted(
            path.rpartition("/")[2] for path in paths
        )


def test_where_the_store_is_stays_the_servers_business(tmp_path, postgres_url):
    with running(tmp_path, store=postgres_url) as server:
        path = server.made()
        server.post(f"{path}/messages", {"messages": conversation()})
        got = server.post(f"{path}/compact", {"target_tokens": 9_000})
        assert got.json["compacted"]
        assert b"postgresql:" not in got.raw + server.get(f"{path}/compactions").raw


def test_while_the_database_is_away_callers_are_told_when_to_come_again(tmp_path, own_postgres):
    with running(tmp_path, store=own_postgres.url(schema=new_schema())) as server:
        path = server.made()
        say = {"messages": [{"role": "user", "content": "before"}]}
        assert server.post(f"{path}/messages", say, Idempotency_Key="1").status == 200
        server.service.store._database._pool._busy_seconds = 0.2  # so that nobody waits for it
        own_postgres.stop("immediate")
        try:
            answers = [
                server.post(f"{path}/messages", say, Idempotency_Key="2"),
                server.post(f"{path}/messages", say),
                server.get(f"{path}/context"),
                server.get("/v1/sessions"),
                server.post("/v1/sessions", {"id": "other", "window": 8_000}),
                server.get("/metrics"),
            ]
            health, ready = server.get("/healthz"), server.get("/readyz")
        finally:
            own_postgres.start()
        assert [(got.status, got.headers["retry-after"], got.problem) for got in answers] == [(503, "1", "store")] * 6
        assert (health.status, ready.status, ready.problem) == (200, 503, "not-ready")
        assert b"postgresql" not in b"".join(got.raw for got in answers)
        server.service.store._database._pool._busy_seconds = 10.0
        assert server.post(f"{path}/messages", say, Idempotency_Key="2").status == 200
        assert server.get(f"{path}/history").json["total"] == 2
