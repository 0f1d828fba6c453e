"""What the drivers of the benchmarks share: hosts, launching, progress, tables."""
