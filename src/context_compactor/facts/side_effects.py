"""What reaches beyond the conversation: side effects, commands that still run, and sub-agents."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from msgspec import Struct, structs

from context_compactor.dialects.client_text import TaskNotice, task_notices
from context_compactor.dialects.turns import ToolUse, Turn, reference_id
from context_compactor.facts.calls import CallInTurn, ParsedCall, background_id
from context_compactor.facts.fact import Fact
from context_compactor.facts.failures import call_text
from context_compactor.facts.kinds import reference_of
from context_compactor.facts.outputs import unwrap
from context_compactor.facts.shell import ShellStep

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
_LONGEST_EFFECT = 140


def side_effect_facts(calls: Sequence[CallInTurn], failed: Collection[int]) -> list[Fact]:
    """Commits, pushes, pull requests, messages, bookings, deployments: each with the id or address its answer gave."""
    found: dict[tuple[str, str], Fact] = {}
    for turn, exchange, parsed in calls:
        act = _act_of(exchange, parsed) if exchange.result else ""
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


def _act_of(exchange: ToolUse, parsed: ParsedCall) -> str:
    if parsed.command is not None:
        acts = [step for step in parsed.steps if step.words and _acts(step)]
        return "; ".join(dict.fromkeys(_effect_label(step) for step in acts))[:_LONGEST_EFFECT]
    if parsed.tool in _OWN_TOOLS or parsed.reads or parsed.writes or exchange.call is None:
        return ""
    first = _NAME_PART.findall(exchange.call.name.rpartition("__")[2])[:2]
    return call_text(exchange.call) if any(part.lower() in _TOOL_VERBS for part in first) else ""


def _acts(step: ShellStep) -> bool:
    words = _ACT_WORDS.get(step.program)
    if words is not None:
        actions = [word for word in step.words[1:5] if not word.startswith("-") or word in words]
        if step.program == "git":
            actions = actions[:2] if step.words[1:2] == ("-C",) else actions[:1]
            actions = [] if step.words[1:] == ("tag",) else actions
        is_action = "*" in words or not words.isdisjoint(actions)
        return (is_action or (step.program == "gh" and _sends(step))) and _QUESTIONS.isdisjoint(step.words)
    if step.program.startswith("python") and "manage.py" in step.words[1:3]:
        return "migrate" in step.words[2:4]
    return step.program in ("curl", "http", "https", "wget") and _sends(step)


def _sends(step: ShellStep) -> bool:
    if "api" not in step.words[1:2] and step.program == "gh":
        return False
    if not _METHODS.isdisjoint(step.words):
        return True
    return any(word in _SENDS for word in step.words) and "GET" not in step.words


def _effect_label(step: ShellStep) -> str:
    """The command; of a commit no more than that, since its answer names it better."""
    words = step.words if "commit" not in step.words[1:4] else step.words[: step.words.index("commit") + 1]
    return " ".join(" ".join(words).split())[:_LONGEST_EFFECT]


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
        return named[0].replace('"', "")[:_LONGEST_EFFECT]
    if url:
        return url[0].rstrip(".,;:")
    return next((line.strip() for line in body[:400].split("\n") if line.strip(" {}[]")), "")[:_LONGEST_EFFECT]


_NUMBERED = re.compile(r"^\[\d{1,3}\] (\d{2,9})\b|\bPID:? ?(\d{2,9})\b", re.MULTILINE)
_BACKGROUNDED = re.compile(
    r"(?<![&>|<\d])&(?![&>\d])[ \t]*(?:$|\n|\)|;|disown|echo|sleep|curl|[A-Z_]+=\$!)", re.MULTILINE
)
_PORT = re.compile(
    r"(?:--port[ =]|\bPORT=|(?:localhost|127\.0\.0\.1|0\.0\.0\.0|\[::\]):|\bport:? )(\d{2,5})\b", re.IGNORECASE
)
_PROCESS_ENDED = re.compile(
    r"<status>(?:completed|failed|killed|stopped)|Process exited with code|\bexit(?:ed)?[ _]code\b|successfully stopped"
    r"|\bkilled\b|not (?:found|running)",
    re.IGNORECASE,
)
_LONG_RUNNING = re.compile(r"\b(?:serve|server|dev|watch|start|daemon|tail -[fF]|up|preview|listen)\b")
_RECENT = 10
_STOPS = frozenset(("kill", "pkill", "killall", "taskkill"))
_ANSWER_HEAD = 600
_LONGEST_LAUNCH = 1_500
_MOST_PROCESSES = 6
_MOST_OPEN = 12


class _Running(Struct):
    fact: Fact
    id: str
    port: str
    command: str
    yielded: bool = False
    """The client came back early from a command that was not meant to stay: it is forgotten after some turns."""


def running_facts(calls: Sequence[CallInTurn], turns: Sequence[Turn]) -> list[Fact]:
    """Background commands that were neither stopped nor seen to end, with the id and the port to reach them by."""
    running: list[_Running] = []
    for turn, exchange, parsed in calls:
        running = [each for each in running[-_MOST_OPEN:] if not _ends_process(each, exchange, parsed)]
        started = _started_process(exchange, turn, parsed)
        if started is not None:
            running.append(started)
    if running:
        ends = reported_ends(turns)
        running = [each for each in running if each.id not in ends]
    newest = calls[-1][0] if calls else 0
    running = [each for each in running if not each.yielded or newest - each.fact.turn <= _RECENT]
    return [each.fact for each in running[-_MOST_PROCESSES:]]


def runs_in_background(exchange: ToolUse, parsed: ParsedCall) -> bool:
    """Whether a call leaves its command running and comes back before it has ended."""
    if parsed.command is None or exchange.result is None:
        return False
    if parsed.arguments.get("run_in_background") is True:
        return not exchange.result.is_error
    head = exchange.result.text[:_ANSWER_HEAD]
    if ("unning " in head or "ackground" in head) and background_id(head):
        return True
    if parsed.command.count("&") <= 2 * parsed.command.count("&&") + parsed.command.count(">&"):
        return False
    if not _BACKGROUNDED.search(parsed.command):
        return False
    return not any(step.program in _STOPS or step.program == "wait" for step in parsed.steps)


def _started_process(exchange: ToolUse, turn: int, parsed: ParsedCall) -> _Running | None:
    if not runs_in_background(exchange, parsed):
        return None
    command, answer = parsed.command or "", exchange.result.text[:_ANSWER_HEAD] if exchange.result else ""
    printed = _NUMBERED.search(answer)
    number = background_id(answer) or (next(filter(None, printed.groups()), "") if printed else "")
    port = _PORT.search(command) or _PORT.search(answer)
    where = ", ".join(filter(None, (f"port {port[1]}" if port else "", f"id {number}" if number else "")))
    fact = Fact("command", call_text(exchange.call), turn, "tool", where, "running", 1, turn, reference_of(exchange))
    yielded = "running with session ID" in answer and not port and not _LONG_RUNNING.search(command)
    return _Running(fact, number, port[1] if port else "", command, yielded)


def _ends_process(running: _Running, exchange: ToolUse, parsed: ParsedCall) -> bool:
    if exchange.call is None or exchange.result is None:
        return False
    if running.id and running.id in exchange.call.arguments[:_ANSWER_HEAD]:
        if parsed.tool.startswith(("kill", "stop")) or parsed.tool.endswith(("stop", "kill")):
            return not exchange.result.is_error
        if parsed.command is None:
            return _PROCESS_ENDED.search(exchange.result.text[:_ANSWER_HEAD]) is not None
    if parsed.command is None or "kill" not in parsed.command:
        return False
    return any(step.program in _STOPS and _names(step.words[1:], running) for step in parsed.steps)


def _names(words: Sequence[str], running: _Running) -> bool:
    """Whether a command that stops processes means this one: by its id, its port, a part of its name, or a variable."""
    targets = [word for word in words if not word.startswith("-")]
    if not targets:
        return True
    if any(word.startswith(("$", "%")) for word in targets):
        return not running.port or not any(word.isdigit() for word in targets)
    if running.port and any(running.port in word for word in targets):
        return True
    return any(word == running.id or word in running.command for word in targets)


def _notices_in(turn: Turn) -> list[TaskNotice]:
    """What the client told in a turn of tasks in the background; it may stand behind the results of other calls."""
    said = [message.text for message in turn.messages if message.role == "user"]
    return [notice for text in said for notice in task_notices(text)]


class ReportedEnd(Struct, frozen=True):
    """A notice that a task in the background has ended, and the turn in which it came."""

    turn: int
    notice: TaskNotice

    @property
    def is_failure(self) -> bool:
        """Whether the task has failed or was stopped."""
        return _SUBAGENT_FAILED.search(self.notice.about) is not None

    @property
    def head(self) -> str:
        """The first line of its report that says something."""
        return _first_line(self.notice.report)


def reported_ends(turns: Iterable[Turn]) -> dict[str, ReportedEnd]:
    """By the ids of tasks in the background: which of them have ended, as the client told in these turns."""
    told = [ReportedEnd(turn.number, notice) for turn in turns for notice in _notices_in(turn)]
    return {end.notice.task: end for end in told if end.notice.task and _PROCESS_ENDED.search(end.notice.about)}


def end_running(facts: Iterable[Fact], turns: Sequence[Turn]) -> list[Fact]:
    """The facts, without the commands and with the ends of the sub-agents that some later turns report."""
    ends = reported_ends(turns)
    return [now for fact in facts if (now := _with_end(fact, ends)) is not None] if ends else list(facts)


def _with_end(fact: Fact, ends: dict[str, ReportedEnd]) -> Fact | None:
    end = ends.get(running_id(fact.detail)) if fact.status == "running" else None
    if end is None:
        return fact
    return _ended_subagent(fact, end) if fact.kind == "subagent" else None


def _ended_subagent(fact: Fact, end: ReportedEnd) -> Fact:
    ref = reference_id("turn", end.turn) if end.notice.report else fact.ref
    status = "failed" if end.is_failure else "done"
    return structs.replace(fact, status=status, detail=end.head, last_turn=end.turn, ref=ref)


def running_id(detail: str) -> str:
    """The id that ends what is told of something that runs."""
    found = _RUNNING_ID.search(detail)
    return found[1] if found else ""


_SUBAGENT_TOOLS = frozenset(
    "task agent spawnagent delegate subagent runagent newtask dispatchagent delegatetask".split()
)
_LAUNCHED = re.compile(
    r"(?:async )?agent launched|launched successfully|running in the background|spawned|\"agent_id\"", re.IGNORECASE
)
_AGENT_ID = re.compile(r"agent_?-?id[\"']?\s{0,3}[:=]\s{0,3}[\"']?([\w-]{3,64})", re.IGNORECASE)
_SUBAGENT_FINISHED = re.compile(r"\b(?:completed?|finished|done|closed|failed|errored|killed|stopped)\b", re.IGNORECASE)
_SUBAGENT_FAILED = re.compile(r"<status>(?:failed|killed|errored)|\"(?:failed|errored)\"\s*:", re.IGNORECASE)
_REPORTED_WORDS = re.compile(
    r"<(?:output|result)>\s*(.{1,1500}?)(?:</(?:output|result)>|\Z)|\"completed\"\s*:\s*\"(.{1,1500}?)\"", re.DOTALL
)
_PREFACE = re.compile(
    r"(?:perfect|excellent|great|now i have|let me|i now have|i have (?:all|completed|enough))\b", re.I
)
_LONGEST_REPORT = 160
_RUNNING_ID = re.compile(r"\bid ([\w-]{2,64})$")


def subagent_facts(calls: Sequence[CallInTurn], turns: Sequence[Turn], failed: Collection[int]) -> list[Fact]:
    """Every sub-agent that was started: `running`, `done` or `failed`, with its task and the head of its answer."""
    found: list[Fact] = []
    by_id: dict[str, int] = {}
    for turn, exchange, parsed in calls:
        if parsed.tool in _SUBAGENT_TOOLS and _task_of(parsed.arguments):
            fact = _started_subagent(exchange, turn, parsed.arguments, exchange.number in failed)
            if fact.status == "running" and running_id(fact.detail):
                by_id[running_id(fact.detail)] = len(found)
            found.append(fact)
    return end_running(_with_fetched_ends(found, by_id, calls), turns) if by_id else found


def _started_subagent(exchange: ToolUse, turn: int, arguments: dict[str, Any], is_failed: bool) -> Fact:
    answer = exchange.result.text if exchange.result else ""
    if exchange.result is None or is_launch(answer):
        launched = _AGENT_ID.search(answer[:_ANSWER_HEAD])
        asked = _first_line(_text(arguments, "prompt", "message", "task"))
        status, detail = "running", ", ".join(filter(None, (asked, f"id {launched[1]}" if launched else "")))
    else:
        status, detail = "failed" if is_failed else "done", _first_line(answer)
    return Fact("subagent", _task_of(arguments), turn, "assistant", detail, status, 1, turn, reference_of(exchange))


def is_launch(answer: str) -> bool:
    """Whether a sub-agent was only started, and works in the background."""
    return len(answer) < _LONGEST_LAUNCH and _LAUNCHED.search(answer[:300]) is not None


def _with_fetched_ends(found: list[Fact], by_id: dict[str, int], calls: Sequence[CallInTurn]) -> list[Fact]:
    """Mark those whose end was told by the tool that fetches their output."""
    for turn, exchange, _ in calls:
        if exchange.call is None or exchange.result is None:
            continue
        text = f"{exchange.call.arguments[:400]}\n{exchange.result.text[:1_500]}"
        for agent, at in by_id.items():
            if agent in text and _SUBAGENT_FINISHED.search(text) and found[at].turn < turn:
                status = "failed" if _SUBAGENT_FAILED.search(text) else "done"
                words = _REPORTED_WORDS.search(text)
                head = _first_line((words[1] or words[2]).replace("\\n", "\n")) if words else ""
                head = head or _RUNNING_ID.sub("", found[at].detail).rstrip(", ")
                found[at] = structs.replace(found[at], status=status, detail=head, last_turn=turn)
    return found


def _task_of(arguments: dict[str, Any]) -> str:
    task = _text(arguments, "description", "title", "name", "task", "prompt", "message")
    kind = _text(arguments, "subagent_type", "agent_type", "agent")
    line = _first_line(task)
    return f"{kind}: {line}"[:_LONGEST_REPORT] if kind and line else line


def _text(arguments: dict[str, Any], *keys: str) -> str:
    return next((arguments[key] for key in keys if isinstance(arguments.get(key), str) and arguments[key]), "")


def _first_line(text: str) -> str:
    lines = [line.strip() for line in text[:3_000].split("\n")]
    informative = [line for line in lines if len(line) > 3 and not _PREFACE.match(line) and line.strip("-=#* ")]
    # A line that only leads to the next says less than that.
    first = next((line for line in informative if not line.endswith(":")), informative[0] if informative else "")
    return first.lstrip("# ")[:_LONGEST_REPORT]
