"""Where a webhook may lead: to the public internet over https, and nowhere inside unless that is allowed.

A name is resolved once for each delivery, every address behind it is looked at, and the connection goes to that very
address. So a name that answers differently the second time leads nowhere else.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

from msgspec import Struct

from context_compactor.errors import BadSetting

_LONGEST_URL = 2_000
_DEFAULT_PORTS = {"https": 443, "http": 80}
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
# Addresses with a meaning inside of some networks only, which the standard library takes for public ones or has taken.
_INSIDE = tuple(
    map(
        ipaddress.ip_network,
        (
            "192.0.0.0/24",  # for protocols; some clouds have their machines' own facts there
            "192.88.99.0/24",
            "168.63.129.16/32",  # the host of a machine in Azure
            "64:ff9b:1::/48",
            "2001:20::/28",
            "3fff::/20",
            "5f00::/16",
            "fec0::/10",
        ),
    )
)
_TRY = "Try: an https address that the public internet can reach, or `compactor serve --allow-private-webhooks`."

Lookup = Callable[[str, int], Awaitable[list[str]]]
"""The addresses behind a name."""
Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class Target(Struct, frozen=True):
    """The parts of a webhook's address."""

    host: str
    port: int
    path: str
    is_tls: bool

    @property
    def host_header(self) -> str:
        """How the target is called in a request."""
        name = f"[{self.host}]" if ":" in self.host else self.host
        return name if self.port == _DEFAULT_PORTS["https" if self.is_tls else "http"] else f"{name}:{self.port}"


def read_target(url: str, *, allow_private: bool) -> Target:
    """The parts of an address, or `BadSetting` that says why it cannot be one."""
    if len(url) > _LONGEST_URL or not url.isascii() or any(char <= " " or char == "\x7f" for char in url):
        raise BadSetting(f"url: {url[:80]!r} is no address: it is too long, or holds what no address may. {_TRY}")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise BadSetting(f"url: {url[:80]!r} is no address: {error}. {_TRY}") from error
    if parts.scheme not in _DEFAULT_PORTS or not parts.hostname or parts.fragment or "@" in parts.netloc:
        raise BadSetting(f"url: {parts.scheme[:20]}://… is no address of a webhook, or holds a password. {_TRY}")
    if parts.scheme == "http" and not allow_private:
        raise BadSetting(f"url: http would send events for everybody to read. {_TRY}")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Target(parts.hostname, port or _DEFAULT_PORTS[parts.scheme], path, parts.scheme == "https")


def without_path(url: str) -> str:
    """An address as those may see it who may not use it: what stands behind the machine's name may be a key."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}" + ("/…" if parts.path.strip("/") or parts.query else "")


async def find_address(target: Target, lookup: Lookup, *, allow_private: bool) -> str:
    """The address to connect to, or `BadSetting` when any address behind the name is one inside."""
    found = await lookup(target.host, target.port)
    if not allow_private and not all(map(is_public, found)):  # where it leads is nothing that a stranger may learn
        raise BadSetting(f"url: {target.host[:80]!r} leads to no public address. {_TRY}")
    return found[0]


def is_public(text: str) -> bool:
    """Whether an address is one that anybody may reach: not loopback, private, link-local, shared or multicast."""
    address = _unwrapped(ipaddress.ip_address(text.partition("%")[0]))
    is_odd = address.is_multicast or address.is_reserved or any(address in network for network in _INSIDE)
    return address.is_global and not is_odd


def _unwrapped(address: Address) -> Address:
    """The IPv4 address within one of IPv6 that only wraps it."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
    return address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else None) or address


async def look_up(host: str, port: int) -> list[str]:
    """The addresses that the system knows for a name; `OSError` when there is none."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError as error:
        raise OSError(f"{host[:80]!r} is no name of a machine") from error
    return [str(entry[4][0]) for entry in found]
