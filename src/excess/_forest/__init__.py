"""Compiled kernels of On/Off trees and forests.

Imports go in one direction: ``rng`` and ``layout`` know nothing of the others, then come ``binning``,
``criterion``, ``splitting``, ``grower``, ``predictor``, and ``ensemble``, which runs them on threads. Kernels are free
functions on arrays, without validation or defaults.
"""
