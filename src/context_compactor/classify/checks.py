"""Runs of tests, linters and builds: which runner, over what, and whether a later run speaks for an earlier one."""

from __future__ import annotations

import re
from collections.abc import Iterable

from msgspec import Struct

from context_compactor.classify.outcomes import looks_only
from context_compactor.classify.shell import Step, split_steps

_KINDS = {
    "test": "test tests pytest tox nox jest vitest mocha rspec phpunit unittest verify ci e2e spec",
    "lint": "lint check typecheck vet clippy mypy pyright ruff eslint tsc golangci-lint biome staticcheck",
    "build": "build compile",
    "format": "fmt format prettier gofmt",
}
_KIND_OF = {word: kind for kind, words in _KINDS.items() for word in words.split()}
# Their first word that is no option says what they run.
_HOSTS = frozenset(
    "go npm pnpm yarn bun deno mise make just task cargo gradle gradlew mvn dotnet poe hatch rake bazel swift".split()
)
_INSTALLS = frozenset("install add i get ci require".split())
_FILTERS = frozenset("-run --run -k -t -test.run --grep --filter --test-name-pattern --testnamepattern --test".split())
_MODES = frozenset("-tags --tags --features --project --config --settings --env --workspace --profile --target".split())
_ALL = frozenset(("", ".", "./", "...", "./...", "--"))
_ALL_MODES = (":ci", ":all", ":full", " ci", " all")
_RUNS_TESTS = re.compile(r"(?:^|/)(?:run_?)?tests?(?:\.(?:sh|py|js|ts))?$|(?:^|/)run_?tests?\b")
# The value of an option that says how to run, not what: `-timeout 30s`, `-n 4`.
_VALUE = re.compile(r"\d+(?:ms|[smh])?")
_PYTHON = re.compile(r"python[\d.]*$")


class Check(Struct, frozen=True):
    """One run: `modes` change what is there to run, `paths` and `filters` name a part of it; none means all."""

    runner: str
    kind: str
    modes: frozenset[str] = frozenset()
    paths: frozenset[str] = frozenset()
    filters: frozenset[str] = frozenset()

    @property
    def is_whole(self) -> bool:
        """Whether it runs everything that its runner has."""
        return not self.paths and not self.filters and not self.modes


def checks_in(steps: Iterable[Step]) -> list[Check]:
    """The tests, linters and builds that a command line runs."""
    return [check for step in steps if (check := check_of(step))]


def is_check(command: str) -> bool:
    """Whether a command runs tests, a linter or a build: something that is run again however it ended."""
    return bool(checks_in(split_steps(command)))


def check_of(step: Step) -> Check | None:
    """What a step checks, if it does."""
    if not step.words or step.piped or looks_only((step,)):
        return None
    words = _without_python(step)
    at = _host_length(words)
    named, rest = words[:at], words[at:]
    kind = _kind(named)
    if not kind or any(word in _INSTALLS for word in (*named[1:2], *rest[:1])):
        return None
    modes, paths, filters = _sorted_words(rest)
    return Check(" ".join(named), kind, modes, paths, filters)


def _without_python(step: Step) -> tuple[str, ...]:
    words = (step.program, *step.words[1:])
    if _PYTHON.match(step.program) and len(words) > 1:
        return words[2:] if words[1] == "-m" and len(words) > 2 else words[1:]
    return words


def _host_length(words: tuple[str, ...]) -> int:
    """How many words name the runner: `pytest`, `go test`, `npm run lint`."""
    if words[0] not in _HOSTS:
        return 1
    at = next((at for at, word in enumerate(words[1:], 1) if not word.startswith("-")), len(words) - 1)
    return at + 2 if words[at] == "run" and at + 1 < len(words) else at + 1


def _kind(named: tuple[str, ...]) -> str:
    for word in reversed(named):
        kind = _KIND_OF.get(word.partition(":")[0].rpartition("/")[2])
        if kind:
            return kind
    return "test" if _RUNS_TESTS.search(named[-1]) else ""


def _sorted_words(words: tuple[str, ...]) -> tuple[frozenset[str], frozenset[str], frozenset[str]]:
    modes, paths, filters = set[str](), set[str](), set[str]()
    waiting: set[str] | None = None
    for word in words:
        option, has_value, value = word.partition("=")
        if waiting is not None:
            waiting.add(word)
            waiting = None
        elif option in _FILTERS or option in _MODES:
            group = filters if option in _FILTERS else modes
            if has_value:
                group.add(value)
            else:
                waiting = group
        elif not word.startswith("-") and word not in _ALL and not _VALUE.fullmatch(word):
            paths.add(word.removeprefix("./").removesuffix("/...").rstrip("/"))
    return frozenset(modes), frozenset(paths), frozenset(filters)


def speaks_for(later: Check, earlier: Check) -> bool:
    """Whether a later run runs all that an earlier one ran."""
    is_built = (later.kind, earlier.kind) == ("test", "build")
    is_part = later.kind == earlier.kind and not earlier.is_whole
    if later.is_whole and (is_built or is_part) and _has_modes(later, earlier.modes):
        return True
    if later.runner != earlier.runner or later.modes != earlier.modes:
        return False
    if not all(any(part in whole for whole in earlier.filters) for part in later.filters):
        return False
    return not later.paths or (bool(earlier.paths) and all(_is_below(path, later.paths) for path in earlier.paths))


def _has_modes(later: Check, modes: frozenset[str]) -> bool:
    """Whether a run of everything has what modes add: `test:integration` has, and `test:ci` has all there is."""
    return later.runner.endswith(_ALL_MODES) or all(mode in later.runner for mode in modes)


def _is_below(path: str, folders: frozenset[str]) -> bool:
    return any(path == folder or path.startswith((f"{folder}/", f"{folder}::")) for folder in folders)
