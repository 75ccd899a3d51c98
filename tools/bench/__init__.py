"""Speed, memory and load: `make bench` and `make soak`."""
