-- The same as in `sqlite/0003_unindexed.sql`.
CREATE TABLE unindexed (
  session BIGINT NOT NULL,
  original BIGINT NOT NULL,
  done BIGINT NOT NULL,
  PRIMARY KEY (session, original)
);
