"""Each framework, as it is installed, against a server as strict as the providers."""
