-- The same as in `sqlite/0006_proxy.sql`.
CREATE TABLE proxied_requests (
  id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
  session_id TEXT COLLATE "C" NOT NULL,
  at TEXT COLLATE "C" NOT NULL,
  client TEXT COLLATE "C" NOT NULL,
  protocol TEXT COLLATE "C" NOT NULL,
  model TEXT COLLATE "C" NOT NULL,
  kind TEXT COLLATE "C" NOT NULL,
  status BIGINT NOT NULL,
  is_held_out BIGINT NOT NULL,
  is_recorded_only BIGINT NOT NULL,
  input BIGINT NOT NULL,
  cache_read BIGINT NOT NULL,
  cache_write BIGINT NOT NULL,
  cache_write_hour BIGINT NOT NULL,
  output BIGINT NOT NULL,
  has_usage BIGINT NOT NULL,
  milliseconds BIGINT NOT NULL
);
CREATE INDEX proxied_requests_by_time ON proxied_requests (at, id);
CREATE INDEX proxied_requests_by_session ON proxied_requests (session_id, at, id);

CREATE TABLE proxied_links (
  scope TEXT COLLATE "C" NOT NULL,
  link BYTEA NOT NULL,
  kind TEXT COLLATE "C" NOT NULL,
  session_id TEXT COLLATE "C" NOT NULL,
  body BYTEA NOT NULL,
  created_at TEXT COLLATE "C" NOT NULL,
  PRIMARY KEY (scope, link, kind)
);
CREATE INDEX proxied_links_by_session ON proxied_links (session_id, created_at);
