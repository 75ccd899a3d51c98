"""What of a session is worth knowing in the next one: lasting rules, architectural decisions, errors that come back.

A lesson is read in every session to come, so it must be right more than the list must be complete. A decision counts
only when its own sentence says what was chosen, and that is something the project is built on; that of an agent must
say why, or instead of what, as well. Repairs, errands and "option 1" are left to the session they belong to.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from context_compactor.classify.outcomes import is_refusal, looks_only
from context_compactor.classify.resolutions import GIVEN_UP, RESOLVED
from context_compactor.classify.shell import split_steps
from context_compactor.facts import cues
from context_compactor.facts.fact import Fact
from context_compactor.facts.lasting import is_slip, lasting_rules
from context_compactor.facts.learned import add_lessons
from context_compactor.facts.lesson import Lesson, LessonKind, error_text, one_line
from context_compactor.facts.owners import make_owner_folder
from context_compactor.facts.patterns import error_pattern, is_bare

_ENOUGH = 3
_FEWEST_SESSIONS = 2
# What a project is built of, and the names of what it may be built with. Plurals are found as well.
_SUBJECTS = frozenset(
    "adapter adr api architecture archive async asynchronous asyncio atomic auth authentication authorization "
    "backend backward backwards broker bundler bus cache caching checksum client codec column compatibility "
    "compatible composition concurrency config configuration container contract convention cookie cors credential "
    "cron csrf daemon database db dependency deployment deprecate dialect driver dsl encoding encryption endpoint "
    "enum envelope event facade flag format framework frontend gateway hash hashing hexagonal hook idempotency "
    "idempotent immutable inheritance interface isolation language layer layout library license linter locale lock "
    "lockfile locking logging microservice middleware migration module monolith monorepo mutex mvc "
    "namespace naming normalization observability offline orm outbox pagination parser partition password "
    "permission persistence pipeline platform plugin polling pool pooling postcss protocol provider proxy pubsub "
    "queue ratelimit registry replication repository retention retry router routing rpc runtime sandbox scheduler "
    "schema sdk secret security semver serialization server serverless service session sharding signature singleton "
    "snapshot socket sse ssr stack storage store stream streaming struct subprocess subscription sync synchronous "
    "table telemetry template tenant thread timezone tls toolchain transaction transport typing url uuid validation "
    "versioning wal webhook websocket wire worker workflow".split()
)
_TECHNOLOGIES = frozenset(
    "actix alembic angular ansible argon2 asyncpg aws axum azure babel bazel bcrypt brotli bun capnproto "
    "cassandra celery clickhouse cloudflare cockroachdb css cypress deno django docker drizzle duckdb dynamodb "
    "elasticsearch electron elixir esbuild eslint etcd fastapi fastify firebase firestore flask flatbuffers "
    "flutter gcp golang gradle grafana graphql grpc gunicorn hasura html htmx httponly httpx java javascript jest "
    "json json5 jsonb jsonl jwt k8s kafka keycloak kotlin kubernetes laravel leveldb libsql litellm litestar lmdb "
    "mariadb maven mcp memcached minio mongo mongodb mqtt msgpack msgspec mypy mysql nats neo4j nestjs netlify "
    "nginx nodejs nosql npm numpy nuxt oauth oauth2 oidc openapi opentelemetry otel pandas parquet passkey pip "
    "playwright pnpm poetry polars postgres postgresql prettier prisma prometheus protobuf pulsar pulumi pydantic "
    "pyproject pyright pytest python pytorch quic rabbitmq rails react redis redux rocksdb ruby ruff rust s3 saml "
    "sass scala sha256 sql sqlalchemy sqlite sqlx starlette supabase svelte svg swr tailwind tantivy tauri tcp "
    "tensorflow terraform tokio toml torch traefik trpc turborepo typeorm typer typescript udp ulid uvicorn "
    "valkey vercel vite vitest vue vuex wasm webassembly webgl webpack webrtc websockets xml yaml yarn zig zod "
    "zookeeper zstd zustand".split()
)
_SUBJECT_PHRASES = (
    " access control ", " source of truth ", " design pattern ", " error codes ", " event sourcing ", " feature flag ",
    " foreign key ", " main thread ", " message queue ", " data model ", " dead letter ", " public api ",
    " rate limit ", " separation of ", " single responsibility ", " state machine ", " type system ",
    " unique constraint ", " at least once ", " exactly once ", " local first ", " multi tenant ",
)  # fmt: skip
# The project's own word counts twice, a word of one's own once.
_SETTLED = (
    " we decided ", " we have decided ", " we've decided ", " we opted ", " we've opted ", " we chose ",
    " we've chosen ", " we settled on ", " we've settled on ", " the decision is ", " the decision was ",
    " haben uns entschieden ", " haben beschlossen ", " nous avons décidé ", " hemos decidido ", " decidimos ",
    " решили ",
)  # fmt: skip
_CHOSEN = (
    " decided ", " opted for ", " opted to ", " opting for ", " settled on ", " i chose ", " chose to ", " went with ",
    " going with ", " go with ", " let's use ", " we'll use ", " we will use ", " ruled out ", " we rejected ",
    " i rejected ", " considered ", " in favor of ", " in favour of ",
)  # fmt: skip
_OVER = (
    " instead of ", " rather than ", " in favor of ", " in favour of ", " as opposed to ", " over ", " because ",
    " so that ", " to avoid ", " not worth ", " since ", " due to ", " in order to ", " against ", " statt ", " weil ",
    " damit ", " au lieu de ", " parce que ", " en lugar de ", " porque ", " вместо ", " потому что ",
)  # fmt: skip
_UNSPACED_OVER = ("而不是", "因为", "以便", "代わりに", "ではなく", "ため", "대신", "때문")
# A suggestion, a choice among options that the sentence does not name, somebody else's words, the next thing to do.
_OPEN = (
    " i'd ", " i would ", " we could ", " would be ", " recommend ", " recommendation ", " suggests ", " says ",
    " said ", " option ", " approach is ", " the approach ", " alternative ", " either ", " should be ", " wondering ",
    " unless ", " for now ", " temporarily ", " trade off ", " tradeoff ", " the user ", " deprecated in favor ",
    " how we ", " the way we ", " i'll add ", " i'll update ", " i'll create ", " i'll skip ", " i'll run ",
    " i'm going to ", " was rejected ", " were rejected ", " are rejected ", " for instance ", " for example ",
)  # fmt: skip
_REPAIRS = (" fix ", " fixes ", " fixed ", " bug ", " root cause ", " issue ", " workaround ", " failing ", " fails ")
# The errands of one session.
_ERRANDS = frozenset(
    "argument assertion awk bead branch changelog check checkout cherry command comment commit condition diff doc "
    "docs edit epic error exception file files first fixture flight grep helper heredoc import issue line lines "
    "loop merge method mock nolint note option pane parameter patch plan pr prompt push readme rebase refactor "
    "rename rerun review reviewer rg script second sed skill snippet stash step task test testing tests ticket "
    "todo typo variable worker worktree".split()
)
# Edits and calls that were written wrongly: the next session does not learn from them.
_SLIPS = re.compile(
    r"string to replace not found|has not been read yet|modified since|found \d+ matches|verification failed"
    r"|syntax ?error|parse error|indentationerror|nameerror|(?:file|path) does not exist|no such file|unexpected token"
    r"|unmatched|unrecognized|unknown (?:json )?(?:argument|flag|option|field|command)|^(?:jq|rg|sed|zsh|bash):",
    re.IGNORECASE,
)
_THROWN_AWAY = re.compile(r"<<|\s-[cep] [\"'$]|/tmp/")
_REPAIRED = re.compile(r" after editing |^(?:conflicts settled|no longer|applied|read|found) ")
_UNAVAILABLE = re.compile(
    r"\b(?:not|n['\u2019]t) (?:available|installed|supported|possible|allowed|work)\b"
    r"|\bcan(?:['\u2019]?t|not) (?:use|run|install)",
    re.IGNORECASE,
)
_EXPRESSION = re.compile(r"`[^`]*[^`\w-][^`]*`")
_ANNOUNCED = re.compile(r"\bdecision\W{0,4}:", re.IGNORECASE)
_POINTS_ELSEWHERE = re.compile(
    r" (?:with|settled on|opted for|use|using) (?:this|these|those|that|them|it|the former|the latter|the same) "
)
_GO_FILE = re.compile(r"\w\.go with\b")
_UNSPACED = r"[\u3040-\u9fff\uac00-\ud7af]"
_SEAM = re.compile(rf"(?<={_UNSPACED})(?=[A-Za-z])|(?<=[A-Za-z0-9])(?={_UNSPACED})")


def is_architectural(fact: Fact) -> bool:
    """Whether a decision is about what the project is built on, and can be understood without its conversation.

    The user's word counts for more than the agent's.
    """
    if fact.kind != "decision" or fact.status or _GO_FILE.search(fact.content):
        return False
    words = cues.spaced(_SEAM.sub(" ", _EXPRESSION.sub(" code ", fact.content)))
    subjects = _subjects(words)
    if fact.role != "user" and not _has_reason(fact):
        return False
    return subjects > 0 and subjects + _chosen(fact, words) - _against(words) >= _ENOUGH


def _has_reason(fact: Fact) -> bool:
    """Whether a decision says why it was taken, or instead of what."""
    is_announced = _ANNOUNCED.search(fact.content) is not None
    return is_announced or cues.has_any(cues.spaced(fact.content), _OVER) or cues.has_any(fact.content, _UNSPACED_OVER)


def _subjects(words: str) -> int:
    named = {word.removesuffix("s") for word in words.split()}.union(words.split())
    parts = len(named & _SUBJECTS) + sum(phrase in words for phrase in _SUBJECT_PHRASES)
    return min(parts, 2) + 2 * bool(named & _TECHNOLOGIES)


def _chosen(fact: Fact, words: str) -> int:
    is_settled = cues.has_any(words, _SETTLED) or cues.has_any(fact.content, cues.UNSPACED_DECISIONS)
    is_announced = _ANNOUNCED.search(fact.content) is not None
    said = 2 if is_settled else int(cues.has_any(words, _CHOSEN))
    return said + 2 * is_announced + cues.has_any(words, _OVER) + (fact.role == "user")


def _against(words: str) -> int:
    is_open = cues.has_any(words, _OPEN) or _POINTS_ELSEWHERE.search(words) is not None
    errands = len(_ERRANDS.intersection(words.split()))
    return 2 * is_open + 2 * cues.has_any(words, _REPAIRS) + min(errands, 2)


def error_key(fact: Fact) -> str:
    """What an error has in common with the same one at another time and place; empty for anything but an error.

    What the user denied is none: it failed because of what the user wanted, not because of the project.
    """
    if fact.kind not in ("failure", "error") or fact.status == "denied" or is_refusal(fact.detail):
        return ""
    return error_pattern(*((fact.content, fact.detail) if fact.detail else ("", fact.content)))


def is_recurring(fact: Fact, seen: Mapping[str, Collection[str]]) -> bool:
    """Whether an error that is no slip was seen in two or more sessions. `seen` has the sessions of each key."""
    key = error_key(fact)
    return bool(key) and len(set(seen.get(key, ()))) >= _FEWEST_SESSIONS and not is_slip(fact)


def is_given_up(fact: Fact) -> bool:
    """Whether the user turned away from what failed, or the agent did because it cannot work here."""
    if fact.status != GIVEN_UP or not error_key(fact):
        return False
    is_unavailable = _UNAVAILABLE.search(fact.outcome) is not None
    return fact.outcome.startswith('user: "') or (fact.outcome.startswith('agent: "') and is_unavailable)


def _teaches(fact: Fact) -> bool:
    """Whether an error tells something to a session that has not seen it.

    What was repaired does not come back, and a search, a throw-away script or a call that was written wrongly teaches
    nothing about the project.
    """
    is_repaired = fact.status == RESOLVED and _REPAIRED.search(fact.outcome) is not None
    is_passing = looks_only(split_steps(fact.content)) or _THROWN_AWAY.search(fact.content) is not None
    return not (is_repaired or is_passing or is_bare(fact.detail) or _SLIPS.search(fact.detail))


def promote(
    facts: Iterable[Fact],
    learned: Path,
    owner: str,
    *,
    session_id: str,
    day: str,
    seen: Mapping[str, Collection[str]],
) -> list[Lesson]:
    """Write what a session taught to the lessons of its owner in the learned folder; the answer is what is new there.

    What only a model says is left out. `day` is the date as in 2026-01-26, `seen` has sessions of the same owner alone.
    Doing it again with the same facts changes nothing.
    """
    facts = [fact for fact in facts if not fact.told_by]
    rules = [_said(fact, session_id, day) for fact in lasting_rules(facts)]
    decisions = [_said(fact, session_id, day) for fact in facts if is_architectural(fact)]
    failures = [fact for fact in facts if is_recurring(fact, seen) or is_given_up(fact)]
    errors = [_error(fact, session_id, day, seen) for fact in failures if _teaches(fact)]
    if not rules and not decisions and not errors:
        return []
    folder = make_owner_folder(learned, owner)
    found: dict[LessonKind, list[Lesson]] = {"rules": rules, "decisions": decisions, "errors": errors}
    return [lesson for kind, lessons in found.items() for lesson in add_lessons(folder, kind, lessons)]


def _said(fact: Fact, session_id: str, day: str) -> Lesson:
    return Lesson(one_line(fact.content), "user" if fact.role == "user" else "agent", day, session_id, fact.ref)


def _error(fact: Fact, session_id: str, day: str, seen: Mapping[str, Collection[str]]) -> Lesson:
    others = tuple(sorted(set(seen.get(error_key(fact), ())) - {session_id}))
    return Lesson(error_text(fact), "tool", day, session_id, fact.ref, others)
