"""The data room: data sets, file formats, what an input_fn returns, and batches on the wire."""
