"""A recording proxy between agents and the API of a model."""
