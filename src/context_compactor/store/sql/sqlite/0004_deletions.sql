-- Deletions that are under way. A session is gone as soon as its row is; what it has left behind is removed in steps.

-- The numbers of deleted sessions whose rows are yet to be removed.
CREATE TABLE deleted_sessions (number INTEGER PRIMARY KEY);

-- Contents that no session seems to need. Whoever puts one of them again takes it off the list. A number is never used
-- again: a row that is still here was not taken off meanwhile.
CREATE TABLE unneeded_contents (
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  content INTEGER NOT NULL UNIQUE
);
