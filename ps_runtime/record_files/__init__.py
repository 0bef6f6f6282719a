"""Files of records: listed, scanned once into a record index, and read by ranges of records from then on."""
