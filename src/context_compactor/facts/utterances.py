"""What users and agents said themselves, and the wordings by which rules, corrections and decisions are recognised, in
ten languages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from msgspec import Struct

from context_compactor.dialects.client_text import (
    CLIENT_COMMANDS,
    is_client_text,
    without_client_blocks,
    without_client_ending,
)
from context_compactor.dialects.messages import Message, Text, is_repair_text
from context_compactor.dialects.turns import Turn

# ruff: noqa: RUF001 - Cyrillic letters are meant.


_MARKS = '!"#$%&()*+,-./:;<=>?@[\\]^`{|}~\t\n\r\u2013\u2014\u2026\u201c\u201d\u201e\u00ab\u00bb'
_APART = str.maketrans(dict.fromkeys(_MARKS, " ") | {"\u2019": "'"})


def _pieces(cues: str) -> tuple[str, ...]:
    return tuple(cue.strip() for cue in cues.split(","))


def _phrases(cues: str) -> tuple[str, ...]:
    """Whole words, or the beginning of one where a star stands."""
    return tuple(f" {cue[:-1]}" if cue.endswith("*") else f" {cue} " for cue in _pieces(cues))


# Labels by which a speaker marks a rule or a decision, and openings that order for good.
RULE_LABELS = (
    r"(?:rules?|important|remember|note|nb|constraint|requirement|regel|wichtig|merke|règle|regla|importante|правило"
    r"|规则|重要|注意)(?:[ \t]?#?\d{1,3})?(?:\*\*|__)?[ \t]?[:\uff1a]"
)
_OPENINGS = r"(?:you may not|you must not|from now on|never)\b"
DECISION_LABELS = (
    r"(?:decision|decided|entscheidung|décision|decisión|решение|决定)(?:[ \t]?#?\d{1,3})?(?:\*\*|__)?[ \t]?[:\uff1a]"
)
_LABELLED = re.compile(rf"[\"*_]{{0,5}}(?:{RULE_LABELS}|{DECISION_LABELS}|({_OPENINGS}))", re.IGNORECASE)


def is_labelled(text: str) -> bool:
    """Whether a rule or a decision was labelled as one by whoever said it: it stays when others must go."""
    return _LABELLED.match(text) is not None


def has_label(line: str) -> bool:
    """Whether a line begins with a label, and so is a rule or a decision to its end."""
    found = _LABELLED.match(line)
    return found is not None and not found[1]


# A rule wherever it stands.
HARD_RULES = _phrases(
    "must, mustn't, make sure, be sure to, ensure that, please use, please keep, please only, please avoid, please "
    "never, please always, only use, use only, only do, only touch, only change, not allowed, under no "
    "circumstances, you may not, from now on, "
    # German
    "niemals, nie wieder, auf keinen fall, darf nicht, darfst nicht, dürfen nicht, darf nur, muss, müssen, immer "
    "nur, immer erst, bitte nicht, bitte kein, bitte keine, bitte nur, bitte verwende, bitte benutze, bitte "
    "nutze, bitte immer, verwende nur, benutze nur, stattdessen, anstatt, statt, sondern, ändere nicht, ändere "
    "keine, lösche nicht, lösche keine, "
    # French
    "jamais, toujours, il faut, ne faut, doit, doivent, devez, ne touche, ne touchez, ne modifie, ne modifiez, ne "
    "change, ne changez, ne supprime, n'utilise, n'utilisez, uniquement, au lieu de, plutôt que, évite, évitez, "
    "interdit, obligatoire, "
    # Spanish, Portuguese, Italian
    "nunca, siempre, jamás, debe, deben, debes, no uses, no toques, no cambies, no hagas, no modifiques, no "
    "borres, solamente, en lugar de, en vez de, tiene que, tienes que, sempre, deve, devem, apenas, somente, em "
    "vez de, ao invés de, tem que, não use, não usar, não mude, não altere, não toque, não faça, não modifique, "
    "não apague, invece di, "
    # Russian
    "никогда, всегда, нельзя, не надо, не нужно, не трогай*, не меняй*, не используй*, не делай*, не удаляй*, не "
    "должен, не должна, не должны, обязательно, только, вместо, запрещено, должен, должна, должно, должны"
)
# A rule when somebody is spoken to: "always run the tests", not "it always fails".
ADDRESSED_RULES = _phrases(
    "never, always, avoid, only when, only if, instead of, rather than, stick to, stick with, without changing, "
    "without touching, without breaking, nothing else"
)
ADDRESSES = _phrases("you, we, i, let's, please, should, i'd, we'd, your, our")
ORDERS = frozenset(
    "use keep add make write put run call do name prefer return show set always never avoid only please instead just "
    "rather leave follow stick stop verify update remove rename replace change move create let's ensure test check "
    "commit push ask read start try treat don't".split()
)
# A rule in a short message; in a long one it may be a passage of a pasted plan or review.
SOFT_RULES = _phrases(
    "should, shouldn't, has to, have to, needs to be, need it to, keep, instead, prefer, i want, we want, i'd "
    "like, i would like, i'd rather, don't want, don't like, don't need, no need to, no longer, leave it, leave "
    "the, backwards compat*, backward compat*, on purpose, it's fine, not needed, not necessary, at most, let's "
    "not, must be"
)
# What is said with one of these is a thought and no rule yet.
SOFT_HEDGES = _phrases(
    "maybe, perhaps, i guess, i wonder, not sure, i thought, we could, should that, should it, should this, what "
    "about, "
    "probably, or not"
)
# Languages that do not part words by spaces.
UNSPACED_RULES = _pieces(
    "不要, 不能, 不得, 不可, 不准, 不许, 别再, 请勿, 切勿, 必须, 必需, 一定要, 务必, 只能, 只用, 仅使用, "
    "请使用, 请用, 而不是, 而是, 應該, 应该, 必須, 改用, 禁止, "
    "ないで, しないこと, てはいけ, てはなら, 必ず, ではなく, の代わりに, だけ使, のみ使, してください, "
    "なければなら, 하지 마, 하지마, 지 마세요, 지 말, 안 됩니다, 안 돼, 반드시, 항상, 절대, 대신, 만 사용, "
    "해야 합, 해야 해, 금지"
)
# Reports and sayings in which a cue above gives no rule; they are taken out of a sentence first.
REPORTS = _phrases(
    "never mind, never seen, never heard, never had, it never, is never, was never, are never, never called, "
    "must have, must be a, must be the, must be because, it always, is always, somehow always, are always, "
    "should have, should i, should we, also should, then should, should work, should be fine, should be good, "
    "have to say, have to admit, you have to, keep getting, keeps, keep seeing, i'd like to, i would like to, i "
    "want to, i want a"
)
CORRECTIONS = _phrases(
    "no, nope, nah, wrong, that's wrong, that is wrong, this is wrong, incorrect, actually, revert, undo, that's "
    "not, that is not, this is not, it's not, not what i, i meant, i mean, i said, i didn't say, i didn't mean, i "
    "didn't ask, we already, i already told, you misunderstood, you forgot, you missed, please revert, nein, "
    "falsch, das ist falsch, das stimmt nicht, non, c'est faux, ce n'est pas, eso no, está mal, não, isso está "
    "errado, нет, неправильно, не так"
)
UNSPACED_CORRECTIONS = _pieces("不对, 不是, 错了, 錯, 不，, いいえ, 違, ちがう, そうではなく, 아니, 틀렸, 틀린")
NOT_CORRECTIONS = _phrases(
    "no that's all, no thanks, no thank you, no one, no idea, no problem, no worries, no rush, no clue, no doubt, "
    "it's not clear, actually can you, i mean is"
)
# "Don't touch it" is an order, "I don't see it" is not: it begins a clause, and what follows is something to do.
FORBIDS = re.compile(
    r"(?:^|[,;:(\u2013\u2014-]\s?|\b(?:please|pls|and|but|so|then|also|just|again|no|ok|okay|or) )"
    r"(?:do not|don't|don\u2019t|dont) (?!(?:see|know|understand|think|get|have|remember|believe|care|mind|we|you|i"
    r"|they|really|even|seem|show|exist|work|appear|mean|recall)\b)",
    re.IGNORECASE,
)
QUESTIONS = frozenset(
    "why what how when where who which whose is are was were does do did has have am can could would will shall "
    "warum wie wann was wer pourquoi comment quand por cómo как почему что".split()
)

DECISIONS = _phrases(
    "decided to, decided on, decided against, decided not, we decided, i decided, go with, going with, went with, "
    "opted for, opting for, opted to, settled on, chose to, we chose, i chose, ruled out, rejected because, in "
    "favor of, in favour of, the approach is, the plan is to, the decision is, the decision was, the cleanest fix is, "
    "the simplest fix is, the right fix is, the best approach is, the fix is to, haben uns entschieden, haben "
    "beschlossen, nous avons décidé, hemos decidido, decidimos, решили"
)
UNSPACED_DECISIONS = _pieces("决定, 我们选择, 採用, に決め, ことにし, 하기로 결정, 하기로 했, 결정했")
INTENTS = _phrases("i'll, i will, i'm going to, i am going to, let's, we'll, we will, we should")
CHOICES = _phrases("instead of, rather than, because, so that, in order to avoid, not worth")
# To look before deciding is no decision.
LOOKS = _phrases(
    "check, checking, read, verify, verifying, look, looking, inspect, inspecting, monitor, monitoring, wait, guess, "
    "guessing, search, investigate"
)
# What was found out, and by words that leave no doubt.
CAUSES = _phrases(
    "root cause, found it, found the bug, found the issue, found the problem, found the cause, the real issue, the "
    "real problem, the actual issue, the actual problem, the culprit, the bug is, the bug was, this is the bug, the "
    "cause is, the cause was, was caused by, is caused by, turns out, turned out"
)
FINDINGS = CAUSES + _phrases(
    "the issue is, the issue was, the problem is, the problem was, the reason is, the reason was, fails because, "
    "failed because, failing because"
)
HEDGES = _phrases(
    "i think, maybe, may be, perhaps, might, could be, probably, possibly, likely, seems, seem, let me, let's check, "
    "what if, looks like, appears to, wait, hmm, i need to, if the, whether, want me to, would you, i suspect, "
    "suspect, "
    "not sure, i wonder, my test, my script, my mock"
)
# By these a speaker takes back what stands before.
RETRACTIONS = _phrases(
    "actually no, no wait, wait no, i was wrong, that's wrong, that is wrong, that was wrong, that's not it, "
    "that's not "
    "the issue, that's not the problem, that isn't the, that wasn't the, not the cause, false alarm, scrap that, "
    "scratch "
    "that, never mind, nevermind, forget it, forget that, roll back, roll it back, nope, nah"
)
# A sentence with one of these says something new about its subject, and so takes the place of an older one on it.
REVISIONS = _phrases(
    "actually, instead, no longer, not anymore, any more, switch to, switching to, changed, change of plan, "
    "reconsider*, "
    "rather than, forget, ignore, scrap, drop, you may now, you can now, from now on, after all, replaces, supersede*"
)
PROPOSALS = _phrases(
    "want me to, should i, shall i, like me to, should we, shall we, do you want, do you agree, want to, would you "
    "prefer, sound good, sounds good, ok to, okay to, ready to, can i, may i, go ahead"
)
ADVICE = _phrases(
    "i'd recommend, i recommend, i would recommend, i'd suggest, i suggest, i would suggest, i propose, i'd "
    "propose, my "
    "recommendation, i'd go with, the fix is, the fix, the plan, i'd say, i think, is better, is cleaner"
)
BLOCKERS = _phrases(
    "blocked by, blocked on, blocked until, is blocked, i'm blocked, waiting for you, waiting on you, waiting for "
    "your, cannot proceed, can't proceed, unable to proceed, cannot continue, need you to, need your, needs your, "
    "i need access, i need credentials, i need permission, please provide, please confirm"
)
# What a user says of something that does not work: a request to mend it, whatever was asked before.
PROBLEMS = _phrases(
    "fails, failing, failed, fail, broken, breaks, broke, crashes, crashed, error, errors, doesn't work, not working, "
    "isn't working, stopped working, is wrong, hangs, stuck, regression"
)
ACKNOWLEDGEMENTS = frozenset(
    "yes yeah yep yup y ok okay k sure no nope n lgtm thanks thank you great good nice cool perfect done please "
    "continue go ahead for it on proceed do sounds right correct exactly both all next hi hello hey got option "
    "number one two three a b c d e and the so much help your that's now very awesome bye stop ja nein oui non "
    "sí si sim да нет 好 好的 是 是的 继续 はい 続けて 네 예 계속".split()
)
# By these the user says that nothing more is wanted; what asks for something more stands in the second list.
CLOSINGS = _phrases(
    "thanks, thank you, thx, cheers, that's all, that is all, that will be all, that'll be all, nothing else, all set, "
    "appreciate it, appreciate your help, danke, vielen dank, merci, gracias, obrigado, obrigada, grazie, спасибо, "
    "谢谢, 多谢, ありがとう, ありがとうございます, 감사합니다"
)
ASKINGS = _phrases(
    "please, can you, could you, would you, also, but, however, still, now, next, i'd like, i would like, i want, i "
    "need, let's, we need, you need, should, then, make, add, fix, use, proceed, go ahead"
)
# Words that say nothing about a subject.
_COMMON = frozenset(
    "that this with from into have must should would could never always only please instead actually longer then than "
    "them they there here what when where which will your just also rule decision decided important remember note "
    "don't keep make sure rather anymore".split()
)


def spaced(sentence: str) -> str:
    """A sentence in small letters, with one space around and between its words, as the lists above expect it."""
    return f" {' '.join(sentence.lower().translate(_APART).split())} "


def words_of(sentence: str) -> frozenset[str]:
    """The words of a sentence that tell what it is about."""
    return frozenset(word for word in spaced(sentence).split() if len(word) > 3 and word not in _COMMON)


def revised(later: str, earlier: Iterable[str]) -> list[str]:
    """The earlier sentences that a later one revises: it says so, and both are about the same."""
    if not has_any(spaced(later), REVISIONS):
        return []
    now = words_of(later)
    words = ((each, words_of(each)) for each in earlier if each != later)
    return [each for each, before in words if len(now & before) * 2 > min(len(now), len(before)) > 0]


def has_any(text: str, cues: tuple[str, ...]) -> bool:
    """Whether one of the cues stands in a text."""
    for cue in cues:  # noqa: SIM110 - a third faster than a generator, and this runs on every sentence
        if cue in text:
            return True
    return False


_MOST_TEXT = 60_000
_ARGUMENTS = re.compile(r"<command-args>([^<]*)</command-args>")
_COMMAND = re.compile(r"<command-name>\s*(/?[\w:.-]{1,80})\s*</command-name>")
# Commands of the client behind which its user asks the model for something; behind the others is an option for it.
_ASKING_COMMANDS = frozenset(("plan", "init"))
_LONGEST_REMARK = 1_500
_SHORT_PROMPT = 300
_LONGEST_SENTENCE = 600
_BARE_TAG = re.compile(r"</?command-args>|</?user_query>|<image\b[^<>]{0,80}>|</image>|\[image\]", re.IGNORECASE)
_INTERRUPT = re.compile(r"\[Request interrupted by user[^\]\n]{0,40}\]")
_SKILL_TOOLS = frozenset(("Skill", "SlashCommand"))
_FENCE = re.compile(r"^[ \t]{0,8}```.*?(?:^[ \t]{0,8}```[^\n]*$|\Z)", re.DOTALL | re.MULTILINE)
_CAPITAL = r"[A-Z0-9\u00c0-\u00de\u0410-\u042f\u3040-\u9fff\uac00-\ud7af]"
# It starts with a set of characters, which makes the search several times faster than any other beginning.
_SENTENCE_END = re.compile(
    rf"[.!?…\u3002\uff01\uff1f\n](?:(?<=[\u3002\uff01\uff1f\n])|(?=[ \t]+[\"'(`*\[]{{0,2}}{_CAPITAL}))"
)
_BULLET = re.compile(r"\s*(?:[-*+•>]|\(?\d{1,3}[.)]|#{1,6})\s+")
_LONE_TAG = re.compile(r"</?[\w-]{1,60}>")
_LOG_LINE = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:|\[?\d\d:\d\d:\d\d|\w{3} +\d+ \d\d:\d\d|[{}\[\]|]|[+-]{2,}|\$ |\S+\.\w{1,5}:\d+"
    r"|(?:error|warning|fatal|diff --git|commit [0-9a-f]{7})\b|at \S+[(:]|File \"|//|/\*|<!"
    r"|[\u2500-\u257f\u276f\u23fa\u23bf]"
)


def own_words(message: Message) -> str:
    """A message's text without the parts that a client added in its author's name; each leaves a line break."""
    kept: list[str] = []
    is_expanded = False
    for part in message.parts:
        if isinstance(part, Text):
            words = _own(part.text)
            # Clients that queue a message may send it twice.
            if words and words not in kept and not (is_expanded and _is_prompt(words)):
                kept.append(words)
            is_expanded = is_expanded or "<command-name>" in part.text
    return "\n".join(kept)


class Utterance(Struct, frozen=True):
    """What somebody said in one turn."""

    turn: int
    text: str


def user_utterances(turns: Iterable[Turn]) -> list[Utterance]:
    """What the user said, turn by turn; turns in the user's name that hold only what a client added are left out."""
    found: list[Utterance] = []
    loads_skill = False
    for turn in turns:
        texts = (own_words(message) for message in turn.messages if message.role == "user")
        words = "\n".join(filter(None, texts))
        loads_skill, before = _loads_prompt(turn), loads_skill
        if words and not ((before or loads_skill) and _is_prompt(words)):
            found.append(Utterance(turn.number, words))
    return found


