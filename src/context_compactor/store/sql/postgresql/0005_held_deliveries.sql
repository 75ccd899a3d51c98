-- What is on its way to a webhook, which is hardly ever more than one, however much it is yet to be told.
CREATE INDEX deliveries_held ON deliveries (webhook) WHERE lease_until <> '';
