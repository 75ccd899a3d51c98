"""Tool outputs as tools really print them, long enough that a digest is worth it."""

from __future__ import annotations

PYTEST = """============================= test session starts ==============================
platform linux -- Python 3.11.7, pytest-8.3.4, pluggy-1.5.0
rootdir: /srv/app
collected 34 items

tests/test_auth.py ....F.....                                            [ 29%]
tests/test_ledger.py ..........E...                                      [ 70%]
tests/test_refresh.py ..........                                         [100%]

==================================== ERRORS ====================================
_____________________ ERROR at setup of TestLedger.test_close __________________

    @pytest.fixture
    def ledger():
>       return Ledger.open("missing.db")
E       FileNotFoundError: [Errno 2] No such file or directory: 'missing.db'

tests/test_ledger.py:14: FileNotFoundError
=================================== FAILURES ===================================
________________________ test_rotates_on_use[expired] __________________________

    def test_rotates_on_use(token):
        first = rotate(token)
>       assert first.exp == 900
E       AssertionError: assert 1800 == 900
E        +  where 1800 = Token(sub='mia', exp=1800).exp

tests/test_auth.py:41: AssertionError
=========================== short test summary info ============================
FAILED tests/test_auth.py::test_rotates_on_use[expired] - AssertionError: ass...
ERROR tests/test_ledger.py::TestLedger::test_close - FileNotFoundError: [Errn...
=================== 1 failed, 32 passed, 1 error in 3.21s ======================
"""

UNITTEST = """Found 17 test(s).
System check identified no issues (0 silenced).
...........F....E
======================================================================
ERROR: test_form_media (forms_tests.test_media.FormsMediaTestCase.test_form_media)
----------------------------------------------------------------------
Traceback (most recent call last):
  File "/testbed/tests/forms_tests/test_media.py", line 510, in test_form_media
    Template("{{ form.media.js }}").render(Context({'form': f3})),
  File "/testbed/django/template/engine.py", line 79, in get_default
    raise ImproperlyConfigured('No DjangoTemplates backend is configured.')
django.core.exceptions.ImproperlyConfigured: No DjangoTemplates backend is configured.

======================================================================
FAIL: test_merge_warning (forms_tests.test_media.FormsMediaTestCase.test_merge_warning)
----------------------------------------------------------------------
Traceback (most recent call last):
  File "/testbed/tests/forms_tests/test_media.py", line 541, in test_merge_warning
    self.assertEqual(Media.merge([1], [2]), [1, 2])
AssertionError: Lists differ: [2, 1] != [1, 2]

----------------------------------------------------------------------
Ran 17 tests in 0.028s

FAILED (failures=1, errors=1)
"""

JEST = """ PASS  src/auth/jwt.test.ts
 FAIL  src/auth/refresh.test.ts
  refresh
    ✓ issues a pair of tokens (14 ms)
    ✕ rotates on use (6 ms)
    ✕ refuses a used token (2 ms)

  ● refresh › rotates on use

    expect(received).toBe(expected) // Object.is equality

    Expected: 900
    Received: 1800

      39 |     const first = await rotate(token);
    > 40 |     expect(first.exp).toBe(900);
         |                       ^
      at Object.<anonymous> (src/auth/refresh.test.ts:40:23)

  ● refresh › refuses a used token

    TypeError: Cannot read properties of undefined (reading 'exp')

      51 |     const first = await rotate(token);
      at rotate (src/auth/jwt.ts:88:17)

Test Suites: 1 failed, 1 passed, 2 total
Tests:       2 failed, 13 passed, 15 total
Snapshots:   0 total
Time:        2.481 s
Ran all test suites.
"""

