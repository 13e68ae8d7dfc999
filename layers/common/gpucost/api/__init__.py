"""The read-only HTTP API: routes, the shapes of answers, problem documents."""
