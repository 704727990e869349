import pytest

from excess._utils.errors import require


def test_a_library_that_is_not_there_and_one_that_does_not_work(tmp_path, monkeypatch):
    (tmp_path / "halfway.py").write_text("from sys import nothing_of_that_name")
    (tmp_path / "needy.py").write_text("import no_such_library")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ImportError, match=r"^reading requires no_such_library: pip install no_such_library$"):
        require("no_such_library.io", "reading")
    with pytest.raises(
        ImportError, match=r"requires halfway, which is installed .*nothing_of_that_name.*--upgrade 'excess"
    ):
        require("halfway", "reading", extra="dask")
    with pytest.raises(ImportError, match=r"requires needy, which is installed .*No module named 'no_such_library'"):
        require("needy", "reading")
