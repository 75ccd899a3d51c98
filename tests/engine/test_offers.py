"""Lines and options are kept as numbers, and read back as what they were."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from context_compactor.engine.options import OUTCOME, Block, Blocks, Offers, Option, TextSource, joined_blocks
from context_compactor.engine.planner import _density_of, _entry
from context_compactor.engine.tiers import Tier
from context_compactor.engine.view import cut_blocks
from context_compactor.facts.kinds import Kind, Voice

lines = st.lists(st.text(alphabet="ab \u00e9\U0001f44d", min_size=0, max_size=200), max_size=8)
TEXT = "first line\nsecond line\n\nfourth line"


def source(number: int = 0, text: str = TEXT) -> TextSource:
    return TextSource(number, 1, Voice.AGENT, Kind.TALK, "agent", "turn_001", text, 9, cut_blocks(text), 4)


def keep(block: int, text: str, weight: float = 1.0, at: int = 0) -> Option:
    return Option("keep lines", at, Tier.KEEP, text, "said", weight, block)


@given(lines)
def test_every_block_is_a_piece_of_its_line(found):
    text = "\n".join(found)
    blocks = cut_blocks(text)
    assert list(blocks) == [blocks[at] for at in range(len(blocks))]
    for at, block in enumerate(blocks):
        assert block.text == blocks.text(at)
        assert block.text in found[block.first]
        assert blocks.is_text_of(block.text, at)
        assert not blocks.is_text_of(f"{block.text}x", at)


@given(st.lists(st.builds(Block, st.text(max_size=20), st.integers(0, 99), st.integers(1, 3)), max_size=5))
def test_joined_blocks_come_back(blocks):
    text, joined = joined_blocks(blocks)
    assert list(joined) == blocks
    assert text == "\n".join(block.text for block in blocks)


def test_offers_come_back_as_they_were_and_of_one_target_the_dearest_counts():
    offers = Offers([source(), source(1)])
    given_options = [
        keep(0, "first line"),
        keep(1, "second line", 2.0),
        keep(OUTCOME, "it ended well"),
        Option("digests", 0, Tier.SUMMARIZE, "in short", "long", 3.0, is_all=True),
        keep(0, "first line", at=1),
    ]
    for option in given_options:
        offers.add(option)
    dearer = structs.replace(given_options[0], weight=5.0, reason="an end", strategy="truncate outputs")
    offers.add(dearer)
    offers.add(structs.replace(given_options[1], weight=1.0))
    assert list(offers) == [dearer, *given_options[1:]]
    assert list(offers.without({0})) == given_options[4:]
    assert offers.without({7}) is offers


def test_a_text_without_blocks_has_none():
    assert list(Blocks("words")) == []


@given(st.floats(0, 1e300), st.floats(0, 1e300), st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1))
def test_the_denser_piece_comes_first_and_of_equal_ones_the_earlier(one, other, at, later):
    assert _density_of(_entry(one, at)) == one
    assert (_entry(one, at) < _entry(other, later)) == ((-one, at) < (-other, later))
