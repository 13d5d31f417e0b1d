"""Hardware facts: GPUs, nodes and links as YAML, every value with its unit, kind and source."""
