from __future__ import annotations

import base64
import gzip
import json
import re
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from context_compactor.archive.redaction import SECRET_PATTERNS, redact
from context_compactor.errors import BadInput

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "keep-secrets-out.md"

# Put together here, so that nobody who looks for leaked secrets finds one in this file.
BODY = "a8Kd0Zq3Lm7Wx1Rt5Vb9Yc2Nf4Hg6JpQsUe" * 3
KEY_LINES = "\n".join([BODY[:64]] * 4)
CREDENTIALS = base64.b64encode(b"admin:s3cr3t").decode()

SECRETS = {
    "private_key": [KEY_LINES],
    "jwt": [f"eyJ{BODY[:20]}.eyJ{BODY[:40]}.{BODY[:43]}"],
    "aws_access_key": ["AKIA" + "Q3LM7WX1RT5VB9YC", "ASIA" + "Q3LM7WX1RT5VB9YC"],
    "aws_secret_key": [BODY[:40]],
    "github_token": [prefix + BODY[:36] for prefix in ("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_")],
    "gitlab_token": ["glpat-" + BODY[:20], "glpat-" + BODY[:27] + ".01.0w1a2b3c4"],
    "slack_token": ["xoxb-" + "123456789012-" + BODY[:24], "xapp-1-" + BODY[:30]],
    "slack_webhook": [f"T0A1B2C3D/B0A1B2C3D/{BODY[:24]}"],
    "anthropic_key": ["sk-ant-api03-" + BODY[:80]],
    "openai_key": ["sk-" + BODY[:48], "sk-proj-" + BODY[:64]],
    "model_key": ["gsk_" + BODY[:50], "xai-" + BODY[:60]],
    "huggingface_token": ["hf_" + BODY[:34]],
    "google_key": ["AIza" + BODY[:35], "ya29." + BODY[:60], "GOCSPX-" + BODY[:28]],
    "stripe_key": ["sk_live_" + BODY[:24], "rk_test_" + BODY[:24], "whsec_" + BODY[:32]],
    "npm_token": ["npm_" + BODY[:36]],
    "pypi_token": ["pypi-AgEIcHlwaS5vcmc" + BODY[:60]],
    "sendgrid_key": [f"SG.{BODY[:22]}.{BODY[:43]}"],
    "docker_token": ["dckr_pat_" + BODY[:27]],
    "digitalocean_token": ["dop_v1_" + "0a1b2c3d" * 8],
    "vault_token": ["hvs." + BODY[:90]],
    "bearer_token": [BODY[:24]],
    "basic_credentials": [CREDENTIALS],
    "url_password": ["hunter2", "p@ss:w0rd", "postgres"],
    "secret": ["hunter22", "s3cr3t-Value9", "Tr0ub4dor&3", BODY, "0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9"],
}
FRAMES = {
    "private_key": [
        "-----BEGIN RSA PRIVATE KEY-----\n{}\n-----END RSA PRIVATE KEY-----\n",
        "-----BEGIN PRIVATE KEY-----\n{}",
        "key: |\n  -----BEGIN OPENSSH PRIVATE KEY-----\n  {}\n  -----END OPENSSH PRIVATE KEY-----",
    ],
    "aws_secret_key": ["aws_secret_access_key = {}\n", '"SecretAccessKey": "{}",', "export AWS_SECRET_ACCESS_KEY='{}'"],
    "slack_webhook": ["curl https://hooks.slack.com/services/{} -d x"],
    "bearer_token": ["Authorization: Bearer {}", "-H 'authorization: bearer {}'", '{{"Authorization": "Bearer {}"}}'],
    "basic_credentials": ["Authorization: Basic {}", "authorization: basic {}\n"],
    "url_password": ["git clone https://me:{}@example.org/x.git", "redis://:{}@cache:6379/0"],
    "secret": [
        'password = "{}"',
        "PASSWORD='{}'\n",
        'self.db_password: str = "{}"',
        "DB_PASSWORD={}\nX=1",
        '{{"api_key": "{}"}}',
        '{{\\"clientSecret\\": \\"{}\\"}}',
        "x-api-key: {}",
        "SECRET_KEY={} python app.py",
        'os.environ["API_TOKEN"] = "{}"',
        "login --token {} --verbose",
        'login --password "{}"',
        "const apiKey = `{}`;",
        "SECRET_KEY_BASE={}",
    ],
}
ANYWHERE = ["{}", "the key {}.", "x={};", '"{}"', "({})", "line\\n{}\\nline", "\n{}\n", "a,{},b", "<{}>", "Bearer {}"]

