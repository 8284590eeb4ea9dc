"""Benchmarks: ratios measured in one run, never absolute speed asserted in a test."""
