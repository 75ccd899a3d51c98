"""What was done to the world outside of the project, and must not be done again."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from context_compactor.classify.calls import Reading
from context_compactor.classify.envelope import unwrap
from context_compactor.classify.failures import wording_of
from context_compactor.classify.references import reference_of
from context_compactor.classify.shell import Step
from context_compactor.facts.exchanges import Called
from context_compactor.facts.fact import Fact
from context_compactor.messages.turn import ToolUse

# Program, and words of which one must follow it; `*` stands for any.
_ACTS = {
    "git": "commit push tag merge rebase cherry-pick revert",
    "gh": "create merge close reopen comment edit review ready delete rerun workflow enable disable transfer",
    "glab": "create merge close comment",
    "npm": "publish deprecate unpublish", "pnpm": "publish", "yarn": "publish", "bun": "publish", "cargo": "publish",
    "twine": "upload", "uv": "publish", "poetry": "publish", "gem": "push",
    "docker": "push", "podman": "push", "kubectl": "apply delete create rollout scale patch", "helm": "install upgrade",
    "terraform": "apply destroy", "tofu": "apply destroy", "pulumi": "up destroy", "serverless": "deploy",
    "vercel": "deploy --prod", "fly": "deploy", "flyctl": "deploy", "netlify": "deploy", "wrangler": "deploy",
    "alembic": "upgrade downgrade stamp", "flyway": "migrate", "prisma": "migrate deploy push", "sqlx": "migrate",
    "rails": "db:migrate", "rake": "db:migrate", "manage.py": "migrate", "knex": "migrate:latest",
    "sendmail": "*", "mail": "*",
}  # fmt: skip
_ACT_WORDS = {program: frozenset(words.split()) for program, words in _ACTS.items()}
_SENDS = ("-d", "--data", "--data-raw", "--data-binary", "-f", "-F", "--field", "--raw-field", "--form")
_QUESTIONS = frozenset("--dry-run --help -h --list -l --abort --points-at --contains view list".split())
_METHODS = frozenset(("POST", "PUT", "PATCH", "DELETE"))
_TOOL_VERBS = frozenset(
    "create send post publish deploy delete cancel book update merge transfer pay purchase submit reply comment close "
    "refund schedule invite upload modify exchange return order charge approve assign archive enable disable".split()
)
# Tools that keep an agent's own papers in order, or files, which have a ledger of their own.
_OWN_TOOLS = frozenset(
    "taskcreate taskupdate todowrite updateplan createfile updatefile deletefile writefile updatetodolist exitplanmode "
    "createplan updatememory creatememory deletememory savememory sendinput sendmessage closeagent".split()
)
_NAME_PART = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_URL = re.compile(r"https?://[^\s\"'<>)\]}\\]{4,300}")
_COMMIT = re.compile(r"^\[([^\]\n]{1,200} [0-9a-f]{7,40})\] ?(.{0,160})", re.MULTILINE)
_PUSHED = re.compile(
    r"^[ \t]*[*+!=-]?[ \t]*(?:[0-9a-f]{7,40}\.{2,3}[0-9a-f]{7,40}|\[new (?:branch|tag)\])[ \t]+\S+ -> \S+", re.MULTILINE
)
_ID = re.compile(r'"(?:id|identifier|number|\w{1,30}_id|key|url|html_url)"\s*:\s*"?([^",}\s]{1,120})')
_LONGEST = 140


def side_effect_facts(called: Sequence[Called], failed: Collection[int]) -> list[Fact]:
    """Commits, pushes, pull requests, messages, bookings, deployments: each with the id or address its answer gave."""
    found: dict[tuple[str, str], Fact] = {}
    for turn, exchange, reading in called:
        act = _act_of(exchange, reading) if exchange.result else ""
        if act and exchange.result:
            detail = _evidence(exchange.result.text)
            # What fails after its commit has committed all the same.
            if exchange.number in failed and not (detail.startswith("[") and "git commit" in act):
                continue
            # A branch may be pushed many times; where it stands now is enough.
            key = (act, "" if act.startswith("git push") else detail)
            before = found.pop(key, None)
            first, count = (before.turn, before.count + 1) if before else (turn, 1)
            found[key] = Fact("side_effect", act, first, "tool", detail, "done", count, turn, reference_of(exchange))
    return list(found.values())


def _act_of(exchange: ToolUse, reading: Reading) -> str:
    if reading.command is not None:
        acts = [step for step in reading.steps if step.words and _acts(step)]
        return "; ".join(dict.fromkeys(_label(step) for step in acts))[:_LONGEST]
    if reading.tool in _OWN_TOOLS or reading.reads or reading.writes or exchange.call is None:
        return ""
    first = _NAME_PART.findall(exchange.call.name.rpartition("__")[2])[:2]
    return wording_of(exchange.call) if any(part.lower() in _TOOL_VERBS for part in first) else ""


def _acts(step: Step) -> bool:
    words = _ACT_WORDS.get(step.program)
    if words is not None:
        told = [word for word in step.words[1:5] if not word.startswith("-") or word in words]
        if step.program == "git":
            told = told[:2] if step.words[1:2] == ("-C",) else told[:1]
            told = [] if step.words[1:] == ("tag",) else told
        is_told = "*" in words or not words.isdisjoint(told)
        return (is_told or (step.program == "gh" and _sends(step))) and not _only_asks(step)
    if step.program.startswith("python") and "manage.py" in step.words[1:3]:
        return "migrate" in step.words[2:4]
    return step.program in ("curl", "http", "https", "wget") and _sends(step)


def _only_asks(step: Step) -> bool:
    return not _QUESTIONS.isdisjoint(step.words)


def _sends(step: Step) -> bool:
    if "api" not in step.words[1:2] and step.program == "gh":
        return False
    if not _METHODS.isdisjoint(step.words):
        return True
    return any(word in _SENDS for word in step.words) and "GET" not in step.words


def _label(step: Step) -> str:
    """The command; of a commit no more than that, since its answer names it better."""
    words = step.words if "commit" not in step.words[1:4] else step.words[: step.words.index("commit") + 1]
    return " ".join(" ".join(words).split())[:_LONGEST]


def _evidence(text: str) -> str:
    """The id or address by which what was done can be found again."""
    body = unwrap(text).body
    excerpt = body if len(body) < 6_000 else f"{body[:3_000]}\n{body[-3_000:]}"
    commit = _COMMIT.search(excerpt)
    if commit:
        return f"[{commit[1]}] {commit[2]}".strip()
    pushed = _PUSHED.search(excerpt)
    if pushed:
        return " ".join(pushed[0].split())
    url = _URL.search(excerpt)
    named = _ID.search(excerpt)
    if named and (not url or body.lstrip()[:1] in "{["):
        return named[0].replace('"', "")[:_LONGEST]
    if url:
        return url[0].rstrip(".,;:")
    return next((line.strip() for line in body[:400].split("\n") if line.strip(" {}[]")), "")[:_LONGEST]
