"""How a server is set up, and where it listens."""

from __future__ import annotations

import socket
from pathlib import Path

from msgspec import Struct

from context_compactor.errors import BadSetting

MEGABYTE = 1 << 20
_BACKLOG = 2048
LOOPBACK_HOSTS = frozenset({"localhost", "127.0.0.1", "[::1]", "::1"})


def check_address(host: str, port: int, *, has_tokens: bool) -> None:
    """Raise when nobody can listen there, or when it could be called from other machines without a token."""
    if not 0 <= port < 65_536:
        raise BadSetting(f"--port: {port} is not a port number. Try: a number from 1 to 65535, or 0 for a free one.")
    if not has_tokens and host not in LOOPBACK_HOSTS:
        raise BadSetting(
            f"--host: {host!r:.80} is reachable from other machines, and no token file limits who may call. "
            "Try: `compactor token add NAME`, then --token-file; or --host 127.0.0.1."
        )


def bind(host: str, port: int) -> socket.socket:
    """A socket that listens at an address, or an error that says why not."""
    try:
        family, *_, address = socket.getaddrinfo(
            host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, socket.SOCK_STREAM)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address)
            listening.listen(_BACKLOG)
        except OSError:
            listening.close()
            raise
    except OSError as error:
        other = "--host" if isinstance(error, socket.gaierror) else "--port"
        raise BadSetting(f"cannot listen at {host}:{port}: {error.strerror or error}. Try: another {other}.") from error
    return listening


def url_of(host: str, listening: socket.socket) -> str:
    """Where a socket listens, as a URL."""
    name = f"[{host}]" if ":" in host and not host.startswith("[") else host
    return f"http://{name}:{listening.getsockname()[1]}"


class ServerConfig(Struct, frozen=True, kw_only=True):
    """Where a server listens, where its sessions rest, who may call it, and how much it takes on at once."""

    store: str
    host: str = "127.0.0.1"
    port: int = 8377
    token_file: Path | None = None
    workers: int = 2
    """Jobs that are worked on at once in this process; 0 leaves them to `compactor worker`."""
    origins: tuple[str, ...] = ()
    """Web pages of other sites that may call the server from a browser, such as `https://example.org`."""
    max_body_bytes: int = 32 * MEGABYTE
    body_seconds: float = 60.0
    """How long a request may take to arrive."""
    open_sessions: int = 256
    threads: int = 8
    stop_seconds: int = 30
    """How long requests may go on once the server is to stop."""

    event_readers: int = 2_000
    """How many may follow events at once; with tokens, of one namespace at most half of them."""
    public_metrics: bool = False
    """Whether `/metrics` is for everybody, although tokens are configured."""
    allow_private_webhooks: bool = False
    """Whether webhooks may lead to addresses that are not public, and over plain http."""

    def __post_init__(self) -> None:
        check_address(self.host, self.port, has_tokens=self.token_file is not None)

    @property
    def hosts(self) -> frozenset[str] | None:
        """The names by which the server may be called; None when any will do, since tokens keep strangers out."""
        return LOOPBACK_HOSTS if self.token_file is None else None

    @property
    def open_paths(self) -> frozenset[str]:
        """Paths that need no token here, though they do elsewhere."""
        return frozenset({"/metrics"}) if self.public_metrics else frozenset()
