from __future__ import annotations

import base64
import json
import random
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from splintr import Tokenizer

from context_compactor.errors import BadSetting
from context_compactor.protocols import TokenCounter
from context_compactor.tokens import counting as tokens_module
from context_compactor.tokens.counting import FunctionCounter, VocabularyCounter, counter_for, replace_surrogates

GOLDEN = json.loads((Path(__file__).parent / "golden_tokens.json").read_text("utf-8"))
ANY_TEXT = st.text(st.characters(codec=None, categories=None), max_size=200)
CONTROL_WORDS = st.lists(st.sampled_from(["<|endoftext|>", "<|im_start|>", "<|", "|>", "<|user|>", "a", " ", "é"]))

MODELS = [
    ("gpt-4o-mini", "o200k_base", 0.0),
    ("openai/gpt-4.1", "o200k_base", 0.0),
    ("gpt-5.5-codex", "o200k_base", 0.0),
    ("o3-mini", "o200k_base", 0.0),
    ("gpt-oss-120b", "o200k_base", 0.0),
    ("gpt-4-turbo", "cl100k_base", 0.0),
    ("gpt-3.5-turbo-16k", "cl100k_base", 0.0),
    ("claude-sonnet-4-5-20250929", "o200k_base x 1.15", 0.15),
    ("us.anthropic.claude-3-5-sonnet-20241022-v2:0", "o200k_base x 1.15", 0.15),
    ("claude-opus-4-20250514", "o200k_base x 1.15", 0.15),
    ("claude-opus-4-6[1m]", "o200k_base x 1.15", 0.15),
    ("claude-opus-4-7", "o200k_base x 1.5", 0.15),
    ("anthropic/claude-opus-4.8", "o200k_base x 1.5", 0.15),
    ("claude-fable-5-1", "o200k_base x 1.5", 0.15),
    ("claude", "o200k_base x 1.2", 0.25),
    ("gemini-2.5-pro", "gemma3", 0.05),
    ("deepseek-chat", "deepseek_v3", 0.05),
    ("meta-llama/Llama-3.3-70B-Instruct", "llama3", 0.02),
    ("Qwen/Qwen3-Coder", "qwen3", 0.05),
    ("mistral-large-latest", "mistral_v3", 0.05),
    ("mixtral-8x7b", "mistral_v2", 0.05),
    ("glm-4.6", "glm4", 0.05),
    ("kimi_k2", "kimi_k2", 0.05),
    ("http://127.0.0.1:8080/v1#some-model", "o200k_base", 0.10),
    (None, "o200k_base", 0.10),
]


@pytest.mark.parametrize("vocabulary", GOLDEN["ids"])
def test_the_exact_vocabularies_still_give_the_same_ids(vocabulary):
    tokenizer = Tokenizer.from_pretrained(vocabulary)
    assert [tokenizer.encode_ordinary(text) for text in GOLDEN["texts"]] == GOLDEN["ids"][vocabulary]
    assert VocabularyCounter(vocabulary).count_many(GOLDEN["texts"]) == [len(ids) for ids in GOLDEN["ids"][vocabulary]]


@pytest.mark.parametrize("vocabulary", GOLDEN["counts"])
def test_every_other_vocabulary_still_gives_the_same_counts(vocabulary):
    assert VocabularyCounter(vocabulary).count_many(GOLDEN["texts"]) == GOLDEN["counts"][vocabulary]


@pytest.mark.parametrize(("model", "name", "margin"), MODELS)
def test_a_models_name_chooses_its_counter(model, name, margin):
    counter = counter_for(model)
    assert (counter.name, counter.margin) == (name, margin)


def test_both_counters_have_the_shape_that_others_may_implement():
    assert isinstance(counter_for(None), TokenCounter)
    assert isinstance(FunctionCounter(len), TokenCounter)


def test_control_tokens_written_out_in_a_text_count_as_text():
    assert counter_for("gpt-4o").count("<|endoftext|>") == 7
    assert counter_for("gpt-4").count("<|im_start|>") > 1


@cache
def plain_tokenizer(vocabulary):
    return Tokenizer.from_pretrained(vocabulary)


@settings(deadline=None)
@given(st.lists(CONTROL_WORDS.map("".join), max_size=5))
@pytest.mark.parametrize("vocabulary", ["o200k_base", "cl100k_base"])
def test_the_fast_way_to_count_agrees_with_the_plain_one(vocabulary, texts):
    plain = plain_tokenizer(vocabulary)
    assert VocabularyCounter(vocabulary).count_many(texts) == [len(plain.encode_ordinary(text)) for text in texts]


@settings(deadline=None)
@given(ANY_TEXT, ANY_TEXT)
@pytest.mark.parametrize("model", ["gpt-4o", "claude-sonnet-4", "deepseek-chat"])
def test_counts_are_never_negative_and_add_up_within_a_few_tokens(model, first, second):
    counter = counter_for(model)
    parts, whole = counter.count_many([first, second]), counter.count(first + second)
    assert min(parts) >= 0
    assert whole <= sum(parts) + 3
    assert counter.count(first) == parts[0]


@given(ANY_TEXT)
def test_a_cleaned_text_can_always_be_written_as_utf8(text):
    cleaned = replace_surrogates(text)
    cleaned.encode("utf-8")
    assert replace_surrogates(cleaned) == cleaned


def test_cleaning_joins_a_pair_of_surrogates_and_replaces_a_lone_one():
    assert replace_surrogates("\ud83d\ude00") == "😀"
    assert replace_surrogates("a\ud800b") == "a\ufffdb"
    assert replace_surrogates("naïve") == "naïve"


def hostile_texts():
    noise = random.Random(7).randbytes(300_000)
    yield "spaces", " " * 1_000_000
    yield "base64", base64.b64encode(noise).decode()
    yield "emoji", "😀" * 250_000
    yield "NUL", "\0" * 300_000
    yield "lone surrogates", "x\udfff\ud800" * 50_000


@pytest.mark.parametrize(("name", "text"), list(hostile_texts()), ids=lambda value: value if len(value) < 20 else "")
def test_hostile_texts_are_counted(name, text):
    assert 0 < counter_for(None).count(text) <= 3 * len(text)


def test_nothing_is_loaded_until_something_is_counted():
    tokens_module._load_counter.cache_clear()
    counter_for("gpt-4")
    assert tokens_module._load_counter.cache_info().currsize == 0
    counter_for("gpt-4").count("a")
    counter_for("gpt-4").count("b")
    assert tokens_module._load_counter.cache_info().misses == 1


def test_an_empty_text_and_an_empty_list_cost_nothing():
    assert counter_for("claude-opus-5").count("") == 0
    assert counter_for("gemini-2.5-pro").count_many([]) == []


def test_any_function_of_a_text_is_a_counter():
    counter = FunctionCounter(len)
    assert counter.count_many(["ab", ""]) == [2, 0]
    assert counter.name == "len"


@pytest.mark.parametrize("answer", [-1, 2.5, "7", None, True])
def test_a_function_that_returns_no_count_is_named(answer):
    def my_counter(text):
        return answer

    with pytest.raises(BadSetting, match=r"my_counter must return a whole number .* it returned"):
        FunctionCounter(my_counter).count("text")


def test_a_function_that_fails_is_named_with_its_error():
    def broken(text):
        raise KeyError("no vocabulary")

    with pytest.raises(BadSetting, match=r"broken failed on a text of 4 characters with KeyError: 'no vocabulary'"):
        FunctionCounter(broken).count("text")
