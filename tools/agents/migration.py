"""A long piece of work for a live check: a shop whose prices become whole cents, one handler after the other."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tools.agents.scripted import NUMBER, Call, Doing, Request, Script, Step, Until
from tools.agents.story import Way

RULES = (
    "Never touch config/secrets.yaml",
    "Run the tests of a handler after each change",
    "Do not edit anything under src/shop/legacy",
    "Round half up, never half to even",
)
DECISION = "amounts are int cents, not Decimal"
FAILED = "test_half_a_cent"
FIRST_FAILURE = "first-failure"
PROMPTS = (
    f"""\
Invoices are off by a cent, because every handler in src/shop/handlers computes with floats. Move all handlers to whole
cents, in alphabetical order. {RULES[0]}. {RULES[1]}. The public names stay as they are.""",
    f"The tax office wants it so: {RULES[3]}. And another rule: {RULES[2]}, that folder is deleted next week.",
    "Good. Go on with the next handlers.",
    "No, do not copy the rounding into each handler: import rounded from src/shop/money.py. Go on.",
    "Go on with the rest. I commit it myself.",
    "What exactly did the very first failing test print? Look at the original, do not guess.",
)
_PLACES = (
    "allowances", "baskets", "bonuses", "bundles", "campaigns", "carts", "catalogues", "coupons", "credits", "customs",
    "deliveries", "deposits", "discounts", "donations", "duties", "estimates", "exchanges", "expenses", "fees",
    "giftcards", "handling", "instalments", "insurance", "invoices", "leases", "licences", "loyalty", "memberships",
    "offers", "orders", "packages", "payouts", "postage", "quotes", "rebates", "refunds", "rentals", "repairs",
    "returns", "royalties", "samples", "shipments", "storage", "subscriptions", "surcharges", "tickets", "tips",
    "tolls", "vouchers", "warranties",
)  # fmt: skip
_BEFORE = """\
    return round(price * count * (1 - SHARE), 2)
"""
_AFTER = """\
    return rounded(price * count * (1 - SHARE))
"""
_COPY = """\
    return int(price * count * (1 - SHARE))
"""
_MONEY_FILE = "src/shop/money.py"
_ROUNDING = "rounded() in src/shop/money.py uses ROUND_HALF_UP for every handler"
_ID = re.compile(r'"id": ?"(tool_\d+)"')
_MONEY = '''\
"""Amounts of money."""

from decimal import ROUND_HALF_EVEN, Decimal


def rounded(amount: Decimal | float) -> int:
    """Whole cents."""
    return int(Decimal(amount).quantize(Decimal(1), ROUND_HALF_EVEN))
'''
_HANDLER = '''\
"""{title}: what is taken, what is given back, and what is printed about it."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from shop.money import rounded

SHARE = Decimal("{share}")
NAMES = {names}


def line_total(price: Any, count: int) -> Any:
    """What a line of {place} costs."""
    return round(price * count * (1 - SHARE), 2)
'''
_FUNCTION = '''

def {verb}_{place}(entries: list[dict[str, Any]], limit: int = {limit}) -> list[dict[str, Any]]:
    """{title} that can be {verb}ed, the newest first, at most `limit` of them.

    An entry without an amount counts as nothing; one in another currency is left for the night job.
    """
    found = [entry for entry in entries if entry.get("state") == "{state}" and entry.get("kind") in NAMES]
    found.sort(key=lambda entry: (entry["day"], entry["number"]), reverse=True)
    for entry in found[:limit]:
        entry["amount"] = entry.get("amount") or 0
        entry["note"] = f"{verb} {place} {{entry['number']}} of {{entry['day']}}"
    return found[:limit]
