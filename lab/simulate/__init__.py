"""Simulated training jobs that leave Flight Recorder dumps with known truth (docs/simulate.md)."""
