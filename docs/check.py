"""Look at the built pages as a reader does: in a browser without the internet.

Every page is loaded by a headless Chromium; a message on its console is an error. Links within the
site, anchors included, must lead somewhere, nothing may be loaded from elsewhere, and a search must
find something.

Run: python docs/check.py build/site [--screenshots DIR]   (needs chromium: apt install chromium)
"""

import argparse
import functools
import http.server
import re
import shutil
import subprocess
import sys
import threading
import time
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

SEARCHED = "noise"
WAIT = 12.0  # seconds for the search, which loads and indexes all pages


class Links(HTMLParser):
    """What a page links to, what it loads, and the anchors it has."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.anchors: set[str] = set()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        """Note one element."""
        given = {key: value or "" for key, value in attributes}
        self.anchors.add(given.get("id", ""))
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        elif tag == "link" and given.get("rel") in ("stylesheet", "icon"):
            self.loads.append(given["href"])
        elif "src" in given:
            self.loads.append(given["src"])


def read(page: Path) -> Links:
    """Parse a page."""
    links = Links()
    links.feed(page.read_text(encoding="utf-8"))
    return links


def broken(site: Path, pages: list[Path]) -> list[str]:
    """Links that lead nowhere, and what is loaded from elsewhere."""
    parsed = {page.relative_to(site).as_posix(): read(page) for page in pages}
    found = []
    for name, links in parsed.items():
        for link in [*links.links, *links.loads]:
            if urlsplit(link).scheme:
                if link in links.loads and not link.startswith("data:"):
                    found.append(f"{name} loads {link}")
                continue
            target = urlsplit(urljoin(f"http://site/{name}", link))
            path, anchor = unquote(target.path).lstrip("/"), unquote(target.fragment)
            if name == "404.html":  # its links are those of a site at the root of a server
                continue
            if not (site / (path or "index.html")).is_file():
                found.append(f"{name} links to {link}")
            elif anchor and path in parsed and anchor not in parsed[path].anchors:
                found.append(f"{name} links to {link}, which has no such anchor")
    return found


# A page that types into the search of another. The load of the picture takes some seconds, and the
# browser looks at the page after that: the search works in a thread of its own, in real time.
SEARCH = """<!doctype html><title>search</title><iframe src="/index.html"></iframe><img src="/wait">
<script>
const frame = document.querySelector("iframe");
frame.onload = () => {
    const page = frame.contentDocument;
    const query = page.querySelector("[data-md-component=search-query]");
    page.querySelector("#__search").click();
    query.focus();
    query.value = "%s";
    for (const kind of ["input", "keyup"]) query.dispatchEvent(new Event(kind, {bubbles: true}));
    setInterval(() => {
        document.body.dataset.hits = page.querySelectorAll(".md-search-result__item").length;
    }, 100);
};
</script>"""


class Server(http.server.SimpleHTTPRequestHandler):
    """Serves files, and the page that searches; says nothing."""

    def do_GET(self) -> None:
        """Answer one request."""
        if self.path not in ("/wait", "/search"):
            return super().do_GET()
        if self.path == "/wait":
            time.sleep(WAIT)
        self.send_response(200)
        self.send_header("Content-Type", "text/html" if self.path == "/search" else "image/svg+xml")
        self.end_headers()
        empty = '<svg xmlns="http://www.w3.org/2000/svg"/>'
        self.wfile.write((SEARCH % SEARCHED if self.path == "/search" else empty).encode())
        return None

    def log_message(self, *_: object) -> None:
        """Nothing."""


LATER = "--virtual-time-budget=8000"  # look at a page after its timers have run


def browse(address: str, *options: str) -> tuple[str, list[str]]:
    """The page after its scripts have run, and what they wrote to the console."""
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        sys.exit("there is no chromium; on Debian: apt install chromium")
    done = subprocess.run(
        [
            *(program, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr"),
            *("--window-size=1280,1600", *options, address),
        ],
        capture_output=True,
        text=True,
        timeout=300,
    )
    return done.stdout, re.findall(r"CONSOLE.*", done.stderr)


def main() -> int:
    """Check all pages; the exit code says whether they are good."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("site", type=Path)
    parser.add_argument("--screenshots", type=Path, metavar="DIR")
    given = parser.parse_args()
    pages = sorted(given.site.rglob("*.html"))
    wrong = broken(given.site, pages)
    handler = functools.partial(Server, directory=given.site)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        for page in pages:
            name = page.relative_to(given.site).as_posix()
            text, said = browse(f"{address}/{name}", "--dump-dom", LATER)
            wrong += [f"{name}: {line}" for line in said]
            if "md-content" not in text:
                wrong.append(f"{name} did not load")
            if given.screenshots:
                given.screenshots.mkdir(parents=True, exist_ok=True)
                picture = given.screenshots / f"{name.replace('/', '-')}.png"
                browse(f"{address}/{name}", f"--screenshot={picture.resolve()}", LATER)
        text, said = browse(f"{address}/search", "--dump-dom")
        hits = sum(map(int, re.findall(r'data-hits="(\d+)"', text)))
        wrong += said
        if not hits:
            wrong.append(f"the search finds nothing for {SEARCHED!r}")
        server.shutdown()
    print(*wrong, sep="\n")
    print(f"{len(pages)} pages, {hits} hits of the search, {len(wrong)} errors")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
