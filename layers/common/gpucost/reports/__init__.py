"""Cost reports: sums of hours by period and group, read from the ledger.

Missing and incomplete hours add nothing to any figure; the report's coverage counts them. A period in which no hour
has figures has no row, because a row of zeros would say that nothing was spent.
"""
