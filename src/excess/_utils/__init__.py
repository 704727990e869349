"""Utilities for all layers: argument checks, errors, files, threads, progress and random numbers."""
