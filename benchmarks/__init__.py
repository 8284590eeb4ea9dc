"""Benchmarks: they measure ratios in one run. No test asserts an absolute speed."""
