"""Data sets, file formats, the inputs that an input_fn returns, and batches on the wire."""
