-- Sessions, their logs, and every content once.

-- A number is never used again, since what was indexed under it stays in the index.
CREATE TABLE sessions (
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  id TEXT NOT NULL UNIQUE,
  created_at TEXT NOT NULL,
  updated_at TEXT NOT NULL,
  profile BLOB NOT NULL,
  state BLOB NOT NULL,
  head INTEGER NOT NULL DEFAULT 0,
  messages INTEGER NOT NULL DEFAULT 0,
  view INTEGER NOT NULL DEFAULT 0,
  chain BLOB NOT NULL DEFAULT x''
);
CREATE INDEX sessions_updated ON sessions (updated_at);

-- A content under the SHA-256 of its bytes. codec: 0 as it is, 1 zstd, 2 a JSON list of other contents, by their hashes.
CREATE TABLE contents (
  number INTEGER PRIMARY KEY,
  hash BLOB NOT NULL UNIQUE,
  size INTEGER NOT NULL,
  codec INTEGER NOT NULL,
  bytes BLOB NOT NULL
);

-- Append-only. `chain` is the hash of the entry before, this entry's kind and its content's hash.
CREATE TABLE entries (
  session INTEGER NOT NULL,
  position INTEGER NOT NULL,
  kind TEXT NOT NULL,
  created_at TEXT NOT NULL,
  content INTEGER NOT NULL,
  chain BLOB NOT NULL,
  PRIMARY KEY (session, position)
) WITHOUT ROWID;
CREATE INDEX entries_by_kind ON entries (session, kind, position) WHERE kind <> 'message';

CREATE TABLE originals (
  number INTEGER PRIMARY KEY,
  session INTEGER NOT NULL,
  ref TEXT NOT NULL,
  kind TEXT NOT NULL,
  summary TEXT NOT NULL,
  tokens INTEGER NOT NULL,
  recovery TEXT NOT NULL,
  hint TEXT NOT NULL,
  target TEXT NOT NULL,
  same_as TEXT NOT NULL DEFAULT '',
  created_at TEXT NOT NULL,
  content INTEGER NOT NULL,
  first INTEGER NOT NULL,
  last INTEGER NOT NULL,
  UNIQUE (session, ref)
);
CREATE INDEX originals_by_content ON originals (session, content);
CREATE INDEX originals_by_time ON originals (session, created_at, first, last);

-- Runs of passages of an original, packed with zstd. A number is 2^40 times the session plus the position of a passage
-- among all of the session; those of an original go from its `first` up to, but not with, its `last`.
CREATE TABLE passages (
  number INTEGER PRIMARY KEY,
  original INTEGER NOT NULL,
  count INTEGER NOT NULL,
  size INTEGER NOT NULL,
  body BLOB NOT NULL
);
CREATE INDEX passages_by_original ON passages (original);
-- The terms of each run, by its number.
CREATE VIRTUAL TABLE words USING fts5 (
  terms, content = '', columnsize = 0, detail = 'none', tokenize = "ascii tokenchars ':'"
);

CREATE TABLE facts (
  session INTEGER NOT NULL,
  kind TEXT NOT NULL,
  turn INTEGER NOT NULL,
  hash BLOB NOT NULL,
  pattern TEXT NOT NULL DEFAULT '',
  updated_at TEXT NOT NULL,
  body BLOB NOT NULL,
  PRIMARY KEY (session, kind, turn, hash)
) WITHOUT ROWID;
CREATE INDEX facts_by_pattern ON facts (pattern, session) WHERE pattern <> '';

-- Which processes have a session open.
CREATE TABLE holders (
  session INTEGER NOT NULL,
  holder TEXT NOT NULL,
  opened_at TEXT NOT NULL,
  PRIMARY KEY (session, holder)
) WITHOUT ROWID;
