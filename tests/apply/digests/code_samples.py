"""One small file per language, each padded with a long body so that an outline is worth it."""

from __future__ import annotations

PYTHON = '''"""Charge cards and keep a ledger of it."""

from __future__ import annotations

import json
from decimal import Decimal

__all__ = ["Charge", "Ledger", "charge_card"]

RETRIES = 3


class Charge:
    """One charge."""

    amount: Decimal
    currency: str = "EUR"

    def refund(self, reason: str) -> Charge:
        BODY
        return self


@dataclass
class Ledger(Base):
    async def append(
        self,
        charge: Charge,
        *,
        note: str = "",
    ) -> None:
        BODY


def charge_card(card: str, amount: Decimal) -> Charge:
    BODY
'''

TYPESCRIPT = """// JWT token utilities
import jwt from 'jsonwebtoken';
import { config } from '../config';

export interface TokenPayload {
  userId: string;
  email: string;
  role: 'admin' | 'user';
}

export type Claims = Record<string, unknown>;

export enum Role { Admin = 'admin', User = 'user' }

const EXPIRY = 900;

export function generateToken(payload: TokenPayload): string {
  BODY
}

export const verifyToken = async (token: string): Promise<TokenPayload> => {
  BODY
};

export default class TokenStore extends Store {
  private seen = new Set<string>();
  constructor(private readonly db: Database) { super(); }
  async rotate(old: string): Promise<string> {
    BODY
  }
}
"""

TSX = """import React from 'react';

interface Props { title: string; onClose(): void }

export function Dialog({ title, onClose }: Props) {
  const shown = true;
  BODY
  return <div onClick={onClose}>{title}</div>;
}

export const Panel: React.FC<Props> = (props) => {
  BODY
  return <Dialog {...props} />;
};
"""

JAVASCRIPT = """'use strict';
const fs = require('fs');

class Cache {
  get(key) {
    BODY
  }
  static open(path) { return new Cache(path); }
}

function* walk(tree) {
  BODY
}

describe('Cache', () => {
  it('gets what was put', () => { BODY });
});

module.exports = { Cache, walk };
"""

GO = """// Package ledger keeps charges in order.
package ledger

import (
\t"context"
\t"fmt"
)

const MaxEntries = 100

// Entry is one line of the ledger.
type Entry struct {
\tID     string
\tAmount int64
}

type Store interface {
\tSave(ctx context.Context, e Entry) error
}

func New(store Store) *Ledger {
\tBODY
}

func (l *Ledger) Append(ctx context.Context, e Entry) error {
\tBODY
}
"""

RUST = """//! A ring buffer without allocation.
use std::mem::MaybeUninit;

pub struct Ring<T> {
    head: usize,
    slots: Vec<T>,
}

pub enum Full { Drop, Wait(u32) }

pub trait Sink {
    fn push(&mut self, value: u8) -> bool;
}

impl<T> Ring<T> {
    pub fn with_capacity(capacity: usize) -> Self {
        BODY
    }
    fn wrap(&self, index: usize) -> usize { BODY }
}

pub fn drain<T>(ring: &mut Ring<T>) -> Vec<T> {
    BODY
}

const LIMIT: usize = 8;
"""

JAVA = """package com.acme.ledger;

import java.util.List;

/** Keeps charges in order. */
public class Ledger implements Store {
    private final List<Entry> entries;

    public Ledger(List<Entry> entries) { BODY }

    @Override
    public void append(Entry entry) throws LedgerException {
        BODY
    }

    enum State { OPEN, CLOSED }
}

record Entry(String id, long amount) { }
"""

C = """/* Ring buffer. */
#include <stdint.h>
#include "ring.h"

#define RING_SIZE 64

typedef struct ring {
    uint32_t head;
    uint32_t tail;
} ring_t;

static int wrap(int index)
{
    BODY
}

int ring_push(ring_t *ring, uint8_t value)
{
    BODY
}
"""

CPP = """// Ring buffer, header only.
#pragma once
#include <vector>

namespace acme {

template <typename T>
class Ring : public Base {
 public:
  explicit Ring(std::size_t capacity);
  bool push(const T& value) {
    BODY
  }

 private:
  std::vector<T> slots_;
};

enum class Full { Drop, Wait };

inline int wrap(int index) { BODY }

}  // namespace acme
"""

CSHARP = """using System.Collections.Generic;

namespace Acme.Ledger
{
    public interface IStore { void Save(Entry entry); }

    public class Ledger : IStore
    {
        public int Count { get; private set; }

        public void Save(Entry entry)
        {
            BODY
        }
    }

    public enum State { Open, Closed }
}
"""

PHP = """<?php
// Ledger of charges.
namespace Acme\\Ledger;

use Acme\\Store;

interface Sink { public function save(Entry $entry): void; }

final class Ledger implements Sink
{
    public function save(Entry $entry): void
    {
        BODY
    }
}

function total(array $entries): int
{
    BODY
}
"""

RUBY = """# Ledger of charges.
require 'json'

module Acme
  class Ledger < Base
    def append(entry, note: nil)
      BODY
    end

    def self.open(path)
      BODY
    end
  end
end
"""

BASH = """#!/usr/bin/env bash
# Ship a release to the staging host.
set -euo pipefail

build_image() {
  BODY
}

function push_image {
  BODY
}

build_image && push_image
"""

_BODIES = {
    "py": "total = total + 1  # a long body that no outline shows",
    "rb": "total = total + 1 # a long body that no outline shows",
    "sh": "echo one more line of a long body that no outline shows",
}
_SAMPLES = {
    "src/billing/charge.py": PYTHON,
    "src/auth/jwt.ts": TYPESCRIPT,
    "web/Dialog.tsx": TSX,
    "lib/cache.js": JAVASCRIPT,
    "internal/ledger/ledger.go": GO,
    "src/ring.rs": RUST,
    "src/main/java/Ledger.java": JAVA,
    "ring.c": C,
    "ring.hpp": CPP,
    "Ledger.cs": CSHARP,
    "Ledger.php": PHP,
    "ledger.rb": RUBY,
    "ship.sh": BASH,
}


def sample(path: str, body_lines: int = 12) -> str:
    """The sample file of a path, each body made long."""
    text = _SAMPLES[path]
    body = _BODIES.get(path.rpartition(".")[2], "total = total + 1; /* a long body that no outline shows */")
    return text.replace("BODY", "\n        ".join([body] * body_lines))


PATHS = tuple(_SAMPLES)
