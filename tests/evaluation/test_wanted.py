from __future__ import annotations

from context_compactor.evaluation.corpus import history_cuts
from context_compactor.evaluation.expected import FailedCall, RecalledName, find_wanted, is_bound, samples_of
from tests.evaluation.talks import anthropic_talk, openai_talk


def shop():
    talk = anthropic_talk()
    cut = next(cut for cut in history_cuts(talk) if cut.label == "75")
    return find_wanted(talk, cut)


def test_names_the_agent_writes_before_anything_shows_them_are_wanted():
    assert {"roundPriceUp", "shop/pricing_rules.py"} <= {name.text for name in shop().names}


def test_names_a_later_result_shows_first_are_not_wanted():
    assert "shop/cart_view.py" not in {name.text for name in shop().names}


def test_names_of_the_system_prompt_are_not_wanted():
    talk = openai_talk()
    texts = {name.text for sample in samples_of(talk) for name in sample.wanted.names}
    assert "repo/src" not in texts
    assert "roundPriceUp" in texts


def test_names_common_to_many_projects_are_not_wanted():
    talk = anthropic_talk()
    cut = next(cut for cut in history_cuts(talk) if cut.label == "75")
    assert "roundPriceUp" not in {name.text for name in find_wanted(talk, cut, frozenset({"roundPriceUp"})).names}


def test_calls_hold_the_names_they_need():
    want = shop()
    texts = [{want.names[index].text for index in call} for call in want.calls]
    assert texts[0] == {"shop/pricing_rules.py"} | texts[0]
    assert {"roundPriceUp"} <= texts[1]


def test_copied_words_are_wanted_until_they_are_shown_again():
    texts = {span.text for span in shop().spans}
    assert "return math ceil amount_cents 100" in texts


def test_the_old_text_of_an_edit_is_wanted():
    assert [edit.text for edit in shop().edits] == ["return math.ceil(amount_cents / 100) * 100"]
    assert shop().edits[0].origins == ("result Read",)


def test_a_failed_call_is_wanted_with_its_command_and_error():
    command, error = "pytest tests/test_prices.py -k rounding", "ERROR: file not found: tests/test_prices.py"
    assert shop().failures == (FailedCall(command, (error,)),)


def test_a_question_has_no_wanted_name_in_it():
    want = shop()
    for question in want.questions:
        assert not any(want.names[index].text in question.text for index in question.names)
    assert sorted(index for question in want.questions for index in question.names) == list(range(len(want.names)))


def test_a_name_is_bound_by_half_the_words_of_a_line_it_stood_in():
    name = RecalledName("roundPriceUp", (frozenset({"def", "amount", "cents", "guard"}),), ("result Read",), 0.5)
    assert is_bound(name, "roundPriceUp takes the amount in cents")
    assert not is_bound(name, "roundPriceUp, parsePrice, amount")
    assert not is_bound(name, "roundPriceUp" + " -" * 200 + " amount cents")


def test_a_cut_stands_before_a_reply_with_all_results_there():
    for make in (anthropic_talk, openai_talk):
        talk = make()
        for cut in history_cuts(talk):
            assert talk.messages[cut.at]["role"] == "assistant"
            waiting = sum(str(message).count("tool_use'") for message in talk.messages[: cut.at])
            answered = sum(str(message).count("tool_result'") for message in talk.messages[: cut.at])
            assert waiting == answered


def test_cuts_come_before_the_first_real_compaction_and_one_at_it():
    talk = openai_talk()
    found = history_cuts(talk)
    assert [cut.label for cut in found] == ["50", "75", "real0"]
    assert all(cut.at <= talk.events[0].at for cut in found)
    assert [cut.group for cut in found] == ["short", "main", "real"] or found[-1].group == "real"