'''
_TEST = """\
from shop.handlers.{place} import SHARE, line_total


def test_whole_cents():
    assert isinstance(line_total(1999, 3), int), "{place} are paid in whole cents"


def {failed}():
    price = 25 / (1 - SHARE) / 10
    assert line_total(price, 1) == 3, "half a cent of {place} is rounded up"
"""
_SUMMED_UP = """\
   - src/shop/handlers/{place}.py
      - line_total returned a float that was rounded to two places, and returns whole cents now; the other functions of
        the file were read and stay as they are.
      ```python
      def line_total(price: Any, count: int) -> Any:
          \"\"\"What a line of {place} costs.\"\"\"
          return rounded(price * count * (1 - SHARE))
      ```
"""
# As long as what a model writes when Claude Code asks it for a summary: 4,400 tokens were seen.
SUMMARY = f"""\
1. Primary Request and Intent:
   The user wants every handler in src/shop/handlers moved from floats to whole cents, in alphabetical order.
2. Key Technical Concepts:
   - Decimal, quantize and the rounding modes of the decimal module
3. Files and Code Sections:
{"".join(_SUMMED_UP.format(place=place) for place in _PLACES[:40])}
4. Errors and fixes:
   - A test about half a cent failed; the rounding was changed.
5. Pending Tasks:
   - The other handlers.
6. Current Work:
   The next handler was being changed.
"""
_VERBS = (
    "open check book print export collect return archive approv count sort match split mix weigh remind sign".split()
)


def make_shop(folder: Path) -> None:
    """Write the shop into a folder that is a project already."""
    files = {
        "pyproject.toml": '[tool.pytest.ini_options]\naddopts = "-q --tb=short"\npythonpath = ["src"]\n',
        "src/shop/__init__.py": "",
        "src/shop/money.py": _MONEY,
        "src/shop/handlers/__init__.py": "",
        "src/shop/legacy/prices.py": "PRICES = {'old': 1.005}\n",
        **{f"src/shop/handlers/{place}.py": _handler(at, place) for at, place in enumerate(_PLACES)},
        **{f"tests/test_{place}.py": _TEST.format(place=place, failed=FAILED) for place in _PLACES},
    }
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def _handler(at: int, place: str) -> str:
    names = tuple(f"{place}-{kind}" for kind in ("plain", "gift", "abroad", "staff"))
    head = _HANDLER.format(title=place.capitalize(), place=place, share=f"0.{at % 9 + 1}", names=names)
    functions = (
        _FUNCTION.format(verb=verb, place=place, title=place.capitalize(), limit=at + 5 * n, state=f"{verb}_{n}")
        for n, verb in enumerate(_VERBS)
    )
    return head + "".join(functions)


class _Work:
    """What the model does with the files of the shop."""

    def __init__(self, way: Way, folder: Path) -> None:
        self._way, self._folder = way, folder

    def read(self, label: str, name: str) -> Doing:
        """Read a file, and again when a compaction came in between: an edit needs it."""
        call = Call(label, "Read", {"file_path": str(self._folder / name)})
        return Until(lambda request: any(key.startswith(f"{label}_") for key in request.results), Step(call, None))

    def edit(self, label: str, name: str, change: tuple[str, str], note: str = "") -> Step:
        """Change a file."""
        given = {"file_path": str(self._folder / name), "old_string": change[0], "new_string": change[1]}
        return Step(Call(label, "Edit", given), None, note)

    def shell(self, label: str, command: str, note: str = "") -> Step:
        """A command in a shell."""
        return Step(self._way.shell(label, command), None, note)

    def handlers(self, places: Sequence[str], *, detour: bool = False) -> Iterator[Doing]:
        """Handlers, each read, changed and tested; with a `detour` each third is changed wrongly at first."""
        for at, place in enumerate(places):
            name, tests = f"src/shop/handlers/{place}.py", f"tests/test_{place}.py"
            yield self.read(f"{place}-tests", tests)
            yield self.read(f"{place}-source", name)
            if detour and at % 3 == 1:
                yield self.edit(f"{place}-copy", name, (_BEFORE, _COPY), "The rounding is short enough to stand here.")
                yield self.shell(f"{place}-fails", f"python -m pytest {tests}")
                yield self.read(f"{place}-again", name)
                yield self.edit(f"{place}-edit", name, (_COPY, _AFTER), "int() cuts off instead of rounding.")
            else:
                yield self.edit(f"{place}-edit", name, (_BEFORE, _AFTER))
            yield self.shell(f"{place}-passes", f"python -m pytest {tests}")


class _ShellWork(_Work):
    """The same in a shell alone, for a model that has no other tools."""

    def read(self, label: str, name: str) -> Step:
        """Read a file."""
        return self.shell(label, f"cat {name}")

    def edit(self, label: str, name: str, change: tuple[str, str], note: str = "") -> Step:
        """Change a file."""
        old, new = (text.strip() for text in change)
        return self.shell(label, f"sed -i 's/{old.replace('*', '[*]')}/{new}/' {name} && grep -n SHARE {name}", note)


def long_story(way: Way, folder: Path, *, in_shell: bool = False) -> Script:
    """All handlers, with what the user says on the way, and a question about the very beginning at the end."""
    work = (_ShellWork if in_shell else _Work)(way, folder)
    first, source = _PLACES[0], f"src/shop/handlers/{_PLACES[0]}.py"
    half_up = f"sed -i s/ROUND_HALF_EVEN/ROUND_HALF_UP/ {_MONEY_FILE} && cat {_MONEY_FILE}"
    return Script(
        main=[
            work.shell("looking", "ls src/shop src/shop/handlers && git status --short | head -5"),
            work.shell("floats", "grep -n 'round(' -r src/shop | head -60"),
            work.shell("all-tests", "python -m pytest --tb=line 2>&1 | tail -60"),
            work.read("money", _MONEY_FILE),
            work.read("first-tests", f"tests/test_{first}.py"),
            work.read("first-source", source),
            work.edit(
                "first-edit", source, (_BEFORE, _AFTER), f"Decision: {DECISION}, since clients read ints exactly."
            ),
            work.shell(FIRST_FAILURE, f"python -m pytest tests/test_{first}.py"),
            Step(f"{first} computes in cents, but {FAILED} fails: 2.5 became 2. Which rounding do you want?", None),
            work.shell("half-up", half_up, f"Decision: {_ROUNDING}."),
            work.shell("first-passes", f"python -m pytest tests/test_{first}.py"),
            *work.handlers(_PLACES[1:7]),
            Step("Seven handlers are done.", None),
            *work.handlers(_PLACES[7:16], detour=True),
            Step("Sixteen handlers are done.", None),
            *work.handlers(_PLACES[16:28]),
            Step("Twenty-eight handlers are done, all with rounded() from src/shop/money.py.", None),
            *work.handlers(_PLACES[28:]),
            work.shell("all-pass", "python -m pytest 2>&1 | tail -5"),
            Step("All handlers compute in whole cents, and all tests pass.", None),
            Step(way.ours("search", "search_archive", {"text": f"{FAILED} {first}"}), None),
            _recalling_first(way),
            Step("Half a cent was rounded to even: assert 2 == 3, in test_half_a_cent.", None),
        ],
        sub=[],
        summary=f"<analysis>The conversation so far is long.</analysis><summary>{SUMMARY}7. Summary {NUMBER}</summary>",
    )


def _recalling_first(way: Way) -> Callable[[Request], Step]:
    """A model that recalls the oldest of the outputs that its search has found."""

    def step(request: Request) -> Step:
        found = sorted(_ID.findall(request.results.get("search", "").replace("\\", "")))
        return Step(way.ours("recall", "recall", {"id": found[0] if found else "nothing was found"}), None)

    return step