VITEST = """ RUN  v2.1.8 /srv/app

 ✓ src/auth/jwt.test.ts (12 tests) 31ms
 ❯ src/auth/refresh.test.ts (3 tests | 1 failed) 12ms
   × refresh > rotates on use 6ms
     → expected 1800 to be 900 // Object.is equality

⎯⎯⎯⎯⎯⎯⎯ Failed Tests 1 ⎯⎯⎯⎯⎯⎯⎯

 FAIL  src/auth/refresh.test.ts > refresh > rotates on use
AssertionError: expected 1800 to be 900 // Object.is equality

- Expected
+ Received

- 900
+ 1800

 ❯ src/auth/refresh.test.ts:40:23
     38|     const token = await issue();
     39|     const first = await rotate(token);
     40|     expect(first.exp).toBe(900);

 Test Files  1 failed | 1 passed (2)
      Tests  1 failed | 14 passed (15)
   Start at  10:41:07
   Duration  812ms
"""

BUN = """bun test v1.2.1 (ce532901)

packages/core/test/loader.test.ts:
(pass) loader > reads yaml [1.20ms]
38 |     const found = load(path);
39 |     expect(found.runs).toBe(3);
                            ^
error: expect(received).toBe(expected)

Expected: 3
Received: 1

      at <anonymous> (/srv/app/packages/core/test/loader.test.ts:39:24)
(fail) loader > counts runs [0.42ms]
(pass) loader > refuses workers [0.09ms]

 2 pass
 1 fail
 9 expect() calls
Ran 3 tests across 1 file. [61.00ms]
"""

GO = """=== RUN   TestRotate
=== PAUSE TestRotate
=== CONT  TestRotate
    auth_test.go:35: user enters a new prompt
    auth_test.go:41: Expected 2 rewind points, got 0
--- FAIL: TestRotate (0.31s)
=== RUN   TestLedger
=== RUN   TestLedger/closes_once
    ledger_test.go:77:
        \tError Trace:\t/srv/app/ledger_test.go:77
        \tError:      \tNot equal:
        \t            \texpected: 900
        \t            \tactual  : 1800
    --- FAIL: TestLedger/closes_once (0.00s)
--- FAIL: TestLedger (0.00s)
=== RUN   TestOpen
--- PASS: TestOpen (0.02s)
=== RUN   TestSlow
--- SKIP: TestSlow (0.00s)
FAIL
FAIL\texample.com/app/auth\t0.412s
ok  \texample.com/app/session\t0.034s
?   \texample.com/app/cmd\t[no test files]
FAIL
"""

_EVENT = '{"Time":"2026-01-02T10:00:00Z","Package":"example.com/app/auth",'
GO_JSON = "\n".join(
    [
        '{"Time":"2026-01-02T10:00:00Z","Action":"start","Package":"example.com/app/auth"}',
        _EVENT + '"Action":"run","Test":"TestRotate"}',
        _EVENT + '"Action":"output","Test":"TestRotate","Output":"    auth_test.go:41: Expected 2, got 0\\n"}',
        _EVENT + '"Action":"fail","Test":"TestRotate","Elapsed":0.31}',
        *(_EVENT + f'"Action":"pass","Test":"TestOpen{n}"}}' for n in range(9)),
        _EVENT + '"Action":"fail","Elapsed":0.41}',
    ]
)

CARGO = """   Compiling ring v0.1.0 (/srv/ring)
    Finished `test` profile [unoptimized + debuginfo] target(s) in 0.61s
     Running unittests src/lib.rs (target/debug/deps/ring-9d1f)

running 4 tests
test tests::drains_in_order ... ok
test tests::wraps_at_capacity ... FAILED
test tests::is_empty ... ok
test tests::slow ... ignored

failures:

---- tests::wraps_at_capacity stdout ----
thread 'tests::wraps_at_capacity' panicked at src/lib.rs:91:9:
assertion `left == right` failed
  left: 8
 right: 0
note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace

failures:
    tests::wraps_at_capacity

test result: FAILED. 2 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s

error: test failed, to rerun pass `--lib`
"""

