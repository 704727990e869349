"""A page of the report in a browser, and counts to compare it with."""

from dataclasses import replace


class Visit:
    """A page in the browser, and everything that went wrong on it."""

    def __init__(self, browser, path, **options):
        self.trouble, self.requests = [], []
        self.page = browser.new_page(**{"viewport": {"width": 1200, "height": 900}, **options})
        self.page.on("console", lambda message: self.trouble.append(f"{message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.trouble.append(str(error)))
        self.page.on("dialog", lambda dialog: self.trouble.append("dialog"))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(path.resolve().as_uri())
        self.page.wait_for_selector("html[data-ready]", state="attached")

    def __enter__(self):
        """Return the visit."""
        return self

    def __exit__(self, *error):
        """Close the page; nothing may have gone wrong."""
        self.page.close()
        assert error[0] is not None or self.trouble == []

    def text(self, name):
        return self.page.locator(f"article.chosen .explorer [data-value={name}]").inner_text()

    def live(self):
        return {key: self.text(key) for key in ("n_on", "n_off", "excess", "significance")}

    @property
    def slider(self):
        return self.page.locator("article.chosen input[type=range]")

    def table(self):
        script = "rows => rows.map(row => [...row.cells].map(cell => cell.textContent))"
        return self.page.locator("article.chosen [data-table=groups] tbody tr").evaluate_all(script)

    def figures(self):
        """Return the figures that can be seen, with the width of their drawing on the page."""
        script = """() => Object.fromEntries([...document.querySelectorAll('figure')].filter(node => node.offsetParent)
            .map(node => [node.id.replace(/-\\d+$/, ''), node.querySelector('svg').getBoundingClientRect().width]))"""
        return self.page.evaluate(script)

    def download(self, button):
        with self.page.expect_download() as waiting:
            button.click()
        return waiting.value


def counts_at(detection, threshold, mask=None):
    """Count by hand what a threshold selects."""
    selected = detection.held_out & (detection.score > threshold)
    if mask is not None:
        selected = selected & mask
    return replace(detection, selected=selected).counts
