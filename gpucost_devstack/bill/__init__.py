"""Bills in the format of AWS Data Exports, for tests: Parquet files with every column of the export."""
