"""Rules on documents: what frameworks accept, ignore and refuse in their configuration files."""
