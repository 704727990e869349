"""Compiled kernels of On/Off trees and forests.

Imports go in one direction: ``layout`` and ``criterion``, then ``binning``, ``histogram``, ``partition`` and
``splitting``, then ``grower`` and ``predictor``, then ``levels`` for events in parts, ``scores`` for what is counted of
scores, then ``ensemble``, which runs them on threads, and ``compiling``, which warms them up.
Kernels are free functions on arrays, without validation or defaults.
"""
