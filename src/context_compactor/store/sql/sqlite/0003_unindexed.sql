-- Originals of which not all passages are in `passages` and `words` yet; `done` is how many are. They are written in
-- transactions of their own, so that nobody waits for the index of a large original.
CREATE TABLE unindexed (
  session INTEGER NOT NULL,
  original INTEGER NOT NULL,
  done INTEGER NOT NULL,
  PRIMARY KEY (session, original)
) WITHOUT ROWID;

-- Parts of the index are merged a little whenever something is added, not much now and then.
INSERT INTO words (words, rank) VALUES ('automerge', 0);
