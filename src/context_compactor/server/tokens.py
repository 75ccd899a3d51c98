"""Bearer tokens, and the namespace that each may read or write. The token file holds only hashes."""

from __future__ import annotations

import hmac
import logging
import os
import re
import secrets
import stat
import time
from collections.abc import Iterator
from hashlib import sha256
from itertools import islice
from pathlib import Path

from msgspec import Struct

from context_compactor.errors import BadSetting, UnknownSession
from context_compactor.files import make_private_folder, one_writer, write_atomically
from context_compactor.protocols import Store
from context_compactor.sessions.state import check_id
from context_compactor.store.rows import SessionRow, prefix_of

_SEPARATOR = "/"
# Behind every id that begins with a namespace and the separator.
_LAST_CHARACTER = "\U0010ffff"
_ROWS_PER_READ = 200


class Scope(Struct, frozen=True):
    """Who asks: the name of the token, its namespace, and whether it may change anything."""

    namespace: str = ""
    may_write: bool = True
    name: str = ""

    @property
    def prefix(self) -> str:
        """What the ids of this namespace begin with in the store."""
        return prefix_of(self.namespace)

    def store_id(self, session_id: str) -> str:
        """The id in the store of a session that is asked for, or `UnknownSession` when it cannot be one."""
        try:
            return self.new_store_id(session_id)
        except BadSetting as error:
            raise UnknownSession(f"there is no session {session_id[:80]!r}. Try: GET /v1/sessions.") from error

    def new_store_id(self, session_id: str) -> str:
        """The id in the store of a session that is to be made, or `BadSetting` when it can have no such name."""
        if _SEPARATOR in session_id or session_id in (".", ".."):
            raise BadSetting(f"id: {session_id[:80]!r} cannot be part of a URL. Try: an id without '/', or no id.")
        check_id(session_id)
        return check_id(self.prefix + session_id) if self.namespace else session_id

    def public_id(self, store_id: str) -> str:
        """The id as its caller knows it."""
        return store_id.removeprefix(self.prefix)

    def public_text(self, text: str, store_id: str) -> str:
        """A text about a session, with its id as its caller knows it. A path that begins like the id is none."""
        known = self.public_id(store_id)
        if known in ("", store_id) or store_id not in text:
            return text
        return re.sub(rf"(?<![\w./-]){re.escape(store_id)}(?!\.?[\w/-])", lambda _: known, text)

    def includes(self, store_id: str) -> bool:
        """Whether a session of the store is in this namespace."""
        return store_id.startswith(self.prefix) if self.namespace else _SEPARATOR not in store_id

    def sessions(self, store: Store, after: str | None, limit: int) -> list[SessionRow]:
        """The next sessions of this namespace by their ids."""
        return list(islice(self._rows(store, self.prefix + (after or "")), limit))

    def _rows(self, store: Store, after: str) -> Iterator[SessionRow]:
        while rows := store.sessions(limit=_ROWS_PER_READ, after=after):
            for row in rows:
                if self.includes(row.id):
                    yield row
                elif self.namespace:
                    return
            after = rows[-1].id if self.includes(rows[-1].id) else max(rows[-1].id, _end_of_namespace(rows[-1].id))


def _end_of_namespace(store_id: str) -> str:
    """The end of another namespace: its sessions are stepped over, however many they are."""
    return store_id.split(_SEPARATOR, maxsplit=1)[0] + _SEPARATOR + _LAST_CHARACTER


_log = logging.getLogger("context_compactor")

TOKEN_PREFIX = "cct_"
FULL, READ = "full", "read"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_HASH = re.compile(r"[0-9a-f]{64}")
_RELOAD_SECONDS = 1.0


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
        _warn_if_world_accessible(path)
        self._seen = _file_stamp(path)
        self._look_at = time.monotonic() + _RELOAD_SECONDS

    def find(self, secret: str) -> Scope | None:
        """The scope of a token, or None when it is not known. It takes as long whichever token it is, or none."""
        self._look_again()
        given = token_hash(secret).encode()
        found: Token | None = None
        for token in self._tokens:
            if hmac.compare_digest(token.hash.encode(), given):
                found = token
        return found.scope if found else None

    def _look_again(self) -> None:
        if time.monotonic() < self._look_at:
            return
        self._look_at = time.monotonic() + _RELOAD_SECONDS
        stamp = _file_stamp(self.path)
        if stamp == self._seen:
            return
        try:
            self._tokens = read_tokens(self.path)  # a file that was taken away lets nobody in
        except BadSetting as error:
            _log.error("the tokens are as they were: %s", error)
        else:
            self._seen = stamp


def token_hash(secret: str) -> str:
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
    return [
        _parse_token(line, f"{path}, line {at}") for at, line in enumerate(lines, 1) if line.strip() and line[0] != "#"
    ]


def _parse_token(line: str, where: str) -> Token:
    parts = line.strip().split(":")
    if len(parts) != 4 or parts[2] not in (FULL, READ) or not _HASH.fullmatch(parts[3]):
        raise BadSetting(
            f"{where} is not a valid token line. "
            "Try: `compactor token add NAME`, which writes name:namespace:kind:hash."
        )
    return Token(check_name("name", parts[0]), check_namespace(parts[1]), parts[2], parts[3])


def check_name(what: str, text: str) -> str:
    """A name that can stand in the file."""
    if not _NAME.fullmatch(text):
        raise BadSetting(
            f"{what}: {text[:80]!r} is not a valid name. Try: letters, digits, '.', '_' and '-', at most 64."
        )
    return text


def check_namespace(text: str) -> str:
    """A namespace; the default one has no name."""
    return check_name("namespace", text) if text else ""


def add_token(path: Path, name: str, namespace: str, *, read_only: bool) -> str:
    """Make a token and write its hash; the token, which is nowhere else."""
    secret = TOKEN_PREFIX + secrets.token_urlsafe(32)
    token = Token(check_name("name", name), check_namespace(namespace), READ if read_only else FULL, token_hash(secret))
    make_private_folder(path.parent)
    with one_writer(path.parent):
        tokens = read_tokens(path)
        if any(each.name == name for each in tokens):
            raise BadSetting(f"name: there is a token {name!r} in {path} already. Try: another name, or remove it.")
        _write_tokens(path, [*tokens, token])
    return secret


def remove_token(path: Path, name: str) -> Token:
    """Take a token away; what it was."""
    _find_token(read_tokens(path), name, path)  # before anything is made where there is nothing
    with one_writer(path.parent):
        tokens = read_tokens(path)
        gone = _find_token(tokens, name, path)
        _write_tokens(path, [each for each in tokens if each is not gone])
    return gone


def _find_token(tokens: list[Token], name: str, path: Path) -> Token:
    found = next((each for each in tokens if each.name == name), None)
    if found is None:
        known = ", ".join(each.name for each in tokens) or "there is none"
        raise BadSetting(f"name: no token {name[:80]!r} in {path}; known: {known}")
    return found


def _write_tokens(path: Path, tokens: list[Token]) -> None:
    lines = ["# name:namespace:kind:sha256, written by `compactor token`", *(token.line() for token in tokens)]
    write_atomically(path, ("\n".join(lines) + "\n").encode(), private=True)


def _warn_if_world_accessible(path: Path) -> None:
    """Hashes let nobody in, but who can write the file can; and who may call is nobody else's business."""
    if os.name == "posix" and path.stat().st_mode & (stat.S_IROTH | stat.S_IWOTH):
        _log.warning("everybody on this machine can read or write the token file %s. Try: chmod 600.", path)


def _file_stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