def _loads_prompt(turn: Turn) -> bool:
    """Whether a skill or a slash command brings in a text that the user has not written."""
    if turn.role == "user" and not turn.exchanges:
        return turn.messages[0].text[:400].lstrip().startswith(("<command-message>", "<command-name>"))
    return any(each.call and each.call.name in _SKILL_TOOLS for each in turn.exchanges)


def agent_utterances(turns: Iterable[Turn]) -> list[Utterance]:
    """What the agent said, turn by turn, without thinking, calls and results, and its provider's summaries of it."""
    found: list[Utterance] = []
    for turn in turns:
        said = [message for message in turn.messages if message.role == "assistant"]
        words = "\n".join(text for message in said for text in (message.provider_summary, message.text) if text)
        if words:
            found.append(Utterance(turn.number, words[:_MOST_TEXT]))
    return found


def is_quoted(line: str) -> bool:
    """Whether a line is a quotation, a log or code rather than somebody's own words."""
    return line.startswith((">", "```", "=== ")) or bool(_LOG_LINE.match(line) or _LONE_TAG.fullmatch(line))


def without_code(text: str) -> str:
    """A text without its fenced blocks."""
    return _FENCE.sub("\n", text) if "```" in text else text


def sentences(text: str) -> Iterator[str]:
    """The sentences and list items of prose, without their bullets; code, quotes and logs are passed over."""
    prose = without_code(text)
    start = 0
    for end in (*(found.end() for found in _SENTENCE_END.finditer(prose)), len(prose)):
        sentence = prose[start:end].strip()
        start = end
        if 2 < len(sentence) < _LONGEST_SENTENCE:
            bullet = _BULLET.match(sentence)
            if bullet:
                sentence = "" if sentence[0] == ">" else sentence[bullet.end() :]
            if len(sentence) > 2 and not _LOG_LINE.match(sentence):
                yield sentence


