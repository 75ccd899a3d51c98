from __future__ import annotations

import json

import pytest

from context_compactor.engine.digests import digest
from context_compactor.facts.kinds import Kind
from tests.apply.digests.code_samples import PATHS, sample
from tests.classify.calls_of import bash, tool


def outline(path: str, text: str | None = None, **arguments: object) -> list[str]:
    call = tool("Read", file_path=path, **arguments)
    return digest(Kind.CODE, call, sample(path) if text is None else text).split("\n")


def numbered(text: str, first: int = 1, last: int = 10**6, mark: str = "→") -> str:
    lines = list(enumerate(text.split("\n"), 1))
    return "\n".join(f"{number:6}{mark}{line}" for number, line in lines if first <= number <= last)


def test_a_python_file_becomes_purpose_exports_fields_and_signatures():
    assert outline("src/billing/charge.py") == [
        "src/billing/charge.py · 69 lines · Charge cards and keep a ledger of it.",
        "imports __future__, json, decimal",
        "exports Charge, Ledger, charge_card",
        "13 class Charge { amount, currency }",
        "  19 def refund(self, reason: str) -> Charge",
        "36 class Ledger(Base)",
        '  37 async def append(self, charge: Charge, *, note: str = "") -> None',
        "57 def charge_card(card: str, amount: Decimal) -> Charge",
    ]


def test_a_typescript_file_shows_what_it_exports():
    assert outline("src/auth/jwt.ts") == [
        "src/auth/jwt.ts · 64 lines · JWT token utilities",
        "imports jsonwebtoken, ../config",
        "5 export interface TokenPayload { userId, email, role }",
        "11 export type Claims = Record<string, unknown>",
        "13 export enum Role { Admin, User }",
        "15 const EXPIRY = 900",
        "17 export function generateToken(payload: TokenPayload): string",
        "32 export const verifyToken = async (token: string): Promise<TokenPayload>",
        "47 export default class TokenStore extends Store",
        "  seen:48, constructor:49, rotate:50",
    ]


@pytest.mark.parametrize(
    ("path", "lines"),
    [
        ("web/Dialog.tsx", ["export function Dialog({ title, onClose }: Props)", "interface Props { title }"]),
        (
            "lib/cache.js",
            ["class Cache", "static open(path)", "function* walk(tree)", "module.exports = { Cache, walk };"],
        ),
        (
            "internal/ledger/ledger.go",
            [
                "type Entry struct { ID, Amount }",
                "type Store interface { Save }",
                "func New(store Store) *Ledger",
                "func (l *Ledger) Append(ctx context.Context, e Entry) error",
                "const MaxEntries = 100",
            ],
        ),
        (
            "src/ring.rs",
            [
                "pub struct Ring<T> { head, slots }",
                "pub enum Full { Drop, Wait }",
                "impl<T> Ring<T>",
                "pub fn drain<T>(ring: &mut Ring<T>) -> Vec<T>",
            ],
        ),
        (
            "src/main/java/Ledger.java",
            [
                "public class Ledger implements Store",
                "enum State { OPEN, CLOSED }",
                "record Entry(String id, long amount)",
            ],
        ),
        (
            "ring.c",
            ["static int wrap(int index)", "int ring_push(ring_t *ring, uint8_t value)", "#define RING_SIZE 64"],
        ),
        ("ring.hpp", ["template <typename T> class Ring : public Base", "inline int wrap(int index)"]),
        (
            "Ledger.cs",
            ["public class Ledger : IStore", "public void Save(Entry entry)", "public enum State { Open, Closed }"],
        ),
        ("Ledger.php", ["final class Ledger implements Sink", "function total(array $entries): int"]),
        ("ledger.rb", ["class Ledger < Base", "def append(entry, note: nil)", "def self.open(path)"]),
        ("ship.sh", ["build_image()", "function push_image"]),
    ],
)
def test_each_language_shows_its_declarations(path, lines):
    shown = [line.strip().partition(" ")[2] for line in outline(path)]
    assert [line for line in lines if line not in shown] == []


@pytest.mark.parametrize("path", PATHS)
def test_every_signature_stands_on_the_line_it_names(path):
    source = sample(path).split("\n")
    for line in outline(path):
        number, _, signature = line.strip().partition(" ")
        if number.isdigit():
            near = " ".join(source[int(number) - 1 : int(number) + 6])
            assert signature.split("(")[0].split(" {")[0].split()[-1] in near


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("mark", ["→", "\t"])
def test_line_numbers_in_front_are_taken_off_and_used(path, mark):
    assert outline(path, numbered(sample(path).rstrip(), mark=mark)) == outline(path)


