"""Secrets replaced before anything is written: what a secret looks like, and how it is replaced."""

from __future__ import annotations

import base64
import binascii
import re
from collections import Counter
from collections.abc import Callable, Iterator
from math import log2
from typing import Any

from msgspec import Struct, structs

from context_compactor.errors import BadInput

MARK = "[redacted:"
JUDGED_LENGTH = 64
"""How many characters of a value decide; more would tell nothing new."""

_LEAST_BITS = 18
_PLACEHOLDER = re.compile(
    r"x{6}|\*{3}|\.{3}|…|<|\$\{|\{\{|(?<![a-z])your[-_]|example|placeholder|change[-_]?me|dummy|redacted",
    re.IGNORECASE,
)
_INDIRECT = re.compile(
    r"[$%{<\[]|(?:~|\.{1,2})?/[a-z]{2,12}(?:[/.]|$)|(?:https?|file|op|vault)://|(?:arn|env|ssm|vault):", re.IGNORECASE
)
_ATTRIBUTE = re.compile(r"[a-z_$][\w$]*(?:(?:\.|->|::)[a-z_$][\w$]*)+", re.IGNORECASE)
_WORDS = re.compile(r"[a-z]+\d{0,3}(?:[_-][a-z]+\d{0,3})+", re.IGNORECASE)
_NAME_WORD = re.compile(r"pass|pwd|secret|token|key", re.IGNORECASE)
_STAND_IN = frozenset("pass passwd password pw pwd secret token user username credentials".split())
_KINDS = tuple(map(re.compile, ("[a-z]", "[A-Z]", "[0-9]", r"[^\w./:=-]")))
_KEY_LINE = re.compile(r"[A-Za-z0-9+/=]{32}")


def is_written_out(value: str) -> bool:
    """Not a placeholder such as `<your-key>` or `xxxxxxxx`, and not what stands for a secret already."""
    return not _PLACEHOLDER.search(value[:JUDGED_LENGTH]) and len(set(value[-16:])) > 3


def is_mixed(value: str) -> bool:
    """Letters with digits, or three of small letters, capitals, digits and signs: more than a word."""
    head = value[:JUDGED_LENGTH]
    has_small, has_capital, has_digit, has_sign = (kind.search(head) is not None for kind in _KINDS)
    is_rich = has_small + has_capital + has_digit + has_sign >= 3
    return (is_rich or (has_digit and (has_small or has_capital))) and is_written_out(value)


def is_quoted_secret(value: str) -> bool:
    """A literal with enough in it to be a secret, and no path, address, variable or chain of words."""
    if _INDIRECT.match(value) or _WORDS.fullmatch(value[:JUDGED_LENGTH]):
        return False
    return is_mixed(value) and _bits(value[:JUDGED_LENGTH]) >= _LEAST_BITS


def is_bare_secret(value: str) -> bool:
    """As a quoted one, and no name or attribute of a program either."""
    head = value[:JUDGED_LENGTH]
    is_name = head.isidentifier() and _NAME_WORD.search(head)
    return not is_name and not _ATTRIBUTE.fullmatch(head) and is_quoted_secret(value)


def is_url_password(value: str) -> bool:
    """Whatever is written out and is not just called `password`."""
    is_open = not _PLACEHOLDER.search(value[:JUDGED_LENGTH]) and not value.startswith(("$", "{", "%(", "[", "*"))
    return is_open and value.lower() not in _STAND_IN


