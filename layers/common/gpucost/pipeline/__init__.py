"""How hours come about: dispatch, attribution, restatement, backfill, prices, closing months."""
