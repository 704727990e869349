"""Version of the package, also read by the build, and versions of libraries that affect numerical results."""

__version__ = "0.1.0"

_LIBRARIES = ("numpy", "scipy", "scikit-learn", "numba", "pandas")


def versions() -> dict[str, str]:
    """Return the versions of this package, of Python and of libraries that affect numerical results."""
    import platform
    from importlib.metadata import version

    return {"excess": __version__, "python": platform.python_version(), **{name: version(name) for name in _LIBRARIES}}
