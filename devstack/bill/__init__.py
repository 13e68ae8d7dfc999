"""Bills as AWS Data Exports delivers them, for tests: what happened, as Parquet with every column of the export."""