CASES = [
    pytest.param(kind, frame, secret, id=f"{kind}-{at}-{number}")
    for kind, secrets in SECRETS.items()
    for at, frame in enumerate(FRAMES.get(kind, ANYWHERE))
    for number, secret in enumerate(secrets)
    if not ("&" in secret and "'" not in frame and '"' not in frame and "`" not in frame)
]


@pytest.mark.parametrize(("kind", "frame", "secret"), CASES)
def test_a_secret_is_replaced_and_what_is_around_it_stays(kind, frame, secret):
    redacted = redact(frame.format(secret))
    assert redacted.found == {kind: 1}
    assert secret not in redacted.value
    before, after = frame.format("\0").split("\0")
    assert redacted.value.startswith(before)
    assert redacted.value.endswith(after.lstrip() if kind == "private_key" else after)
    assert f"[redacted:{kind}]" in redacted.value


def test_every_kind_of_the_table_is_tested():
    assert set(SECRETS) == {pattern.kind for pattern in SECRET_PATTERNS}


@pytest.mark.parametrize(
    "text",
    [
        "password=None",
        "password = null;",
        "password: true",
        'password = os.environ["API_KEY"]',
        "api_key = os.getenv('OPENAI_API_KEY_2')",
        "apiKey: process.env.API_KEY_1,",
        "token = get_token2(user)",
        "secret = self.config.secret_v2",
        "password=password1",
        'api_key="<your-key>"',
        "API_KEY=your-api-key-123",
        "token: xxxxxxxxxxxx",
        "SECRET_KEY=********",
        "PASSWORD=${DB_PASSWORD_1}",
        'password: "{{ vault_password_1 }}"',
        "password: %(password1)s",
        "Authorization: Bearer $TOKEN1",
        "Authorization: Bearer <token>",
        "Bearer authentication is required here",
        "Basic authentication",
        "def login(user: str, password: str = '') -> Token1: ...",
        "password: Optional[str] = None",
        "max_tokens: 4096, token_count=123456789",
        "token=1234567890",
        "passwordHash: a8f5f167f44f",
        "secretName: my-app-secret-1",
        "secret: /run/secrets/db1",
        "secret: arn:aws:secretsmanager:eu-west-1:123456789012:secret:x",
        "PWD=/srv/app1/code",
        "postgres://user:password@localhost/db",
        "postgres://${USER}:${PASSWORD}@host",
        "http://localhost:8080/a@b",
        "see https://example.org:443/@scope/name",
        "git@github.com:me/repo.git",
        "sk-estimator-doc-link-of-some-style-sheet",
        "sk-ant-xxxxxxxxxxxxxxxxxxxxxxxxxxxx",
        "ghp_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
        "AKIAIOSFODNN7EXAMPLE",
        "if text.startswith('-----BEGIN PRIVATE KEY-----') and text.endswith('-----END PRIVATE KEY-----'):",
        "-----BEGIN PUBLIC KEY-----\n" + KEY_LINES + "\n-----END PUBLIC KEY-----",
        "-----BEGIN CERTIFICATE-----\n" + KEY_LINES + "\n-----END CERTIFICATE-----",
        "commit a8f5f167f44f4964e6c998dee827110ca8f5f167",
        "docker run -u 1000:1000 image; curl x",
        "npm_config_registry_of_some_company_or_other=1",
        '{"password": "Contraseña", "token": "Schlüsselwort"}',
        "risk-free-and-other-words-in-a-long-line1",
    ],
)
def test_what_only_looks_like_a_secret_stays(text):
    redacted = redact(text)
    assert redacted.value is text
    assert redacted.found == {}


def test_nothing_is_found_in_the_session_that_ships_with_the_package():
    with gzip.open(PAGE.parents[2] / "examples" / "demo_session.jsonl.gz") as lines:
        for line in lines:
            assert redact(json.loads(line)).found == {}


def test_all_secrets_of_a_text_are_found_and_counted():
    github, aws = SECRETS["github_token"][0], SECRETS["aws_access_key"][0]
    redacted = redact(f"{github} {aws}\nand {github}")
    assert redacted.value == "[redacted:github_token] [redacted:aws_access_key]\nand [redacted:github_token]"
    assert redacted.found == {"github_token": 2, "aws_access_key": 1}


