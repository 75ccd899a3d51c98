-- What messages say, whatever form they were given in: by this a history that is given again is recognized. `digest` is
-- that of one message, `link` that of all up to it; `number` counts the messages of the session from 1.
CREATE TABLE lineage (
  session INTEGER NOT NULL,
  number INTEGER NOT NULL,
  digest BLOB NOT NULL,
  link BLOB NOT NULL,
  PRIMARY KEY (session, number)
) WITHOUT ROWID;
