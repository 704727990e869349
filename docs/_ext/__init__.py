"""Helpers of the documentation's build."""