JUNIT = """<?xml version="1.0" encoding="utf-8"?>
<testsuites name="pytest tests">
<testsuite name="pytest" errors="0" failures="1" skipped="2" tests="34" time="3.211" timestamp="2026-01-02T10:00:00">
<testcase classname="tests.test_auth" name="test_issues" time="0.001" />
<testcase classname="tests.test_auth" name="test_rotates_on_use" time="0.004">
<failure message="AssertionError: assert 1800 == 900">def test_rotates_on_use(token):
&gt;       assert rotate(token).exp == 900
E       AssertionError: assert 1800 == 900

tests/test_auth.py:41: AssertionError</failure></testcase>
<testcase classname="tests.test_ledger" name="test_open" time="0.001" />
</testsuite></testsuites>
"""

PYTHON_TRACE = """Testing the ledger
Traceback (most recent call last):
  File "/srv/app/ledger/store.py", line 52, in load
    return self._rows[key]
           ~~~~~~~~~~^^^^^
KeyError: 'mia'

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/srv/app/run.py", line 9, in <module>
    main()
  File "/srv/app/ledger/cli.py", line 31, in main
    charge(store.load("mia"))
  File "/srv/app/.venv/lib/python3.11/site-packages/tenacity/__init__.py", line 314, in wrapped_f
    return self(f, *args, **kw)
ledger.errors.UnknownAccount: no account 'mia'
"""

JAVA_TRACE = """Exception in thread "main" com.acme.ledger.LedgerException: could not close the ledger
\tat java.base/java.util.Optional.orElseThrow(Optional.java:403)
\tat com.acme.ledger.Ledger.close(Ledger.java:88)
\tat com.acme.App.main(App.java:14)
Caused by: java.lang.IllegalStateException: entry 42 is open
\tat com.acme.ledger.Entry.seal(Entry.java:31)
\t... 2 more
Caused by: java.io.IOException: disk quota exceeded
\tat com.acme.ledger.Disk.flush(Disk.java:12)
\t... 3 more
"""

NODE_TRACE = """/srv/app/src/auth/jwt.js:88
    return payload.exp - now();
                   ^

TypeError: Cannot read properties of undefined (reading 'exp')
    at node:internal/util:455:12
    at rotate (/srv/app/src/auth/jwt.js:88:20)
    at Layer.handle (/srv/app/node_modules/express/lib/router/layer.js:95:5)
    at async /srv/app/src/auth/routes.js:12:9

Node.js v20.11.0
"""

GO_TRACE = """panic: runtime error: invalid memory address or nil pointer dereference
[signal SIGSEGV: segmentation violation code=0x1 addr=0x0 pc=0x4a9c21]

goroutine 1 [running]:
runtime.gopanic({0x4c2e40?, 0x5a1f30?})
\t/usr/local/go/src/runtime/panic.go:770 +0x132
example.com/app/auth.(*Store).Load(0x0, {0x4d1e5b, 0x3})
\t/srv/app/auth/store.go:41 +0x21
main.main()
\t/srv/app/main.go:12 +0x1d
exit status 2
"""

RUST_TRACE = """   Compiling ring v0.1.0 (/srv/ring)
    Finished `dev` profile [unoptimized + debuginfo] target(s) in 0.40s
     Running `target/debug/ring`
thread 'main' panicked at src/main.rs:17:26:
called `Option::unwrap()` on a `None` value
stack backtrace:
   0: rust_begin_unwind
             at /rustc/9fc6b431/library/std/src/panicking.rs:665:5
   1: ring::drain
             at ./src/main.rs:17:26
note: Some details are omitted, run with `RUST_BACKTRACE=full` for a verbose backtrace.
"""

