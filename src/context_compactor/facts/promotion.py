"""Promotes what later sessions should know: lasting rules, architectural decisions, errors that come back."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from context_compactor.facts import utterances
from context_compactor.facts.fact import Fact
from context_compactor.facts.failures import GIVEN_UP, RESOLVED
from context_compactor.facts.lesson_folders import add_lessons, make_owner_folder
from context_compactor.facts.lessons import Lesson, LessonKind, error_pattern, error_text, is_bare_error, one_line
from context_compactor.facts.outcomes import is_read_only, is_refusal
from context_compactor.facts.shell import split_command

_SHORTEST_RULE, _LONGEST_RULE = 20, 300
# More rules in one message are a page of instructions, which whoever wrote it will give again.
_MOST_IN_A_MESSAGE = 3

_LASTING = (
    " from now on ", " going forward ", " in this repo ", " in this repository ", " in this project ",
    " in this codebase ", " in our repo ", " in our project ", " in our codebase ", " as a rule ", " every time ",
    " each time ", " whenever ", " our convention ", " by convention ", " in the future ", " in future ",
    " for future ", " remember to ", " remember that ", " at all times ", " our policy ", " ab jetzt ",
    " grundsätzlich ", " in diesem projekt ", " désormais ", " dans ce projet ", " a partir de ahora ",
    " en este proyecto ",
)  # fmt: skip
_UNSPACED_LASTING = ("今后", "以后", "从现在起", "今後", "これから", "앞으로")
# An order: the word opens the sentence, or stands behind whoever is to follow it.
_ORDERED = re.compile(
    r"(?:^|[.,;:!(\u2013-] ?|\b(?:please|and|but|also|so|should|must|to|you|we|claude|agents?|bitte) )"
    r"(?:always|never|immer|niemals|nie|toujours|jamais|siempre|nunca)\s+(?!mind\b|got\b|had\b|was\b|were\b|saw\b)\w+",
    re.IGNORECASE,
)
_RULE_POINTS_ELSEWHERE = re.compile(
    r"\b(?:always|never) \w+ (?:this|that|it|them|these|those|so)\b|\b(?:this|that) (?:is|was|should|one)\b",
    re.IGNORECASE,
)
_MEMORY_FILE = re.compile(r"\b(?:CLAUDE|AGENTS|GEMINI)\.md\b|\.cursorrules\b|\bcopilot-instructions\b")
_ORDERS = (
    " make sure ", " should ", " must ", " never ", " always ", " don't ", " do not ", " ask ", " only ", " prefer ",
)  # fmt: skip
# About the work at hand, not sure yet, or said to the agent about its answers.
_PASSING = (
    " for now ", " this time ", " currently ", " today ", " right now ", " now ", " this pr ", " this commit ",
    " this branch ", " this session ", " this task ", " this issue ", " this change ", " this step ", " here ",
    " your response ", " your answer ", " tool call ", " i think ", " maybe ", " perhaps ", " probably ", " i guess ",
    " not sure ", " would ", " could ", " i mean ", " i meant ", " if possible ",
)  # fmt: skip
_REPLIES = (" yes ", " yeah ", " yep ", " no ", " nah ", " nope ", " ok ", " okay ", " hmm ", " ah ", " oh ", " well ")

_READ_ONLY_PROGRAMS = frozenset(
    "rg grep egrep fgrep ag ack sed awk gawk jq yq find fd ls tree cat head tail nl wc cut sort uniq xargs tr diff "
    "read glob list search edit write multiedit notebookedit apply_patch update view open fetch webfetch "
    "websearch".split()
)
_PREFIX = re.compile(r"^(?:`|\(|cd \S+ ?(?:&&|;) ?|\w+=\S* |sudo |env |time |timeout \S+ )+")
_FROM_READ_ONLY = re.compile(
    r"^(?:rg|grep|egrep|sed|awk|jq|yq|find|ls|cat|head|tail|zsh|bash|sh)\b[^a-z]{0,12}:", re.IGNORECASE
)
_MISSING_PROGRAM = re.compile(r"command not found|not installed|no module named|cannot find module", re.IGNORECASE)
# The code under work: its tests, its compiler, a file that is not there, a command that was written wrongly.
_OF_THE_MOMENT = re.compile(
    r"^\s*(?:-{2,3} )?fail\b|\[build failed\]|assert|\bexpected\b|^\s*[\w./\\-]+\.\w{1,5}[:(]\d|\bundefined\b"
    r"|no such file|does not exist|\bnot found \(http|unmatched|unrecogni[sz]ed|unexpected|syntax ?error|\bparse error"
    r"|\blint\b|\|.*\||old_string|string to replace|merge conflict"
    r"|exit(?:ed with)? (?:code|status) \d+\s*$|has been modified",
    re.IGNORECASE,
)
_TELLS = re.compile(
    r"error|fail|not found|no module|cannot|can't|could not|denied|refused|missing|unknown|invalid|timed? ?out|unable"
    r"|exception|not installed|require|unsupported|in use|is taken|conflict|exceeded|forbidden|unauthori[sz]ed|locked"
    r"|fatal",
    re.IGNORECASE,
)


def lasting_rules(facts: Sequence[Fact]) -> list[Fact]:
    """The rules of the user that hold in other sessions as well."""
    said = Counter(fact.turn for fact in facts if fact.kind == "constraint")
    return [fact for fact in facts if said[fact.turn] <= _MOST_IN_A_MESSAGE and is_lasting_rule(fact)]


def is_lasting_rule(fact: Fact) -> bool:
    """Whether a rule says by itself that it holds beyond the work at hand, and can be understood without it."""
    text = fact.content
    if fact.kind != "constraint" or fact.role != "user" or len(text) > _LONGEST_RULE:
        return False
    if utterances.has_any(text, _UNSPACED_LASTING):
        return True
    words = utterances.spaced(text)
    is_passing = utterances.has_any(words.replace(" from now on ", " "), _PASSING)
    if is_passing or len(text) < _SHORTEST_RULE or "?" in text:
        return False
    if _MEMORY_FILE.search(text):
        return utterances.has_any(words, _ORDERS)
    if words.startswith(_REPLIES) or _RULE_POINTS_ELSEWHERE.search(text):
        return False
    return utterances.has_any(words, _LASTING) or _ORDERED.search(text) is not None


def is_slip(fact: Fact) -> bool:
    """Whether an error tells nothing about the project: a look that found nothing, or code that was under work."""
    error = fact.detail or fact.content
    if _MISSING_PROGRAM.search(error):
        return False
    program = _PREFIX.sub("", fact.content).split(maxsplit=1)[0:1] if fact.detail else []
    is_look = bool(program) and program[0].rsplit("/", 1)[-1].lower() in _READ_ONLY_PROGRAMS
    return is_look or not _TELLS.search(error) or bool(_FROM_READ_ONLY.match(error) or _OF_THE_MOMENT.search(error))


_ENOUGH_SIGHTINGS = 3
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
_INSTEAD_OF = (
    " instead of ", " rather than ", " in favor of ", " in favour of ", " as opposed to ", " over ", " because ",
    " so that ", " to avoid ", " not worth ", " since ", " due to ", " in order to ", " against ", " statt ", " weil ",
    " damit ", " au lieu de ", " parce que ", " en lugar de ", " porque ", " вместо ", " потому что ",
)  # fmt: skip
_UNSPACED_OVER = ("而不是", "因为", "以便", "代わりに", "ではなく", "ため", "대신", "때문")
# A suggestion, a choice among options that the sentence does not name, somebody else's words, the next thing to do.
_UNDECIDED = (
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
_DECISION_POINTS_ELSEWHERE = re.compile(
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
    words = utterances.spaced(_SEAM.sub(" ", _EXPRESSION.sub(" code ", fact.content)))
    subjects = _subjects(words)
    if fact.role != "user" and not _has_reason(fact):
        return False
    return subjects > 0 and subjects + _chosen(fact, words) - _against(words) >= _ENOUGH_SIGHTINGS


def _has_reason(fact: Fact) -> bool:
    """Whether a decision says why it was taken, or instead of what."""
    if _ANNOUNCED.search(fact.content) or utterances.has_any(fact.content, _UNSPACED_OVER):
        return True
    return utterances.has_any(utterances.spaced(fact.content), _INSTEAD_OF)


def _subjects(words: str) -> int:
    named = {word.removesuffix("s") for word in words.split()}.union(words.split())
    parts = len(named & _SUBJECTS) + sum(phrase in words for phrase in _SUBJECT_PHRASES)
    return min(parts, 2) + 2 * bool(named & _TECHNOLOGIES)


def _chosen(fact: Fact, words: str) -> int:
    is_settled = utterances.has_any(words, _SETTLED) or utterances.has_any(fact.content, utterances.UNSPACED_DECISIONS)
    is_announced = _ANNOUNCED.search(fact.content) is not None
    said = 2 if is_settled else int(utterances.has_any(words, _CHOSEN))
    return said + 2 * is_announced + utterances.has_any(words, _INSTEAD_OF) + (fact.role == "user")


def _against(words: str) -> int:
    is_open = utterances.has_any(words, _UNDECIDED) or _DECISION_POINTS_ELSEWHERE.search(words) is not None
    errands = len(_ERRANDS.intersection(words.split()))
    return 2 * is_open + 2 * utterances.has_any(words, _REPAIRS) + min(errands, 2)


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
    is_passing = is_read_only(split_command(fact.content)) or _THROWN_AWAY.search(fact.content) is not None
    return not (is_repaired or is_passing or is_bare_error(fact.detail) or _SLIPS.search(fact.detail))


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
    facts = [fact for fact in facts if not fact.summarized_by]
    rules = [_spoken_lesson(fact, session_id, day) for fact in lasting_rules(facts)]
    decisions = [_spoken_lesson(fact, session_id, day) for fact in facts if is_architectural(fact)]
    failures = [fact for fact in facts if is_recurring(fact, seen) or is_given_up(fact)]
    errors: list[Lesson] = []
    for fact in filter(_teaches, failures):
        others = tuple(sorted(set(seen.get(error_key(fact), ())) - {session_id}))
        errors.append(Lesson(error_text(fact), "tool", day, session_id, fact.ref, others))
    if not rules and not decisions and not errors:
        return []
    folder = make_owner_folder(learned, owner)
    found: dict[LessonKind, list[Lesson]] = {"rules": rules, "decisions": decisions, "errors": errors}
    return [lesson for kind, lessons in found.items() for lesson in add_lessons(folder, kind, lessons)]


def _spoken_lesson(fact: Fact, session_id: str, day: str) -> Lesson:
    return Lesson(one_line(fact.content), "user" if fact.role == "user" else "agent", day, session_id, fact.ref)
