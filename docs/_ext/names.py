"""Our own names: links to those that docstrings write without their module, and which members a class has."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from sphinx.util.nodes import make_refnode

__all__ = ["setup"]


def _resolve(app: Any, env: Any, node: Any, content: nodes.TextElement) -> nodes.Node | None:
    """Return a link to the only public object of that name; without a link if there are several, or for a command."""
    target = node.get("reftarget", "")
    if node.get("refdomain") != "py":
        return None
    if target.startswith("excess ") or target in app.config.words_in_backticks:
        return content
    found = [name for name in env.domains["py"].objects if name == target or name.endswith(f".{target}")]
    public = {env.domains["py"].objects[name].node_id: name for name in found}
    if not public:
        return None
    if len(public) > 1:
        return content
    node_id, name = next(iter(public.items()))
    page = env.domains["py"].objects[name].docname
    return make_refnode(app.builder, node["refdoc"], page, node_id, content, name)


def _skip(app: Any, what: str, name: str, member: Any, skip: bool, options: Any) -> bool | None:
    """Leave out what classes have from other projects, which document it themselves."""
    function = getattr(member, "fget", None) or getattr(member, "func", None) or getattr(member, "__func__", member)
    module = getattr(function, "__module__", None)
    foreign = module is not None and not module.startswith("excess")
    return True if foreign or name == "model_config" else None


def setup(app: Any) -> dict[str, bool]:
    """Let Sphinx ask for names that it does not find, and for members."""
    app.setup_extension("sphinx.ext.autodoc")
    app.add_config_value("words_in_backticks", [], "env")
    app.connect("missing-reference", _resolve)
    app.connect("autodoc-skip-member", _skip)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
