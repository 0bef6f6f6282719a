"""Files of records: listed, scanned once into a record index, and read by ranges of records from then on.

==========================  ====================================================================================
`listing.list_files`        paths, folders, globs and URLs as data files, with what they are now
`delimited.DelimitedText`,  how the files of one input are read; `formats.RECORD_FORMATS` has them by name
`json_lines.JsonLines`,
`libsvm.LibSvmText`,
`parquet.Parquet`,
`arrow_file.ArrowFile`
`scan.Scan`                 one pass, chunk by chunk in bounded memory; `Scan.columns` is known before it
`index.RecordIndex`         what the scan leaves: which records lie where; kept as bytes
`reader.RecordReader`       any range of records, in any process, without what lies before
==========================  ====================================================================================
"""
