"""What a new process costs: the import, the time to the first result, and memory."""
