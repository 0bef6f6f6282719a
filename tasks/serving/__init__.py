"""What runs where a model is served: files that are copied into an export."""
