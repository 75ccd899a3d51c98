-- What a proxy saw of requests to models: numbers only, each exchange once, however often it is recorded. A row outlives
-- its session, and then its `session_id` is ''. `cache_write_hour` is the part of `cache_write` that is kept for an hour.
CREATE TABLE proxied_requests (
  id TEXT NOT NULL PRIMARY KEY,
  session_id TEXT NOT NULL,
  at TEXT NOT NULL,
  client TEXT NOT NULL,
  protocol TEXT NOT NULL,
  model TEXT NOT NULL,
  kind TEXT NOT NULL,
  status INTEGER NOT NULL,
  is_held_out INTEGER NOT NULL,
  is_recorded_only INTEGER NOT NULL,
  input INTEGER NOT NULL,
  cache_read INTEGER NOT NULL,
  cache_write INTEGER NOT NULL,
  cache_write_hour INTEGER NOT NULL,
  output INTEGER NOT NULL,
  has_usage INTEGER NOT NULL,
  milliseconds INTEGER NOT NULL
);
CREATE INDEX proxied_requests_by_time ON proxied_requests (at, id);
CREATE INDEX proxied_requests_by_session ON proxied_requests (session_id, at, id);

-- By what the proxy finds the session of a request again, and what it sends in the place of what the agent has sent.
CREATE TABLE proxied_links (
  scope TEXT NOT NULL,
  link BLOB NOT NULL,
  kind TEXT NOT NULL,
  session_id TEXT NOT NULL,
  body BLOB NOT NULL,
  created_at TEXT NOT NULL,
  PRIMARY KEY (scope, link, kind)
);
CREATE INDEX proxied_links_by_session ON proxied_links (session_id, created_at);
