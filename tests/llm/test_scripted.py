"""The public fake."""

from __future__ import annotations

import threading

import pytest

from context_compactor.errors import ModelDenied, ModelStopped, ModelUnavailable
from context_compactor.summarize.model import ModelAnswer
from context_compactor.testing import FileModel, ScriptedModel
from tests.llm.asking import ask, control


def test_it_gives_its_answers_in_order_and_the_last_one_again():
    cut = ModelAnswer(text="cut", stop="length")
    model = ScriptedModel(["text", cut, lambda request: request.messages[-1].text.upper()])
    answers = [model.write(ask("hello"), control()) for _ in range(4)]
    assert [answer.text for answer in answers] == ["text", "cut", "HELLO", "HELLO"]
    assert answers[1] is cut
    assert len(model.requests) == 4


def test_it_raises_what_it_was_given():
    model = ScriptedModel([ModelUnavailable("busy"), "good"])
    with pytest.raises(ModelUnavailable):
        model.write(ask(), control())
    assert model.write(ask(), control()).text == "good"


def test_it_streams_and_can_be_cancelled():
    heard = []
    model = ScriptedModel(["good"])
    asked = control(on_text=heard.append)
    assert model.write(ask(), asked).text == "good"
    assert len(heard) == 1
    asked.cancel.set()
    with pytest.raises(ModelStopped):
        model.write(ask(), asked)


def test_threads_share_it():
    model = ScriptedModel([str(number) for number in range(50)])
    given = []
    threads = [threading.Thread(target=lambda: given.append(model.write(ask(), control()).text)) for _ in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(given, key=int) == [str(number) for number in range(50)]


def test_a_model_of_files_writes_what_it_is_asked_and_reads_the_answer_beside_it(tmp_path):
    with pytest.raises(ModelDenied, match=r"answer_001\.md is missing"):
        FileModel(tmp_path).write(ask("How are you?"), control())
    assert "How are you?" in (tmp_path / "request_001.md").read_text()
    (tmp_path / "answer_001.md").write_text("Well.")
    assert FileModel(tmp_path).write(ask("How are you?"), control()).text == "Well."
