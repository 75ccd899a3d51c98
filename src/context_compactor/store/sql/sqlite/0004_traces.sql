-- With which trace a job goes on: that of the message that queued it, as a `traceparent` of W3C, or "".
ALTER TABLE jobs ADD COLUMN trace TEXT NOT NULL DEFAULT '';
