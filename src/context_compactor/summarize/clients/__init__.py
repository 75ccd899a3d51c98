"""Clients of models. Nothing here is imported, and nothing leaves the machine, unless a model is named."""