def _own(text: str) -> str:
    if is_client_text(text) or is_repair_text(text):
        return ""
    if "<command-name>" in text:
        text = _typed(text)
    if "<" in text:
        text = _BARE_TAG.sub("\n", without_client_blocks(text))
    text = without_client_ending(text[:_MOST_TEXT])
    if "[Request interrupted" in text:
        text = _INTERRUPT.sub("\n", text)
    text = text.strip()
    return "" if is_client_text(text) else text


def is_client_command(name: str) -> bool:
    """Whether a slash command speaks to the client alone, so that nothing in its name is for the model."""
    command = name.lstrip("/")
    return command in CLIENT_COMMANDS and command not in _ASKING_COMMANDS


def _typed(text: str) -> str:
    """Of a slash command what was typed after it, or else its name; the prompt it stands for is not the user's."""
    name = _COMMAND.search(text)
    command = name[1].lstrip("/") if name else ""
    arguments = "\n".join(filter(None, (found.strip() for found in _ARGUMENTS.findall(text))))
    if is_client_command(command):
        arguments = ""
    rest = without_client_blocks(_ARGUMENTS.sub("\n", text)).strip()
    if arguments or (rest and not _is_prompt(rest)):
        return arguments or rest
    return name[1] if name and command not in CLIENT_COMMANDS and "local-command" not in text else ""


def _is_prompt(text: str) -> bool:
    is_role = text.startswith(("You are a", "You are the", "Your task is", "Follow these steps"))
    return len(text) > _LONGEST_REMARK or text.startswith(("#", "---")) or (is_role and len(text) > _SHORT_PROMPT)
