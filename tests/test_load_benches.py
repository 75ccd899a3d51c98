"""The benches of the server run, with sizes that take a moment; what is wrong they say, whatever the clock says."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tools.bench import events as bench_events
from tools.bench import held as bench_held
from tools.bench import load as bench_load
from tools.bench import neighbour as bench_neighbour
from tools.bench.calling import Caller, Wrong, append, create, turns
from tools.bench.crossing import cross
from tools.bench.pressure_load import WINDOW, PressureLoad
from tools.bench.serving import Program, new_store, serving, working
from tools.bench.soak import Memory, soak

pytestmark = pytest.mark.slow

MINUTE = 60


class Lines(list[tuple[str, float, float]]):
    """What was measured."""

    def __call__(self, what: str, value: float, limit: float) -> None:
        assert value > 0
        self.append((what, value, limit))


@pytest.fixture(scope="module")
def server() -> Iterator[Program]:
    """One for all, since it takes longer to start than to measure."""
    with new_store() as store, serving(store) as program:
        yield program


def test_sessions_that_are_held_are_measured_and_counted(server: Program):
    lines = Lines()
    bench_held.bench(lines, server, few=4, many=12, looks=3)
    assert len(lines) == 4


def test_every_session_that_reaches_a_level_is_seen_to_be_compacted(server: Program):
    crossed = cross(server, "inside", 3)
    assert crossed.ratio > 0


def test_every_reader_is_seen_to_be_told_everything(server: Program):
    lines = Lines()
    bench_events.bench(lines, server, readers=5, events=10)
    assert len(lines) == 1


def test_appends_beside_a_large_result_are_measured_wherever_it_comes_from():
    lines = Lines()
    bench_neighbour.bench(lines, size=100_000, alone=3)
    assert len(lines) == 4


def test_workers_on_postgresql_are_measured(postgres_url: str):
    lines = Lines()
    bench_load.on_postgres(lines, postgres_url, sessions=2, workers=(2,), requests=32)
    assert len(lines) == 1


@pytest.mark.parametrize("with_usage", [False, True])
def test_under_pressure_no_compaction_begins_below_its_level_and_none_follows_another(
    server: Program, with_usage: bool
):
    load = PressureLoad(server.port, f"pressed-{with_usage}", with_usage=with_usage)
    asyncio.run(load.run(sessions=3, turns=60))
    assert load.done["compactions"] >= 9
    assert server.complaints() == []


def test_under_pressure_the_same_holds_on_postgresql_with_workers_beside_the_server(postgres_url: str):
    with serving(postgres_url) as server, working(postgres_url, 1):
        load = PressureLoad(server.port)
        asyncio.run(load.run(sessions=3, turns=40))
        assert load.done["compactions"] >= 6
        assert server.complaints() == []


def test_a_compaction_below_its_level_is_told_as_wrong(server: Program):
    async def compact_early() -> None:
        async with Caller(server.port) as caller:
            await create(caller, "early", WINDOW)
            await append(caller, "early", turns("early", 0, 20))
            await caller.post("/v1/sessions/early/compact", {"level": "emergency"})
            await PressureLoad(server.port).check(caller, "early", 80)

    with pytest.raises(Wrong, match="a compaction at level emergency of"):
        asyncio.run(compact_early())


def test_a_soak_looks_at_the_memory_of_a_server_that_loses_nothing(server: Program):
    memory = asyncio.run(soak(server, minutes=1 / MINUTE, lives=1, agents=2))
    assert server.complaints() == []
    assert len(memory.looks) > 3
    assert memory.at(0) > 10


def test_memory_that_grows_is_called_so_and_memory_that_swings_is_not():
    growing = Memory([(at, 100_000_000 + at * 20_000) for at in range(10 * MINUTE)])
    swinging = Memory([(at, 100_000_000 + at % 60 * 500_000) for at in range(10 * MINUTE)])
    assert not growing.is_flat
    assert round(growing.slope) == 72
    assert swinging.is_flat
    assert "GROWING" in "\n".join(growing.lines())


def test_something_lost_ends_a_bench_with_1(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    def lose(line: object) -> None:
        raise Wrong("a message is missing")

    monkeypatch.setitem(bench_load.PARTS, "held", lose)
    assert bench_load.bench(Lines(), ["held"]) == 1
    assert "WRONG: a message is missing" in capsys.readouterr().out
