"""A page of the report in a browser, and counts to compare it with."""

from dataclasses import replace


class Visit:
    """A page in the browser, and everything that went wrong on it."""

    def __init__(self, browser, path, **options):
        self.trouble = []
        self.page = browser.new_page(**{"viewport": {"width": 1200, "height": 900}, **options})
        self.page.on("console", lambda message: self.trouble.append(f"{message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.trouble.append(str(error)))
        self.page.on("dialog", lambda dialog: self.trouble.append("dialog"))
        self.requests = []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(path.resolve().as_uri())
        self.page.wait_for_selector("html[data-ready]", state="attached")
        self.settle()

    def settle(self):
        self.page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def text(self, name):
        return self.page.locator(f"article.chosen .explorer [data-value={name}]").first.inner_text()

    def live(self):
        return {key: self.text(key) for key in ("n_on", "n_off", "excess", "excess_error", "significance")}

    @property
    def slider(self):
        return self.page.locator("article.chosen input[type=range]")

    def table(self):
        rows = self.page.locator("article.chosen [data-table=groups] tbody tr").all()
        return [row.locator("th, td").all_inner_texts() for row in rows]

    def drawn(self):
        """Return the plots that can be seen, with their size on the page."""
        return self.page.evaluate(
            """() => Object.fromEntries([...document.querySelectorAll('.plot')]
                .filter(node => node.offsetParent)
                .map(node => [node.dataset.plot,
                    node.querySelector('svg.main-svg')?.getBoundingClientRect().width ?? 0]))"""
        )


def counts_at(detection, threshold, mask=None):
    """Count by hand what a threshold selects."""
    selected = detection.held_out & (detection.score > threshold)
    if mask is not None:
        selected = selected & mask
    return replace(detection, selected=selected).counts
