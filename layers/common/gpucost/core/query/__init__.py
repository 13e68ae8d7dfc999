"""Cost queries: periods, filters, grouping, idle cost, paging."""
