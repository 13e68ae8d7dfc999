"""Generators of files that are committed or built: dashboards, the OpenAPI document, bytecode."""
