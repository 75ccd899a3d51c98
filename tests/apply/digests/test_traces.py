from __future__ import annotations

from context_compactor.engine.digests import digest
from context_compactor.facts.kinds import Kind
from tests.apply.digests import outputs


def short(text: str) -> list[str]:
    return digest(Kind.ERROR_TRACE, None, text).split("\n")


def test_a_python_chain_keeps_the_last_error_the_root_cause_and_its_frame():
    assert short(outputs.PYTHON_TRACE) == [
        "ledger.errors.UnknownAccount: no account 'mia'",
        "root cause: KeyError: 'mia'",
        "at /srv/app/ledger/store.py:52 in load: return self._rows[key]",
        "4 frames in all",
        "printed before: Testing the ledger",
    ]


def test_a_plain_traceback_skips_the_frames_of_libraries():
    text = outputs.PYTHON_TRACE.partition("following exception:\n\n")[2]
    lines = short(text + "\nretrying\n" * 8)
    assert lines[0] == "ledger.errors.UnknownAccount: no account 'mia'"
    assert lines[1] == 'at /srv/app/ledger/cli.py:31 in main: charge(store.load("mia"))'
    assert "printed after: retrying" in lines


def test_a_traceback_cut_at_its_head_is_still_read():
    text = outputs.PYTHON_TRACE.partition('File "/srv/app/run.py"')[2]
    assert short('  File "/srv/app/run.py"' + text)[0] == "ledger.errors.UnknownAccount: no account 'mia'"


def test_a_java_chain_keeps_the_last_cause_and_its_frame():
    assert short(outputs.JAVA_TRACE) == [
        'Exception in thread "main" com.acme.ledger.LedgerException: could not close the ledger',
        "root cause: java.io.IOException: disk quota exceeded",
        "at com.acme.ledger.Disk.flush(Disk.java:12)",
        "5 frames in all",
    ]


def test_node_keeps_the_error_and_the_first_own_frame():
    frames = "    at next (/srv/app/node_modules/express/lib/router/route.js:144:13)\n" * 10
    lines = short(outputs.NODE_TRACE.replace("\n\nNode.js", "\n" + frames + "\nNode.js"))
    assert lines[:3] == [
        "TypeError: Cannot read properties of undefined (reading 'exp')",
        "at /srv/app/src/auth/jwt.js:88:20 rotate",
        "14 frames in all",
    ]


def test_a_go_panic_keeps_the_first_frame_outside_of_the_runtime():
    assert short(outputs.GO_TRACE)[:2] == [
        "panic: runtime error: invalid memory address or nil pointer dereference",
        "at /srv/app/auth/store.go:41",
    ]


def test_a_rust_panic_keeps_what_it_said_and_where():
    assert short(outputs.RUST_TRACE)[:2] == [
        "called `Option::unwrap()` on a `None` value (src/main.rs:17:26)",
        "at ./src/main.rs:17:26",
    ]


def test_an_old_rust_panic_is_read_as_well():
    text = "thread 'main' panicked at 'index out of bounds', src/main.rs:4:5\n" + "note: backtrace line\n" * 20
    assert short(text)[0] == "index out of bounds (src/main.rs:4:5)"


def test_dotnet_and_ruby_are_read_too():
    dotnet = (
        "Unhandled exception. System.InvalidOperationException: ledger is closed\n"
        "   at System.Linq.ThrowHelper.ThrowNoElementsException()\n"
        + "   at Acme.Ledger.Close() in /srv/Ledger.cs:line 31\n"
        * 6
    )
    assert short(dotnet)[:2] == [
        "Unhandled exception. System.InvalidOperationException: ledger is closed",
        "at /srv/Ledger.cs:line 31 Acme.Ledger.Close()",
    ]
    ruby = "/srv/ledger.rb:31:in `close': ledger is closed (LedgerError)\n" + "\tfrom /srv/app.rb:9:in `main'\n" * 9
    assert short(ruby)[0] != ""


def test_the_exit_code_is_kept():
    text = f"<returncode>1</returncode>\n<output>\n{outputs.PYTHON_TRACE}</output>"
    assert "exit code 1, 4 frames in all" in short(text)
