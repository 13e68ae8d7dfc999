"""Reads the AWS bill from Data Exports."""
