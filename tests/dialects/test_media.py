"""Sizes read from the first bytes of a picture."""

from __future__ import annotations

import base64
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from context_compactor.dialects.media import image_size, inline_media, linked_media
from tests.dialects.strategies import picture

GIF = b"GIF89a" + struct.pack("<HH", 320, 200) + b"\0" * 20
WEBP_LOSSY = b"RIFF\0\0\0\0WEBPVP8 \0\0\0\0\0\0\0\x9d\x01\x2a" + struct.pack("<HH", 320, 200) + b"\0" * 9
WEBP_LOSSLESS = b"RIFF\0\0\0\0WEBPVP8L\0\0\0\0\x2f" + struct.pack("<I", 319 | 199 << 14) + b"\0" * 9
WEBP_EXTENDED = b"RIFF\0\0\0\0WEBPVP8X\0\0\0\0\0\0\0\0" + (319).to_bytes(3, "little") + (199).to_bytes(3, "little")


def jpeg(before: int = 16) -> bytes:
    thumbnail = b"\xff\xe1" + struct.pack(">H", before + 2) + b"x" * before
    frame = b"\xff\xc0" + struct.pack(">HBHHB", 17, 8, 200, 320, 3) + b"\0" * 20
    return b"\xff\xd8" + thumbnail + frame


@pytest.mark.parametrize("head", [GIF, WEBP_LOSSY, WEBP_LOSSLESS, WEBP_EXTENDED, jpeg(), jpeg(60_000)])
def test_the_size_of_a_picture_is_in_its_header(head):
    assert image_size(base64.b64encode(head).decode()) == (320, 200)


def test_the_size_of_a_png_is_in_its_header():
    assert image_size(picture(1024, 768)) == (1024, 768)


@pytest.mark.parametrize("text", ["", "A", "====", "é", "\ud800", "not base64 at all!", "iVBORw0KGgo=", "/9j/" * 1000])
def test_what_is_no_picture_has_no_size(text):
    assert image_size(text) == (0, 0)


@settings(deadline=None)
@given(
    st.text(max_size=200) | st.binary(max_size=200).map(lambda raw: base64.b64encode(b"\xff\xd8\xff" + raw).decode())
)
def test_any_text_has_a_size_or_none(text):
    width, height = image_size(text)
    assert width >= 0
    assert height >= 0


@settings(deadline=None)
@given(st.binary(max_size=100))
def test_the_byte_size_is_that_of_the_decoded_bytes(raw):
    assert inline_media("file", "", base64.b64encode(raw).decode()).byte_size == len(raw)


def test_a_data_url_holds_its_bytes_and_another_url_does_not():
    held = linked_media("image", f"data:image/png;base64,{picture(3, 4)}")
    assert (held.media_type, held.width, held.height) == ("image/png", 3, 4)
    assert linked_media("image", "https://example.com/a.png").byte_size == 0
