"""Compiled kernels of On/Off trees and forests.

Imports go in one direction: ``layout`` and ``criterion``, then ``binning``, ``histogram``, ``partition`` and
``splitting``, then ``grower`` and ``predictor``, then ``levels`` for events in parts, then ``ensemble``, which runs
them on threads, and ``compiling``, which compiles them ahead of use. Random numbers come from ``excess._core.rng``;
the kernels that count scores are in ``excess.stats.score_kernels``. Kernels are free functions on arrays, without
validation or defaults.
"""
