"""Tokens: who may call the server. The file holds only hashes; a token is shown once, when it is made.

One token on each line: `name:namespace:kind:sha256`. The kind is `full` or `read`; what begins with `#` is a comment.
"""

from __future__ import annotations

import hmac
import logging
import os
import re
import secrets
import stat
import time
from hashlib import sha256
from pathlib import Path

from msgspec import Struct

from context_compactor.errors import BadSetting
from context_compactor.files import make_private_folder, one_writer, write_atomically
from context_compactor.server.scope import Scope

_log = logging.getLogger("context_compactor")

PREFIX = "cct_"
FULL, READ = "full", "read"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_HASH = re.compile(r"[0-9a-f]{64}")
_LOOK_AGAIN_SECONDS = 1.0


class Token(Struct, frozen=True):
    """A token as the file knows it."""

    name: str
    namespace: str
    kind: str
    hash: str

    @property
    def scope(self) -> Scope:
        """What it may see and do."""
        return Scope(self.namespace, self.kind == FULL, self.name)

    def line(self) -> str:
        """Its line in the file."""
        return f"{self.name}:{self.namespace}:{self.kind}:{self.hash}"


class TokenFile:
    """The tokens of a server. What is added or removed while it runs counts within a second."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._tokens = read_tokens(path)
        if not self._tokens:
            raise BadSetting(f"token file: no token is in {path}. Try: `compactor token add NAME --file {path}`.")
        _warn_if_open(path)
        self._seen = _stamp(path)
        self._look_at = time.monotonic() + _LOOK_AGAIN_SECONDS

    def find(self, secret: str) -> Scope | None:
        """The scope of a token, or None when it is not known. It takes as long whichever token it is, or none."""
        self._look_again()
        given = hash_of(secret).encode()
        found: Token | None = None
        for token in self._tokens:
            if hmac.compare_digest(token.hash.encode(), given):
                found = token
        return found.scope if found else None

    def _look_again(self) -> None:
        if time.monotonic() < self._look_at:
            return
        self._look_at = time.monotonic() + _LOOK_AGAIN_SECONDS
        stamp = _stamp(self.path)
        if stamp == self._seen:
            return
        try:
            self._tokens = read_tokens(self.path)  # a file that was taken away lets nobody in
        except BadSetting as error:
            _log.error("the tokens are as they were: %s", error)
        else:
            self._seen = stamp


def hash_of(secret: str) -> str:
    """How a token is stored. It is random and long, so it needs no salt."""
    return sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def read_tokens(path: Path) -> list[Token]:
    """All tokens of a file; none when there is no file."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError) as error:
        raise BadSetting(f"token file {path} cannot be read: {error}") from error
    return [_read(line, f"{path}, line {at}") for at, line in enumerate(lines, 1) if line.strip() and line[0] != "#"]


def _read(line: str, where: str) -> Token:
    parts = line.strip().split(":")
    if len(parts) != 4 or parts[2] not in (FULL, READ) or not _HASH.fullmatch(parts[3]):
        raise BadSetting(
            f"{where} is no token. Try: `compactor token add NAME`, which writes name:namespace:kind:hash."
        )
    return Token(check_name("name", parts[0]), check_namespace(parts[1]), parts[2], parts[3])


def check_name(what: str, text: str) -> str:
    """A name that can stand in the file."""
    if not _NAME.fullmatch(text):
        raise BadSetting(f"{what}: {text[:80]!r} is no name. Try: letters, digits, '.', '_' and '-', at most 64.")
    return text


def check_namespace(text: str) -> str:
    """A namespace; the default one has no name."""
    return check_name("namespace", text) if text else ""


def add_token(path: Path, name: str, namespace: str, *, read_only: bool) -> str:
    """Make a token and write its hash; the token, which is nowhere else."""
    secret = PREFIX + secrets.token_urlsafe(32)
    token = Token(check_name("name", name), check_namespace(namespace), READ if read_only else FULL, hash_of(secret))
    make_private_folder(path.parent)
    with one_writer(path.parent):
        tokens = read_tokens(path)
        if any(each.name == name for each in tokens):
            raise BadSetting(f"name: there is a token {name!r} in {path} already. Try: another name, or remove it.")
        _write(path, [*tokens, token])
    return secret


def remove_token(path: Path, name: str) -> Token:
    """Take a token away; what it was."""
    _named(read_tokens(path), name, path)  # before anything is made where there is nothing
    with one_writer(path.parent):
        tokens = read_tokens(path)
        gone = _named(tokens, name, path)
        _write(path, [each for each in tokens if each is not gone])
    return gone


def _named(tokens: list[Token], name: str, path: Path) -> Token:
    found = next((each for each in tokens if each.name == name), None)
    if found is None:
        known = ", ".join(each.name for each in tokens) or "there is none"
        raise BadSetting(f"name: no token {name[:80]!r} in {path}; known: {known}")
    return found


def _write(path: Path, tokens: list[Token]) -> None:
    lines = ["# name:namespace:kind:sha256, written by `compactor token`", *(token.line() for token in tokens)]
    write_atomically(path, ("\n".join(lines) + "\n").encode(), private=True)


def _warn_if_open(path: Path) -> None:
    """Hashes let nobody in, but who can write the file can; and who may call is nobody else's business."""
    if os.name == "posix" and path.stat().st_mode & (stat.S_IROTH | stat.S_IWOTH):
        _log.warning("everybody on this machine can read or write the token file %s. Try: chmod 600.", path)


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
