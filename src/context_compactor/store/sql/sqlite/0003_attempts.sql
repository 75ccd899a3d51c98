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
