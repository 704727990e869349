"""Files that public services and visitors look for: citation, workflows, forms, hooks. They are read, not run."""

import re
import runpy
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
FORMS = [path for path in sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml")) if path.name != "config.yml"]
PAGES = ["README.md", "CONTRIBUTING.md", "SUPPORT.md", "CODE_OF_CONDUCT.md", ".github/PULL_REQUEST_TEMPLATE.md"]


def read(path):
    # GitHub's "on" is a key, not the truth value of YAML 1.1
    return yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.BaseLoader)


@pytest.fixture(params=WORKFLOWS, ids=lambda path: path.stem)
def workflow(request):
    return read(request.param)


def test_workflows_have_the_least_rights_and_an_end(workflow):
    assert set(workflow) >= {"name", "on", "permissions", "concurrency", "jobs"}
    assert workflow["permissions"] == {"contents": "read"}
    assert "group" in workflow["concurrency"]
    for name, job in workflow["jobs"].items():
        assert set(job) >= {"runs-on", "steps", "timeout-minutes"}, name
        assert set(job.get("permissions", {})) <= {"id-token"}, name


def test_actions_are_pinned_by_major_version(workflow):
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    actions = [step["uses"] for step in steps if "uses" in step]
    assert actions
    assert [action for action in actions if not re.search(r"@(v\d+|release/v\d+)$", action)] == []
    checkouts = [step for step in steps if step.get("uses", "").startswith("actions/checkout@")]
    assert all(step["with"]["persist-credentials"] == "false" for step in checkouts)


def test_workflows_call_targets_that_exist(workflow):
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    text = yaml.safe_dump(workflow)
    assert set(re.findall(r"\bmake ([a-z-]+)", text)) <= targets
    jobs = workflow["jobs"]
    assert all(need in jobs for job in jobs.values() for need in [job.get("needs")] if need)


def test_the_jobs_of_ci():
    jobs = read(ROOT / ".github" / "workflows" / "ci.yml")["jobs"]
    assert set(jobs) >= {"lint", "test", "docs", "dist", "oldest", "newest"}
    assert {name.partition("-")[0] for name in jobs["test"]["strategy"]["matrix"]["os"]} == {
        "ubuntu",
        "macos",
        "windows",
    }
    assert [name for name, job in jobs.items() if job.get("continue-on-error") == "true"] == ["newest"]


def test_only_publishing_gets_a_token():
    jobs = read(ROOT / ".github" / "workflows" / "release.yml")["jobs"]
    assert [name for name, job in jobs.items() if "id-token" in job.get("permissions", {})] == ["publish"]
    assert jobs["publish"]["needs"] == "dist"
    assert jobs["publish"]["environment"]
    assert "password" not in yaml.safe_dump(jobs)


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_forms(path):
    form = read(path)
    assert set(form) >= {"name", "description", "body"}
    fields = [field["id"] for field in form["body"] if field["type"] != "markdown"]
    assert len(fields) == len(set(fields)) > 0
    assert all(field["type"] in {"markdown", "textarea", "input", "dropdown", "checkboxes"} for field in form["body"])
    assert all(field["attributes"]["label"] for field in form["body"] if field["type"] != "markdown")


def test_citation():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert set(citation) >= {"cff-version", "message", "title", "authors", "version", "license"}
    paper = citation["preferred-citation"]
    assert [author["family-names"] for author in paper["authors"]] == ["Pfahler", "Bunse", "Morik"]
    assert paper["title"] == "Noisy Labels for Weakly Supervised Gamma Hadron Classification"
    assert paper["url"].rpartition("/")[2] in paper["identifiers"][0]["value"]


def test_hooks():
    repositories = read(ROOT / ".pre-commit-config.yaml")["repos"]
    hooks = {hook["id"] for repository in repositories for hook in repository["hooks"]}
    assert hooks >= {"ruff-check", "ruff-format", "mypy", "check-yaml", "trailing-whitespace"}
    assert all(repository["repo"] == "local" or repository["rev"] for repository in repositories)


@pytest.mark.parametrize("name", PAGES)
def test_links_of_pages_lead_somewhere(name):
    page = ROOT / name
    text = page.read_text(encoding="utf-8")
    links = [link.partition("#")[0] for link in re.findall(r"\]\(([^)\s]+)\)", text)]
    files = [link for link in links if link and "://" not in link]
    assert [link for link in files if not (page.parent / link).exists()] == []


def test_files_that_do_not_belong_into_a_distribution():
    tool = runpy.run_path(str(ROOT / "tools" / "check_dist.py"))
    good = set(tool["IN_WHEEL"])
    assert all((ROOT / "src" / name).is_file() for name in good)
    assert tool["wheel_problems"](good, 1) == []
    assert tool["wheel_problems"](good - {"excess/py.typed"}, 1) == ["excess/py.typed is missing in the wheel"]
    assert tool["wheel_problems"](good | {"excess/a.hdf5"}, 1) == ["excess/a.hdf5 does not belong into a wheel"]
    assert "bytes" in tool["wheel_problems"](good, 10**8)[0]
    assert tool["sdist_problems"](set(tool["IN_SDIST"]) | {"tests/a.fits"}) == [
        "tests/a.fits does not belong into an sdist"
    ]
