"""What was said about a question comes before what only mentions its words, together with its exchange."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_compactor import Hit
from context_compactor.archive.originals import Original
from context_compactor.archive.search import stored
from context_compactor.archive.search.passages import cut_originals, cut_text, group_by_exchange
from context_compactor.archive.search.search import Searcher
from context_compactor.archive.search.stored import search_stored
from context_compactor.store.sqlite import SqliteStore
from context_compactor.tokens.counting import counter_for
from tests.archive.test_search import result, said
from tests.archive.test_stored_search import MARCH, archive_originals

COUNTER = counter_for(None)
MENTIONS = "\n".join(f"// retry the upload {at} when the upload of the retry queue fails" for at in range(12))
STORY = (
    said("turn_001", "Please add a retry to the upload, at most three times."),
    result("file_001", MENTIONS),
    said("turn_002", "The upload is retried in queue.py now; three attempts, then it gives up.", "assistant"),
    said("turn_003", "ok. Now write the release notes."),
    result("file_002", "\n".join(f"note {at}: the retry of the upload queue" for at in range(12))),
    said("turn_004", "The release notes are written.", "assistant"),
)


def search(text: str, *originals: Original, **wanted) -> list[Hit]:
    return Searcher(originals, COUNTER).search(text, **wanted)


def test_what_was_said_comes_before_files_that_mention_the_words():
    hits = search("how often is the upload retried?", *STORY)
    assert {hit.id for hit in hits[:2]} == {"turn_001", "turn_002"}


def test_a_question_that_only_a_file_answers_finds_the_file():
    hits = search("where is the backoff jitter computed?", *STORY, result("file_009", "backoff = base + jitter"))
    assert hits[0].id == "file_009"


def test_a_hit_comes_with_what_was_asked_and_what_was_concluded():
    hits = search("queue mentions 7", said("turn_000", "Hello."), *STORY)
    around = [hit.id for hit in hits if hit.exchange == "turn_001"]
    assert {"turn_001", "turn_002"} <= set(around)


def test_an_agent_s_question_comes_with_the_user_s_reply():
    talk = (
        said("turn_001", "Are there tests for the parser?"),
        said("turn_002", "None. Shall I add one for empty input, one for errors and one for unicode?", "assistant"),
        said("turn_003", "yes, all three"),
        said("turn_004", "Done.", "assistant"),
    )
    assert "turn_003" in {hit.id for hit in search("which parser tests for unicode were agreed on?", *talk)}


def test_a_question_about_what_the_user_said_finds_the_user_s_words_first():
    agent = [said(f"turn_{at:03}", f"I commit change {at} to the branch.", "assistant") for at in range(2, 9)]
    hits = search("did the user ask for a commit?", *agent, said("turn_009", "commit this"), *STORY[3:])
    assert hits[0].id == "turn_009"


def test_what_a_client_wrote_in_the_user_s_name_is_not_the_user_s():
    reminder = said("turn_001", "<system-reminder>The task list is empty.</system-reminder>")
    skill = said("turn_002", "Base directory for this skill: /x\n\n# Review\n\nRead all comments.")
    own = said("turn_003", "<system-reminder>Be brief.</system-reminder>\nRead the comments, please.")
    assert {passage.kind for passage in cut_originals([reminder, skill])} == {"instructions"}
    assert "user" in {passage.kind for passage in cut_originals([own])}


def test_what_was_found_comes_before_what_was_about_to_be_done():
    talk = (
        said("turn_001", "The import hangs."),
        said("turn_002", "Let me look for the cause of the hanging import:", "assistant"),
        said("turn_003", "The import hangs since the lock of the queue is taken twice.", "assistant"),
        said("turn_004", "Good. Now let me check the cause of the hanging import again.", "assistant"),
    )
    hits = search("what is the cause of the hanging import?", *talk)
    order = [hit.id for hit in hits]
    assert order.index("turn_003") < min(order.index(each) for each in ("turn_002", "turn_004") if each in order)


def test_a_sentence_with_a_colon_is_no_speaker():
    talk = [said(f"turn_{at:03}", f"The number of the port is: {at}") for at in range(1, 5)]
    assert search("the number of the port is", *talk)


def test_how_things_stand_is_told_by_what_was_said_last():
    found = [
        said(f"turn_{at:03}", f"The state of the import bug: {word}.", "assistant")
        for at, word in enumerate(("open", "worked around", "solved"), 1)
    ]
    assert search("what is the state of the import bug now?", *found)[0].text.endswith("solved.")


@given(st.lists(st.sampled_from(["It works. ", "Does it? ", "The queue was full! ", "x" * 90 + " "]), max_size=60))
def test_long_speech_is_cut_behind_sentences(sentences):
    text = "".join(sentences)
    pieces = [passage.text for passage in cut_text(text, "turn_001", "agent")]
    assert "".join(pieces).strip() == text.strip()
    assert all(len(piece) <= 600 for piece in pieces)
    if "x" not in text:
        assert all(piece.rstrip()[-1] in ".?!" for piece in pieces)


def test_for_a_reader_each_exchange_is_told_from_its_beginning():
    hits = search("how often is the upload retried?", *STORY)
    shown = group_by_exchange(hits)
    assert sorted(map(hash, shown)) == sorted(map(hash, hits))
    first = [hit for hit in shown if hit.exchange == hits[0].exchange]
    assert shown[: len(first)] == first
    assert [hit.position for hit in first] == sorted(hit.position for hit in first)


def test_a_large_archive_gives_the_exchange_too(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(stored, "_LEAST", 2_000)
    monkeypatch.setattr(stored, "_PER_TOKEN", 0)
    store = SqliteStore()
    store.open_session("a", b"{}", MARCH)
    straw = [result(f"tool_{at:03}", f"nothing of interest {at}\n" * 30, "log") for at in range(100, 160)]
    asked = said("turn_001", "Make the lamp blink.")
    asked = Original(asked.id, asked.kind, "user: Make the lamp blink.", 0, asked.value, "")
    done = said("turn_002", "It blinks.", "assistant")
    done = Original(done.id, done.kind, "assistant: It blinks.", 0, done.value, "")
    needle = result("tool_050", "voltage = 4.2 at the second diode", "log")
    archive_originals(store, [asked, *straw[:30], needle, *straw[30:], done])
    hits = search_stored(store, "a", "what is the voltage at the diode?", COUNTER)
    store.close()
    assert {"tool_050", "turn_001", "turn_002"} <= {hit.id for hit in hits}
    assert {hit.exchange for hit in hits} == {"turn_001"}
