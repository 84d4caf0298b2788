"""A page as a parser sees it, and a browser; a table of Markdown."""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import aiohttp

VOID = {"meta", "path", "use", "br", "link", "img", "input"}


@dataclass
class Read(HTMLParser):
    """Tags with their attributes in order, text outside scripts and styles, what scripts hold."""

    tags: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    text: list[str] = field(default_factory=list)
    scripts: list[str] = field(default_factory=list)
    styles: list[str] = field(default_factory=list)
    within: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.within.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        while self.within and self.within.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        where = self.within[-1] if self.within else ""
        {"script": self.scripts, "style": self.styles}.get(where, self.text).append(data)

    def named(self, tag: str) -> list[dict[str, str]]:
        """The attributes of every such tag."""
        return [attributes for name, attributes in self.tags if name == tag]


def read(page: Path) -> Read:
    found = Read()
    found.feed(page.read_text("utf-8"))
    found.close()
    return found


def grid(markdown: str) -> list[list[str]]:
    """The lines of a Markdown table without its rule."""
    lines = [line[2:-2].split(" | ") for line in markdown.splitlines() if line.startswith("| ")]
    return [line for line in lines if set(line[0]) != {"-"}]


# A headless Chromium that opens a page and says what happened: requests, console, geometry, a screenshot


NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


def chromium() -> str | None:
    """The browser's path, or None where there is none."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


@dataclass(frozen=True)
class View:
    """How a page is looked at."""

    width: int
    dark: bool = False
    print_media: bool = False


@dataclass
class Seen:
    """What a page did: addresses asked for beside its own, lines on the console, what scripts returned, a PNG."""

    requests: list[str]
    console: list[str]
    found: list[Any]
    png: bytes


def visit(page: Path, views: Sequence[View], scripts: Sequence[str] = ()) -> list[Seen]:
    """Opens the page once for every view and evaluates `scripts` (JavaScript expressions) in it."""
    return asyncio.run(_visit(page, views, scripts))


async def _visit(page: Path, views: Sequence[View], scripts: Sequence[str]) -> list[Seen]:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        browser = subprocess.Popen(
            [
                str(chromium()), "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
                "--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking",
                "--remote-debugging-port=0", f"--user-data-dir={folder}", "about:blank",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            port = await _port(Path(folder) / "DevToolsActivePort")
            async with aiohttp.ClientSession() as session:
                return [await _look(session, port, page, view, scripts) for view in views]
        finally:
            browser.terminate()
            browser.wait(60)


async def _port(file: Path) -> int:
    for _ in range(600):
        if file.is_file() and (lines := file.read_text().splitlines()):
            return int(lines[0])
        await asyncio.sleep(0.05)
    raise AssertionError("the browser does not start")


async def _look(
    session: aiohttp.ClientSession, port: int, page: Path, view: View, scripts: Sequence[str]
) -> Seen:
    async with session.put(f"http://127.0.0.1:{port}/json/new?about:blank") as answer:
        target = json.loads(await answer.text())
    seen = Seen([], [], [], b"")
    async with session.ws_connect(target["webSocketDebuggerUrl"], max_msg_size=0) as socket:
        number = 0
        loaded = asyncio.Event()

        def note(event: dict[str, Any]) -> None:
            method, about = event.get("method"), event.get("params", {})
            if method == "Network.requestWillBeSent" and about["request"]["url"] != page.as_uri():
                seen.requests.append(about["request"]["url"])
            elif method == "Log.entryAdded":
                seen.console.append(about["entry"]["text"])
            elif method in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown"):
                seen.console.append(json.dumps(about)[:300])
            elif method == "Page.loadEventFired":
                loaded.set()

        async def ask(method: str, **params: Any) -> dict[str, Any]:
            nonlocal number
            number += 1
            await socket.send_json({"id": number, "method": method, "params": params})
            while True:
                event = json.loads((await socket.receive()).data)
                note(event)
                if event.get("id") == number:
                    assert "error" not in event, event
                    result: dict[str, Any] = event["result"]
                    return result

        for domain in ("Page", "Network", "Log", "Runtime"):
            await ask(f"{domain}.enable")
        scheme = {"name": "prefers-color-scheme", "value": "dark" if view.dark else "light"}
        await ask("Emulation.setEmulatedMedia", media="print" if view.print_media else "", features=[scheme])
        await ask(
            "Emulation.setDeviceMetricsOverride", width=view.width, height=900, deviceScaleFactor=1,
            mobile=view.width < 640,
        )  # fmt: skip
        await ask("Page.navigate", url=page.as_uri())
        while not loaded.is_set():
            note(json.loads((await socket.receive()).data))
        for script in scripts:
            value = await ask("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
            assert "exceptionDetails" not in value, value
            seen.found.append(value["result"].get("value"))
        shot = await ask("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        seen.png = base64.b64decode(shot["data"])
    return seen
