"""The kinds of alert rules: what each compares with its threshold."""
