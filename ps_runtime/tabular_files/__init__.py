"""Lists tabular files, scans them once into a record index, and reads ranges of records from then on.

==========================  ====================================================================================
`listing.list_files`        paths, folders, globs and URLs as data files in their current state
`delimited.DelimitedText`,  formats of the files of one input; `formats.RECORD_FORMATS` has them by name
`json_lines.JsonLines`,
`libsvm.LibSvmText`,
`parquet.Parquet`,
`arrow_file.ArrowFile`
`scan.Scan`                 one pass, chunk by chunk in bounded memory; `Scan.columns` is known before it
`index.RecordIndex`         the result of the scan: the location of each record; stored as bytes
`reader.RecordReader`       any range of records, in any process, without reading those before it
==========================  ====================================================================================
"""
