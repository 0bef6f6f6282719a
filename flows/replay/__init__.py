"""Plans the evaluation and the export of old checkpoints."""
