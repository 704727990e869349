"""The version of the package, read by the build as well, and those of the libraries that decide about numbers."""

__version__ = "0.1.0"

_LIBRARIES = ("numpy", "scipy", "scikit-learn", "numba", "pandas")


def versions() -> dict[str, str]:
    """Return the versions of this package, of Python and of the libraries that decide about numbers."""
    import platform
    from importlib.metadata import version

    return {"excess": __version__, "python": platform.python_version(), **{name: version(name) for name in _LIBRARIES}}