DIFF = """diff --git a/src/auth/jwt.ts b/src/auth/jwt.ts
index 1d390c7..e48d4ed 100644
--- a/src/auth/jwt.ts
+++ b/src/auth/jwt.ts
@@ -41,9 +41,15 @@ export function verifyToken(token: string): TokenPayload {
   const secret = config.jwtSecret;
   const options = { algorithms: ['HS256'] };
-  return jwt.verify(token, secret, options) as TokenPayload;
+  const payload = jwt.verify(token, secret, options) as TokenPayload;
+  if (!payload.jti) {
+    throw new TokenError('token without id');
+  }
+  return payload;
 }
+
+export function rotate(old: string): string {
+  return generateToken(verifyToken(old));
+}
diff --git a/src/auth/legacy.ts b/src/auth/legacy.ts
deleted file mode 100644
index 9ac3f1e..0000000
--- a/src/auth/legacy.ts
+++ /dev/null
@@ -1,3 +0,0 @@
-export function oldToken() {
-  return null;
-}
diff --git a/tests/refresh.test.ts b/tests/refresh.test.ts
new file mode 100644
index 0000000..1b7f3ac
--- /dev/null
+++ b/tests/refresh.test.ts
@@ -0,0 +1,2 @@
+import { rotate } from '../src/auth/jwt';
+test('rotates on use', () => rotate('x'));
"""

GIT_STAT = """ .../cli/strategy/manual_commit_condensation.go     | 42 ++++++++++++++--------
 .../cli/strategy/manual_commit_session.go          | 17 ++--
 cmd/entire/cli/explain.go                          |  5 +-
 docs/architecture/checkpoint-scenarios.md          | 88 +++++++++++++++++++++++++++++++++
 docs/logo.png                                      | Bin 0 -> 1204 bytes
 5 files changed, 131 insertions(+), 21 deletions(-)
"""

GREP = "\n".join(
    [
        "src/auth/routes.ts:12:import { verifyToken } from './jwt';",
        "src/auth/routes.ts:41:  const payload = verifyToken(request.cookies.token);",
        "src/auth/routes.ts-42-  if (!payload) return reply.code(401);",
        "src/auth/jwt.ts:41:export function verifyToken(token: string): TokenPayload {",
        *(f"tests/auth/case{n}.test.ts:{n + 3}:  expect(verifyToken(token{n})).toBeDefined();" for n in range(30)),
    ]
)

LS = "\n".join(
    [
        "total 128",
        "drwxr-xr-x  9 root root  4096 Jan  2 10:00 .",
        "drwxr-xr-x  3 root root  4096 Jan  2 09:00 ..",
        "drwxr-xr-x  8 root root  4096 Jan  2 10:00 .git",
        "drwxr-xr-x  4 root root  4096 Jan  2 10:00 src",
        "-rw-r--r--  1 root root  1204 Jan  2 10:00 README.md",
        "-rw-r--r--  1 root root   310 Jan  2 10:00 pyproject.toml",
        "lrwxrwxrwx  1 root root    12 Jan  2 10:00 latest -> releases/0.4",
        *(f"-rw-r--r--  1 root root  {900 + n} Jan  2 10:00 module_{n:02}.py" for n in range(20)),
    ]
)

TREE = """src
├── auth
│   ├── jwt.ts
│   ├── routes.ts
│   └── types.ts
├── config
│   ├── default.json
│   └── production.json
├── index.ts
└── server
    ├── app.ts
    └── plugins
        ├── cookies.ts
        └── metrics.ts
"""

LOG = "\n".join(
    [
        *(f"2026-01-02T10:00:{n:02}.120Z INFO  [http] GET /users/{n} 200 {n}ms" for n in range(40)),
        *(f"2026-01-02T10:01:{n:02}.500Z ERROR [db] connection 10.0.0.{n} refused after 3000ms" for n in range(7)),
        "2026-01-02T10:02:00.001Z WARN  [cache] 91% full",
        "2026-01-02T10:02:03.777Z FATAL [main] shutting down: out of connections",
    ]
)