def test_a_piece_of_a_file_is_outlined_with_the_numbers_of_the_file():
    piece = numbered(sample("src/billing/charge.py"), 30, 70)
    assert outline("src/billing/charge.py", piece, offset=30, limit=41) == [
        "src/billing/charge.py · lines 30-70",
        "36 class Ledger(Base)",
        "  37 async def append(",
        "57 def charge_card(card: str, amount: Decimal) -> Charge",
    ]


def test_a_piece_without_numbers_is_counted_from_where_the_command_began():
    text = "\n".join(sample("src/billing/charge.py").split("\n")[29:])
    assert "57 def charge_card" in digest(Kind.CODE, bash("sed -n '30,70p' src/billing/charge.py"), text)


@pytest.mark.parametrize(
    "command",
    ["cat a.py b.py", "sed -n '1,9p;30,40p' a.py", "cat a.py; cat b.py", "tail -70 a.py", "echo hi && cat a.py"],
)
def test_no_line_number_is_claimed_when_the_command_shows_more_than_one_run_of_lines(command):
    short = digest(Kind.CODE, bash(command), sample("src/billing/charge.py"))
    assert "class Charge" in short
    assert not any(line.strip()[:1].isdigit() for line in short.split("\n"))


def test_no_line_number_is_claimed_behind_a_gap():
    lines = sample("src/billing/charge.py").split("\n")
    text = "\n".join([*lines[:25], "…410 tokens truncated…", *lines[30:]])
    short = digest(Kind.CODE, bash("cat a.py"), text).split("\n")
    assert "13 class Charge" in short
    assert "def charge_card(card: str, amount: Decimal) -> Charge" in short


def test_a_big_class_names_its_methods_when_there_is_no_room_for_signatures():
    methods = "\n".join(f"    def method_{n}(self, first, second):\n        return {n}\n" for n in range(60))
    short = outline("a.py", f"class Big:\n{methods}")
    assert short[1] == "1 class Big"
    assert "method_0:2, method_1:5" in short[2]
    assert len(short) < 16


def test_a_file_of_many_functions_names_the_last_ones_only():
    short = outline("a.go", "package a\n" + "\n".join(f"func F{n}(x int) int {{\n\treturn x\n}}\n" for n in range(300)))
    assert len(short) <= 36
    assert short[-1].endswith("more")


def test_licences_and_marks_are_not_the_purpose():
    head = "#!/usr/bin/env python\n# -*- coding: utf-8 -*-\n# Copyright 2026 Acme.\n# All rights reserved.\n\n"
    text = head + "# Ship a release.\n" + sample("src/billing/charge.py").partition("\n")[2]
    assert outline("a.py", text)[0].endswith("lines · Ship a release.")


def test_markdown_is_outlined_by_its_headings():
    text = "# Guide\n\n" + "words " * 200 + "\n```\n# no heading\n```\n## Install\n\n### From source\n"
    assert outline("guide.md", text)[1:] == ["1 # Guide", "7 ## Install", "  9 ### From source"]


def test_settings_are_outlined_by_their_top_level_keys():
    text = "name: Publish\non:\n  push:\n" + "    x: y\n" * 60 + "jobs:\n" + "    z: y\n" * 60
    assert outline("ci.yaml", text)[1:] == ["1 name: Publish", "2 on:", "64 jobs:"]


def test_a_json_file_is_shown_by_its_shape():
    text = json.dumps({"name": "app", "scripts": {f"script{n}": "run" for n in range(40)}}, indent=2)
    short = outline("package.json", text)
    assert short[0] == "package.json · 45 lines"
    assert short[1] == "name: app"
    assert short[2].startswith("scripts: {script0: run, script1: run")


def test_a_broken_file_is_outlined_line_by_line():
    text = sample("src/auth/jwt.ts").replace("{", "{{{(", 3)
    assert "export function generateToken(payload: TokenPayload): string" in "\n".join(outline("src/auth/jwt.ts", text))


def test_a_file_too_large_for_the_parser_is_outlined_line_by_line():
    text = "def first():\n    pass\n" + "x = 1  # filling\n" * 30_000 + "def last():\n    pass\n"
    assert outline("a.py", text)[1:] == ["1 def first()", "30003 def last()"]


def test_prose_without_anything_to_outline_has_no_digest():
    assert outline("notes.txt", "just words\n" * 200) == [""]
