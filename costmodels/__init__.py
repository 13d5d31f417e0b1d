"""Cost models: what a training step costs in bytes and in seconds, one formula per function."""
