"""The kinds of alert rules: the thresholds that each compares with an hour, a month or a day."""
