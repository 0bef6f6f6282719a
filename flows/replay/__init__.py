"""Old checkpoints: found again, evaluated again, exported."""