def test_what_was_refused_may_hold_a_secret():
    assert redact("secret: https://x/?token=abc123def456&y").value == "secret: https://x/?token=[redacted:secret]&y"


def test_a_very_long_value_is_replaced_to_its_end():
    for frame in ('password="{}" x', "password={} x"):
        assert redact(frame.format(BODY * 20)).value == frame.format("[redacted:secret]")


def test_arguments_that_are_json_stay_json():
    arguments = json.dumps({"command": f"export API_KEY={BODY}\necho 'done'", "env": {"password": "hunter22x"}})
    redacted = json.loads(redact(arguments).value)
    assert redacted["command"] == "export API_KEY=[redacted:secret]\necho 'done'"
    assert redacted["env"] == {"password": "[redacted:secret]"}


def test_a_value_is_judged_by_its_key_too():
    call = {"type": "tool_use", "input": {"user": "me1234567", "dbPassword": "hunter22x", "note": "password policy"}}
    redacted = redact(call)
    assert redacted.value["input"] == {
        "user": "me1234567",
        "dbPassword": "[redacted:secret]",
        "note": "password policy",
    }
    assert redacted.found == {"secret": 1}
    assert call["input"]["dbPassword"] == "hunter22x"


@pytest.mark.parametrize("value", ["hunter2", "Tr0ub4dor&3", BODY])
def test_what_is_found_in_text_is_found_in_a_dictionary(value):
    assert redact({"password": value}).found == redact(json.dumps({"password": value})).found == {"secret": 1}


def test_keys_are_never_touched():
    token = SECRETS["github_token"][0]
    value = {token: 1}
    assert redact(value).value is value


def test_what_did_not_change_is_the_same_object():
    token, rest = SECRETS["github_token"][0], {"role": "user", "content": ["nothing here"]}
    value = [rest, {"role": "user", "content": token}]
    redacted = redact(value).value
    assert redacted[0] is rest
    assert redacted[1] == {"role": "user", "content": "[redacted:github_token]"}
    assert value[1]["content"] == token


LEAK = "password=hunter22x"


@pytest.mark.parametrize(
    "block",
    [
        {"type": "thinking", "thinking": LEAK, "signature": LEAK},
        {"type": "redacted_thinking", "data": LEAK},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": LEAK}], "encrypted_content": "gAAAA"},
        {"type": "reasoning.text", "text": LEAK, "signature": "c2lnbmVk"},
        {"type": "base64", "media_type": "image/png", "data": "AKIA" + "Q3LM7WX1RT5VB9YC"},
        {"type": "image", "mimeType": "image/png", "data": "AKIA" + "Q3LM7WX1RT5VB9YC"},
        {"data": "AKIA" + "Q3LM7WX1RT5VB9YC", "format": "wav"},
        {"signature": LEAK},
        {"image_url": f"data:image/png;base64,{SECRETS['aws_access_key'][0]}"},
    ],
)
def test_signed_thinking_and_media_are_left_alone(block):
    value = [{"role": "assistant", "content": [block]}]
    assert redact(value).value is value


@pytest.mark.parametrize(
    "block",
    [
        {"type": "text", "media_type": "text/plain", "data": LEAK},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": LEAK}]},
        {"data": LEAK, "format": "env"},
        {"data": LEAK},
        {"image_url": f"data:image/png;base64,AAAA {LEAK}"},
        {"type": ["thinking"], "text": LEAK},
    ],
)
def test_plain_text_in_their_place_is_not(block):
    assert redact([block]).found == {"secret": 1}


@pytest.mark.parametrize("value", [None, True, 0, 1.5, "", [], {}, "\ud800", {"\ud800": ["\udfff"]}, "İ" * 20])
def test_a_value_without_secrets_is_itself(value):
    assert redact(value).value is value


def test_half_characters_and_odd_capitals_do_not_move_what_is_replaced():
    assert redact(f"\ud800İ {LEAK} \udfffİ").value == "\ud800İ password=[redacted:secret] \udfffİ"


def test_a_value_that_is_nested_too_deeply_is_refused():
    value: list[object] = []
    for _ in range(100_000):
        value = [value]
    with pytest.raises(BadInput, match="nested too deeply"):
        redact(value)


