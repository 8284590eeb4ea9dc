"""The frameworks that the benchmark of workers measures, one module each. Each runs in a process of its own."""
