"""What a secret looks like: one row for each kind, tried in this order.

Every expression takes time that grows with the text and no faster: a run of characters is read once (`++`), begins at
an edge, or is bounded. A secret is taken with all that could be part of it, so that nothing beside it becomes one
when it is gone.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from msgspec import Struct

from context_compactor.archive.redact_values import (
    LOOKED_AT,
    is_bare_secret,
    is_credentials,
    is_key_text,
    is_mixed,
    is_quoted_secret,
    is_url_password,
    is_written_out,
)

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
_QUOTED = rf"[^\s\"'`\\]{{6,{LOOKED_AT}}}+"
_BARE = rf"[^\s\"'`\\,;&|()<>{{}}\[\]]{{6,{LOOKED_AT}}}+"
_BEGIN_KEY = r"-----BEGIN (?:[A-Z0-9]{1,12} ){0,4}PRIVATE KEY(?: BLOCK)?-----"
_IN_ADDRESS = r"[^\s/?#@\"'`<>\\]"


class Pattern(Struct, frozen=True):
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
) -> Pattern:
    expression = re.compile(rf"{_EDGE}(?:{prefix}){_RUN}{{{least},}}+{tail}")
    return Pattern(kind, looks_like, expression, tuple(hints.split()), is_secret)


def _context(kind: str, looks_like: str, expression: str, hints: str, is_secret: Callable[[str], bool]) -> Pattern:
    return Pattern(kind, looks_like, re.compile(expression), tuple(hints.split()), is_secret, any_case=True)


PATTERNS = (
    Pattern(
        "private_key",
        "what is between `-----BEGIN … PRIVATE KEY-----` and its end, or the base64 after it if it was cut",
        re.compile(
            rf"{_BEGIN_KEY}(?:\s|\\[nr])*+(?:(?P<secret>(?:[^-]++|-(?!----))++)(?=-----END )"
            r"|(?P<cut>(?:[\s\\\"'+>|:→]*+[A-Za-z0-9+/=]{32,}+)++))"
        ),
        ("private key",),
        is_key_text,
    ),
    Pattern(
        "jwt",
        "`eyJ….….…`",
        re.compile(rf"{_WORD_EDGE}eyJ{_RUN}{{8,}}+\.{_RUN}*+\.{_RUN}{{8,}}+(?:\.{_RUN}++){{0,2}}+"),
        ("eyj",),
        is_written_out,
    ),
    Pattern(
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