PIECES = st.sampled_from(
    [
        *(secret for secrets in SECRETS.values() for secret in secrets),
        *(prefix + "-" * 3 for prefix in ("sk", "ghp_", "eyJ", "AKIA", "glpat", "SG.", "xoxb")),
        *"-_. \t\n\"'`\\:=@/?&,;()[]{}<>$%*+#|",
        *("\\n", '\\"', "://", "a", "Z", "7", "eyJ", "ghp_", "sk-", "AKIA", "Bearer ", "Basic ", "password", "token="),
        *(
            "-----BEGIN PRIVATE KEY-----",
            "-----END PRIVATE KEY-----",
            "[redacted:secret]",
            "[redacted:",
            " -u a:",
            "curl",
        ),
        *(
            "api_key: ",
            "--secret ",
            "SecretAccessKey=",
            "https://u:",
            "hooks.slack.com/services/",
            "str = ",
            "İ",
            "\ud800",
        ),
    ]
)
TEXTS = st.lists(PIECES, max_size=14).map("".join)
VALUES = st.recursive(
    TEXTS | st.text() | st.integers() | st.none(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["password", "text", "data", "type", "signature"]), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(VALUES)
@example(["password=token=abc123def456"])
@example([f"bearer {BODY[:20]}password={'a1' * 20}://"])
@example([f"eyJ{BODY[:20]}.eyJ{BODY[:20]}.hf_whsec_{BODY[:20]}{'x' * 40}"])
@example([f"password={BODY} = {BODY}", f"token=[redacted:github_token] = {BODY}"])
@example([f"https://{BODY[:9]}password={BODY[:9]}[]{BODY[:9]}@x"])
@example([{"token": f"{BODY}&glpat-{BODY[:20]}@"}])
def test_redacting_twice_is_redacting_once(value):
    once = redact(value)
    twice = redact(once.value)
    assert twice.value is once.value
    assert twice.found == {}


@given(VALUES)
def test_a_value_comes_back_as_it_was_exactly_when_nothing_is_found(value):
    before = repr(value)
    redacted = redact(value)
    assert (redacted.value is value) == (not redacted.found)
    assert repr(value) == before


@given(TEXTS)
def test_as_many_marks_are_new_as_were_counted(text):
    redacted = redact(text)
    marks = re.compile(r"\[redacted:[a-z_]+\]")
    assert len(marks.findall(redacted.value)) >= sum(redacted.found.values())
    for piece in marks.split(redacted.value):
        assert piece in text


HOSTILE = [
    *("a", "-", "eyJ", "eyJaaaaaaaa.", "sk-", "-sk-", "ghp_", "SG.", "glpat-", "xoxb-", "AKIA", "npm_", "hf_", "pypi-"),
    *("-----BEGIN PRIVATE KEY-----", "-----BEGIN PRIVATE KEY-----" + BODY, "://a:b", "://:", "://@", "a@", "://"),
    *("password=", "password=https://", 'password="', "password: a", "token token ", "_pass", "secret_access_key="),
    *("bearer ", "basic ", "--token ", "curl -u a:", "hooks.slack.com/services/", "[redacted:secret]", "\\n", "\ud800"),
    *("key: abcdefgh.abc1.", "token=a_b1_", "password=aB1-", "password=" + "a1" * 200 + "=", "x" * 300 + " "),
]


@pytest.mark.parametrize("piece", HOSTILE, ids=lambda piece: repr(piece[:30]))
def test_a_hostile_line_is_read_in_time_that_grows_with_it_alone(piece):
    """With time that grows as the square, a line of this length would take hours."""
    line = piece * (300_000 // len(piece))
    redacted = redact(line)
    assert bool(redacted.found) == (redacted.value != line)
    assert redact(redacted.value).value == redacted.value


def test_a_line_of_five_megabytes_is_searched_to_its_end():
    redacted = redact("0123456789" * 500_000 + " " + LEAK)
    assert redacted.value.endswith("9 password=[redacted:secret]")


def test_the_page_shows_the_table_of_the_patterns():
    rows = [f"| `{pattern.kind}` | {pattern.looks_like} |" for pattern in SECRET_PATTERNS]
    assert "\n".join(["| kind | looks like |", "|---|---|", *rows]) in PAGE.read_text()