API = """{"id": 1361, "state": "closed", "merged": true, "title": "fix(targets): add Pi SDK target",
"url": "https://api.example.com/pulls/1361", "score": 1.50,
"body": "Repoint the existing target to the standard endpoint, and add one more.",
"user": {"login": "mia", "id": 351934, "type": "User", "site_admin": false, "node_id": "MDQ6VXNlcjM1MTkzNA=="},
"labels": [], "files": [
{"filename": "src/a.ts", "status": "modified", "additions": 12, "deletions": 3, "sha": "9fc6b43101"},
{"filename": "src/b.ts", "status": "added", "additions": 88, "deletions": 0, "sha": "1d390c71dd"},
{"filename": "src/c.ts", "status": "modified", "additions": 1, "deletions": 1, "sha": "e48d4ed8a1"},
{"filename": "src/d.ts", "status": "removed", "additions": 0, "deletions": 40, "sha": "81e74812aa"}],
"head": {"ref": "feat/pi", "sha": "aa11bb22cc", "repo": {"full_name": "acme/app", "private": false, "forks": 12}}}"""

CURL = """HTTP/1.1 404 Not Found
content-type: application/json
date: Fri, 02 Jan 2026 10:00:00 GMT
x-request-id: 4bf92f3577b34da6a3ce929d0e0e4736

{"error": {"code": "not_found", "message": "no user with id 7"}, "status": 404,
"trace": "4bf92f3577b34da6a3ce929d0e0e4736",
"documentation_url": "https://docs.example.com/errors#not_found"}"""

SUBAGENT = """## Task Result

**Task ID**: TASK-042
**Status**: success
**Summary**: Implemented login endpoint with JWT authentication
**Files Modified**:
- src/auth/login.ts (created)
- src/auth/types.ts (created)
- tests/auth/login.test.ts (created)

**Implementation Details**:
The endpoint takes an e-mail address and a password, looks the user up, compares the hash and issues a pair of tokens.
The cookie is httpOnly. A failed attempt is answered after a constant time, so that nothing can be learned from it.

**Test Results**:
12 passing, 0 failing

**Recommendations**:
- Add rate limiting
- Consider refresh tokens
"""

HTML = """<!DOCTYPE html>
<html lang="en"><head><title>Hooks reference &amp; guide</title>
<style>body { color: #222; } h1 { margin: 0 }</style><script>window.analytics = [];</script></head>
<body><nav><a href="/">Home</a> <a href="/docs">Docs</a></nav>
<h1>Hooks reference</h1>
<p>Hooks are shell commands that run at specific points of the life of a session.</p>
<h2 id="matchers">Matchers</h2><p>A matcher is a regular expression.</p>
<h2>Exit codes</h2><p>Zero means go on.</p>
</body></html>"""

MARKDOWN = """# Hooks reference

> Reference for hook events.

Hooks are shell commands that run at specific points of the life of a session.

## Matchers

- a matcher is a regular expression
- an empty matcher matches everything, and that is what most people want from it in the end

## Exit codes

Zero means go on. Two means stop, and what was printed on standard error is shown to the model.
"""

COMMAND = "\n".join(
    [
        "$ tsc -p . && vite build",
        *(f"Downloading package-{n}@1.{n}.0" for n in range(30)),
        *(f"src/page{n}.ts(14,7): error TS2322: Type 'string' is not assignable to type 'number'." for n in range(3)),
        "warning: 2 chunks are larger than 500 kB",
        "dist/index.js   412.10 kB",
        "Found 3 errors.",
    ]
)

WEB_SEARCH = """Web search results for query: "pytest fixtures scope"

Links: [{"title":"How to use fixtures","url":"https://docs.pytest.org/how-to/fixtures.html"},
{"title":"Fixture scopes explained","url":"https://example.com/scopes"},
{"title":"Five mistakes","url":"https://example.com/five"},{"title":"Another page","url":"https://example.com/other"}]

Fixtures are created when first requested by a test, and are destroyed based on their scope. There are five scopes.
"""
