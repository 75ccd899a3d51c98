"""Keys and passwords by their values, so that no text that leaves this package holds one."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterator, Mapping
from urllib.parse import unquote

from context_compactor.errors import BadSetting

_SECRET_NAME = re.compile(r"(?:KEY|TOKEN|SECRET|PASSWORD)\Z")
_USERINFO = re.compile(r"(?<=//)[^/?#\s]*@")
# Shorter ones are placeholders, and words of their own in many texts.
_SHORTEST = 6
_MARK = "[redacted:key]"


class Secrets:
    """What an environment calls a key, token, secret or password, and the passwords in its and one other address."""

    def __init__(self, env: Mapping[str, str], address: str = "") -> None:
        found = {value.strip() for name, value in env.items() if _SECRET_NAME.search(name)}
        for text in (address, *(value for name, value in env.items() if name.endswith("_URL"))):
            found.update(_in_userinfo(text))
        self._values = sorted((value for value in found if len(value) >= _SHORTEST), key=len, reverse=True)

    def hide(self, text: str) -> str:
        """The text with a mark in the place of each secret, and without the user and password of any address."""
        for value in self._values:
            text = text.replace(value, _MARK)
        return without_userinfo(text)


def without_userinfo(text: str) -> str:
    """A text whose addresses name no user and no password."""
    return _USERINFO.sub("", text)


def read_key(env: Mapping[str, str], variable: str) -> str:
    """The key in a variable, "" when there is none, or `BadSetting` when it cannot be one."""
    key = env.get(variable, "").strip()
    if not (key.isascii() and key.isprintable()):
        raise BadSetting(f"{variable} holds a line break or another character that no key has; set it again")
    return key


def _in_userinfo(text: str) -> Iterator[str]:
    for said in _USERINFO.findall(text):
        user, _, password = said[:-1].partition(":")
        yield from (password, unquote(password))
        yield b64encode(unquote(f"{user}:{password}").encode()).decode()