def is_credentials(value: str) -> bool:
    """Base64 of `user:password`."""
    head = value[: min(len(value), JUDGED_LENGTH) // 4 * 4]
    try:
        decoded = base64.b64decode(head, altchars=b"-_" if "-" in head or "_" in head else None)
    except (binascii.Error, ValueError):
        return False
    return b":" in decoded and decoded.isascii() and decoded.decode().isprintable()


def is_key_text(value: str) -> bool:
    """A line of base64, not the code between two mentions of a key's first and last line."""
    return bool(_KEY_LINE.search(value))


def _bits(value: str) -> float:
    """How much the characters of a value tell by how often each occurs."""
    return -sum(times * log2(times / len(value)) for times in Counter(value).values())


_RUN = r"[A-Za-z0-9_-]"
# Behind a letter or digit no token begins, unless that is the end of an escape such as \n.
_EDGE = r"(?:(?<![A-Za-z0-9])|(?<=\\[nrtbf]))"
_WORD_EDGE = r"(?:(?<![A-Za-z0-9_-])|(?<=\\[nrtbf]))"

SECRET_NAME = (
    r"(?:passw(?:or)?d|passphrase|passcode|(?<=[_-])pass|pwd|secret|token|credentials?|authorization"
    r"|(?:api|access|account|auth|encryption|master|private|secret|service|shared|signing|storage)[_-]?key)"
    r"(?:[_-]?(?:base|dev|prod|staging|test|value|\d{1,2}))?(?![A-Za-z0-9_-])"
)
_NAME_HINTS = "pass pwd secret token credential authorization key"

_GAP = r"[ \t]{0,8}"
_QUOTE = r"\\{0,3}[\"'`]"
_SIGN = rf"(?:{_QUOTE}\]?)?{_GAP}(?::=|=>|={{1,3}}|:){_GAP}"
_TYPED_SIGN = rf"(?:{_QUOTE}\]?)?{_GAP}(?::{_GAP}[A-Za-z_][\w.\[\]|]{{0,40}}{_GAP}=|:=|=>|={{1,3}}|:){_GAP}"
_QUOTED = rf"[^\s\"'`\\]{{6,{JUDGED_LENGTH}}}+"
_BARE = rf"[^\s\"'`\\,;&|()<>{{}}\[\]]{{6,{JUDGED_LENGTH}}}+"
_BEGIN_KEY = r"-----BEGIN (?:[A-Z0-9]{1,12} ){0,4}PRIVATE KEY(?: BLOCK)?-----"
_IN_ADDRESS = r"[^\s/?#@\"'`<>\\]"


class SecretPattern(Struct, frozen=True):
    """One kind of secret: what it is called, what it looks like, and how it is found.

    The secret is what the expression's named group matches, or all of it. `hints` are texts in lower case, one of
    which must be there. With `any_case` the expression is for text in lower case. `is_secret` may say no to a match.
    """

    kind: str
    looks_like: str
    expression: re.Pattern[str]
    hints: tuple[str, ...]
    is_secret: Callable[[str], bool]
    any_case: bool = False


def _token(
    kind: str,
    looks_like: str,
    prefix: str,
    least: int,
    hints: str,
    tail: str = "",
    is_secret: Callable[[str], bool] = is_written_out,
) -> SecretPattern:
    expression = re.compile(rf"{_EDGE}(?:{prefix}){_RUN}{{{least},}}+{tail}")
    return SecretPattern(kind, looks_like, expression, tuple(hints.split()), is_secret)


def _context(
    kind: str, looks_like: str, expression: str, hints: str, is_secret: Callable[[str], bool]
) -> SecretPattern:
    return SecretPattern(kind, looks_like, re.compile(expression), tuple(hints.split()), is_secret, any_case=True)


SECRET_PATTERNS = (
    SecretPattern(
        "private_key",
        "what is between `-----BEGIN … PRIVATE KEY-----` and its end, or the base64 after it if it was cut",
        re.compile(
            rf"{_BEGIN_KEY}(?:\s|\\[nr])*+(?:(?P<secret>(?:[^-]++|-(?!----))++)(?=-----END )"
            r"|(?P<cut>(?:[\s\\\"'+>|:→]*+[A-Za-z0-9+/=]{32,}+)++))"
        ),
        ("private key",),
        is_key_text,
    ),
    SecretPattern(
        "jwt",
        "`eyJ….….…`",
        re.compile(rf"{_WORD_EDGE}eyJ{_RUN}{{8,}}+\.{_RUN}*+\.{_RUN}{{8,}}+(?:\.{_RUN}++){{0,2}}+"),
        ("eyj",),
        is_written_out,
    ),
    SecretPattern(
        "aws_access_key",
        "`AKIA…`, `ASIA…` and 16 more capitals and digits",
        re.compile(rf"{_EDGE}(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{{16}}(?![A-Za-z0-9])"),
        ("akia", "asia", "abia", "acca"),
        is_written_out,
    ),
    _context(
        "aws_secret_key",
        '`aws_secret_access_key = …`, `"SecretAccessKey": "…"` with 40 characters',
        rf"(?:secret_?access_?key|aws_?secret(?:_?key)?){_SIGN}(?:{_QUOTE})?(?P<secret>[A-Za-z0-9/+]{{40,}}+={{0,2}}+)",
        "secret",
        is_mixed,
    ),
    _token(
        "github_token",
        "`ghp_…`, `gho_…`, `ghs_…`, `github_pat_…` and the like",
        "gh[pousr]_|github_pat_",
        30,
        "ghp_ gho_ ghu_ ghs_ ghr_ github_pat_",
    ),
    _token(
        "gitlab_token",
        "`glpat-…`, `gldt-…`, `glrt-…`, `glcbt-…`, `glptt-…` and the like",
        "gl(?:pat|dt|rt|cbt|ptt|ft|imt|agent|soat|oas)-",
        20,
        "gl",
        rf"(?:\.{_RUN}{{2}}\.{_RUN}{{7,}}+)?+",
    ),
    _token("slack_token", "`xoxb-…`, `xoxp-…`, `xapp-…` and the like", "xox[a-z]-|xapp-", 10, "xox xapp-"),
    _context(
        "slack_webhook",
        "what follows `hooks.slack.com/services/`",
        r"hooks\.slack\.com/(?:services|workflows|triggers)/(?P<secret>[A-Za-z0-9/_-]{20,}+)",
        "hooks.slack.com",
        is_written_out,
    ),
    _token("anthropic_key", "`sk-ant-…`", "sk-ant-", 20, "sk-ant-"),
    _token("openai_key", "`sk-…`, `sk-proj-…`, and the keys of others that begin so", "sk-", 20, "sk-", "", is_mixed),
    _token("model_key", "`gsk_…`, `xai-…`, `pplx-…`, `r8_…`", "gsk_|xai-|pplx-|r8_", 30, "gsk_ xai- pplx- r8_"),
    _token("huggingface_token", "`hf_…`", "hf_(?=[A-Za-z0-9]{30})", 30, "hf_"),
    _token("google_key", "`AIza…`, `ya29.…`, `GOCSPX-…`", r"AIza|ya29\.|GOCSPX-", 20, "aiza ya29. gocspx-"),
    _token(
        "stripe_key", "`sk_live_…`, `rk_test_…`, `whsec_…`", "[sr]k_(?:live|test)_|whsec_", 16, "_live_ _test_ whsec_"
    ),
    _token("npm_token", "`npm_…`", "npm_(?=[A-Za-z0-9]{36})", 36, "npm_"),
    _token("pypi_token", "`pypi-…`", "pypi-", 50, "pypi-"),
    _token("sendgrid_key", "`SG.….…`", r"SG\.", 16, "sg.", rf"\.{_RUN}{{16,}}+"),
    _token("docker_token", "`dckr_pat_…`, `dckr_oat_…`", "dckr_[po]at_", 20, "dckr_"),
    _token("digitalocean_token", "`dop_v1_…`, `doo_v1_…`, `dor_v1_…`", "do[opr]_v1_", 40, "_v1_"),
    _token("vault_token", "`hvs.…`, `hvb.…`, `hvr.…`", r"hv[sbr]\.", 24, "hvs. hvb. hvr."),
    _context(
        "bearer_token",
        "`Authorization: Bearer …`",
        rf"{_EDGE}bearer[ \t]{{1,4}}(?P<secret>[A-Za-z0-9._~+/=-]{{16,}}+)",
        "bearer",
        is_mixed,
    ),
    _context(
        "basic_credentials",
        "`Authorization: Basic …` with base64 of `user:password`",
        rf"{_EDGE}basic[ \t]{{1,4}}(?P<secret>[A-Za-z0-9+/_-]{{8,}}+={{0,2}}+)",
        "basic",
        is_credentials,
    ),
    _context(
        "url_password",
        "`scheme://user:…@host`",
        rf"://[^\s/?#:@\"'`<>\\\[]{{0,256}}+:(?P<secret>{_IN_ADDRESS}++(?:@{_IN_ADDRESS}++(?=@))*+)@",
        "://",
        is_url_password,
    ),
    _context(
        "secret",
        '`password = "…"`, `"api_key": "…"`, `secret: str = \'…\'`: a literal under a name that ends so',
        rf"{SECRET_NAME}{_TYPED_SIGN}[rbu]{{0,2}}{_QUOTE}(?P<quoted>{_QUOTED})(?![ \t])",
        _NAME_HINTS,
        is_quoted_secret,
    ),
    _context(
        "secret",
        "`DB_PASSWORD=…`, `token: …`, `?api_key=…`: the same without quotes",
        rf"{SECRET_NAME}{_SIGN}(?P<bare>{_BARE})(?![(\[{{])",
        _NAME_HINTS,
        is_bare_secret,
    ),
    _context(
        "secret",
        "`--password …`, `--api-key …` on a command line",
        rf"(?<=-){SECRET_NAME}[ \t]{{1,4}}[\"']?(?P<bare>{_BARE})(?![(\[{{])",
        _NAME_HINTS,
        is_bare_secret,
    ),
    _context(
        "secret",
        "`curl -u user:…`",
        rf"[ \t](?:-u|--user)[ \t=]{{1,4}}[\"']?[^\s:\"'`\\]{{1,64}}+:(?P<bare>{_BARE})(?![(\[{{])",
        "curl",
        is_bare_secret,
    ),
)


_SHORTEST = 8
_ENDS_IN_NAME = re.compile(rf"{SECRET_NAME}\Z", re.IGNORECASE)
_SPACE = re.compile(r"\s")
_BASE64 = re.compile(r"[A-Za-z0-9+/]*+={0,2}")
_INLINE_URL = re.compile(r"data:[\w.+/;=-]{0,100};base64,[A-Za-z0-9+/]*+={0,2}")
# A value is judged by its beginning and replaced to its end.
_REST: dict[str | int, re.Pattern[str]] = {
    "quoted": re.compile(r"[^\s\"'`\\]*+"),
    "bare": re.compile(r"[^\s\"'`\\,;&|()<>{}\[\]]*+"),
}
_SEALS = ("signature", "encrypted_content")
_MEDIA_KEYS = ("media_type", "mime_type", "mimeType", "format")


class Redacted(Struct, frozen=True):
    """A value without its secrets, and how many of each kind were found."""

    value: Any
    found: dict[str, int]


def redact(value: Any) -> Redacted:
    """Any JSON value with `[redacted:KIND]` in the place of each secret in its texts; a struct of such values as well.

    The same object comes back when nothing is found. Keys, signed thinking and media are left alone.
    """
    found: Counter[str] = Counter()
    try:
        return Redacted(_redacted(value, found), dict(found))
    except RecursionError:
        raise BadInput("the value is nested too deeply to be searched for secrets") from None


def _redacted(value: Any, found: Counter[str]) -> Any:
    if isinstance(value, str):
        return _redacted_text(value, found)
    if isinstance(value, list | tuple):
        changed = [_redacted(inner, found) for inner in value]
        is_new = any(new is not old for new, old in zip(changed, value, strict=True))
        return type(value)(changed) if is_new else value
    if isinstance(value, Struct):
        fields = {name: _redacted(getattr(value, name), found) for name in value.__struct_fields__}
        return structs.replace(value, **{name: new for name, new in fields.items() if new is not getattr(value, name)})
    if isinstance(value, dict) and not _is_sealed(value):
        entries = {key: _redacted_entry(value, key, inner, found) for key, inner in value.items()}
        return entries if any(new is not value[key] for key, new in entries.items()) else value
    return value


def _redacted_entry(holder: dict[Any, Any], key: Any, value: Any, found: Counter[str]) -> Any:
    if key in _SEALS or (key == "data" and _holds_media(holder, value)):
        return value
    if isinstance(value, str) and isinstance(key, str) and _ENDS_IN_NAME.search(key[-40:]):
        return _redacted_under_name(value, found)
    return _redacted(value, found)


def _redacted_under_name(value: str, found: Counter[str]) -> str:
    """A text under a key such as `password`: what a pattern finds in it, or all of it if the rest may be a secret."""
    inside: Counter[str] = Counter()
    rest = _redacted_text(value, inside)
    if is_quoted_secret(rest) and not _SPACE.search(rest[:JUDGED_LENGTH]):
        return _mark("secret", found)
    found.update(inside)
    return rest


def _is_sealed(block: dict[Any, Any]) -> bool:
    """Thinking that its provider would refuse if a letter of it were changed."""
    kind = block.get("type")
    is_reasoning = isinstance(kind, str) and kind.startswith("reasoning")
    return kind in ("thinking", "redacted_thinking") or (is_reasoning and any(block.get(seal) for seal in _SEALS))


def _holds_media(block: dict[Any, Any], value: Any) -> bool:
    kind = block.get("type")
    is_media = kind == "base64" or (kind != "text" and any(key in block for key in _MEDIA_KEYS))
    return is_media and isinstance(value, str) and _BASE64.fullmatch(value[:JUDGED_LENGTH]) is not None


def _redacted_text(text: str, found: Counter[str]) -> str:
    """A text searched until nothing is found: what was refused may be a secret once something in it is gone.

    That is seen by a pattern which comes earlier than the one that took it, so the rounds are few.
    """
    if len(text) < _SHORTEST or _INLINE_URL.fullmatch(text):
        return text
    for _ in SECRET_PATTERNS:
        before, text = text, _searched_once(text, found)
        if text is before:
            break
    return text


def _searched_once(text: str, found: Counter[str]) -> str:
    lowered = _lower(text)
    for pattern in SECRET_PATTERNS:
        if any(hint in lowered for hint in pattern.hints):
            pieces = list(_pieces(text, lowered if pattern.any_case else text, pattern, found))
            if len(pieces) > 1:
                text = "".join(pieces)
                lowered = _lower(text)
    return text


def _lower(text: str) -> str:
    """A text in lower case, character for character; one capital alone would become two."""
    return text.replace("\u0130", "i").lower()


def _pieces(text: str, searched: str, pattern: SecretPattern, found: Counter[str]) -> Iterator[str]:
    """The text with its secrets replaced, or in one piece when there are none."""
    kept = at = 0
    while match := pattern.expression.search(searched, at):
        group: str | int = match.lastgroup or 0
        start, end = match.span(group)
        if pattern.is_secret(text[start:end]):
            rest = _REST[group].match(text, end) if group in _REST else None
            yield text[kept:start]
            yield _mark(pattern.kind, found)
            kept = at = rest.end() if rest else end
        else:
            # What was refused may hold another one, unless it is a token, which holds none.
            at = start if start > match.start() else end
    yield text[kept:]


def _mark(kind: str, found: Counter[str]) -> str:
    found[kind] += 1
    return f"{MARK}{kind}]"
