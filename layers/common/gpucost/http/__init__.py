"""Shared parts of all routes: access checks, parameters, pagination and problem documents."""
