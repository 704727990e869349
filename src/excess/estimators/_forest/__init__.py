"""Compiled kernels of On/Off trees and forests.

Imports go in one direction: ``binning``, ``splitting``, ``grower`` and ``predictor``, then ``levels`` for events in
parts, then ``ensemble``, which runs them on threads and compiles them ahead of use. Random numbers come from
``excess._utils.rng``; the kernels that count scores are in ``excess.stats._kernels``. Kernels are free functions on
arrays, without validation or defaults.
"""
