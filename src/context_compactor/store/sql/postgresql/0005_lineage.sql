-- The same as in `sqlite/0005_lineage.sql`.
CREATE TABLE lineage (
  session BIGINT NOT NULL,
  number BIGINT NOT NULL,
  digest BYTEA NOT NULL,
  link BYTEA NOT NULL,
  PRIMARY KEY (session, number)
);
