"""A parser that checks the pages of reports, and names that would break a page if they were not escaped."""

from html.parser import HTMLParser

UNSAFE = ['</script><script>alert("1")</script>', "<b>bold</b>", '" onload="alert(2)', "${version} & $title", "plain"]


class PageParser(HTMLParser):
    """A parser that checks that elements are nested properly, and collects links, ids and event handlers."""

    EMPTY = frozenset(["meta", "input", "line", "rect", "path", "circle", "image"])

    def __init__(self):
        super().__init__()
        self.open, self.links, self.ids, self.handlers = [], [], [], []

    def handle_starttag(self, tag, attributes):
        if tag not in self.EMPTY:
            self.open.append(tag)
        for name, value in attributes:
            if name in ("src", "href", "action", "srcset", "data"):
                self.links.append(value)
            if name == "id":
                self.ids.append(value)
            if name.startswith("on") or name == "style":
                self.handlers.append((tag, name))

    handle_startendtag = handle_starttag

    def handle_endtag(self, tag):
        if tag not in self.EMPTY:
            assert self.open.pop() == tag


def parse(page):
    parser = PageParser()
    parser.feed(page)
    parser.close()
    assert parser.open == []
    return parser
