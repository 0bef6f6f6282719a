"""The columns room: from the columns of records to features, and what is learned from them on the way."""
