"""Shared by the benchmark drivers: hosts, launching, progress, tables."""
