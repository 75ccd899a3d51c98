-- What a service needs beside sessions: jobs, events to replay, answers to repeat, webhooks.
-- Times are ISO 8601 in UTC with milliseconds, so that they sort as text.

-- Whoever claims jobs or deliveries, or numbers an event, locks a row of its own here until it is done.
CREATE TABLE turns (name TEXT PRIMARY KEY);
INSERT INTO turns VALUES ('claim'), ('event'), ('delivery');

CREATE TABLE jobs (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  session_id TEXT NOT NULL,
  namespace TEXT NOT NULL,
  kind TEXT NOT NULL,
  level TEXT NOT NULL,
  state TEXT NOT NULL,
  attempts INTEGER NOT NULL,
  due_at TEXT NOT NULL,
  lease_until TEXT NOT NULL,
  worker TEXT NOT NULL,
  reason TEXT NOT NULL,
  is_asked_again INTEGER NOT NULL,
  created_at TEXT NOT NULL,
  finished_at TEXT NOT NULL,
  trace TEXT NOT NULL  -- that of the message that queued it, as a `traceparent` of W3C, or ''
);
-- At most one of a session, kind and level waits or runs.
CREATE UNIQUE INDEX jobs_once ON jobs (session_id, kind, level) WHERE state IN ('waiting', 'running');
-- Of a session at most one runs.
CREATE UNIQUE INDEX jobs_one_at_a_time ON jobs (session_id) WHERE state = 'running';
CREATE INDEX jobs_waiting ON jobs (kind, due_at, id) WHERE state = 'waiting';
CREATE INDEX jobs_running ON jobs (lease_until) WHERE state = 'running';
CREATE INDEX jobs_finished ON jobs (finished_at) WHERE state IN ('done', 'dropped');

-- A number is never used again: readers ask for what is behind the last one they saw.
CREATE TABLE events (
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  id TEXT NOT NULL UNIQUE,
  type TEXT NOT NULL,
  session_id TEXT NOT NULL,
  namespace TEXT NOT NULL,
  created_at TEXT NOT NULL,
  payload TEXT NOT NULL
);
CREATE INDEX events_by_session ON events (session_id, number);
CREATE INDEX events_by_namespace ON events (namespace, number);

-- What a request with a key was answered, for when it is sent again.
CREATE TABLE answers (
  session_id TEXT NOT NULL,
  key TEXT NOT NULL,
  body_hash TEXT NOT NULL,
  answer TEXT NOT NULL,
  created_at TEXT NOT NULL,
  PRIMARY KEY (session_id, key)
);
CREATE INDEX answers_by_time ON answers (created_at);

CREATE TABLE webhooks (
  id TEXT PRIMARY KEY,
  namespace TEXT NOT NULL,
  url TEXT NOT NULL,
  secret TEXT NOT NULL,
  types TEXT NOT NULL,
  created_at TEXT NOT NULL,
  failures INTEGER NOT NULL,
  disabled_at TEXT NOT NULL,
  reason TEXT NOT NULL
);
CREATE INDEX webhooks_by_namespace ON webhooks (namespace, created_at);

-- An event that a webhook is yet to be told.
CREATE TABLE deliveries (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  webhook TEXT NOT NULL,
  event INTEGER NOT NULL,
  attempts INTEGER NOT NULL,
  due_at TEXT NOT NULL,
  lease_until TEXT NOT NULL,
  worker TEXT NOT NULL,
  reason TEXT NOT NULL,
  UNIQUE (webhook, event)
);
CREATE INDEX deliveries_by_time ON deliveries (due_at, id);
-- What is on its way to a webhook, which is hardly ever more than one, however much it is yet to be told.
CREATE INDEX deliveries_held ON deliveries (webhook) WHERE lease_until <> '';

-- How webhooks were told: the newest attempts of each, for whoever looks into what goes wrong.
CREATE TABLE attempts (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  webhook TEXT NOT NULL,
  event_id TEXT NOT NULL,
  type TEXT NOT NULL,
  attempt INTEGER NOT NULL,
  created_at TEXT NOT NULL,
  status INTEGER NOT NULL,
  reason TEXT NOT NULL
);
CREATE INDEX attempts_by_webhook ON attempts (webhook, id);
