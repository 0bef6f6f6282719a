"""What a command answers: facts, lines for people, an exit code."""
