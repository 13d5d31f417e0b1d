"""planner: how to train a large model on the GPUs people have."""
