"""A headless Chromium driven over the DevTools protocol: what a page logs, asks for, looks like and prints."""

from __future__ import annotations

import base64
import itertools
import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import websocket

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--remote-debugging-port=0",
    "--remote-allow-origins=*",
)
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


def find_chromium() -> str:
    """Return the path of a Chromium on PATH; raises FileNotFoundError that says what to install."""
    for name in NAMES:
        found = shutil.which(name)
        if found:
            return found
    raise FileNotFoundError("no Chromium on PATH: install the package chromium")


class Browser:
    """One browser process with an empty profile; use it as a context manager."""

    def __init__(self) -> None:
        self._profile = tempfile.TemporaryDirectory(prefix="icu-browser-", ignore_cleanup_errors=True)
        command = [find_chromium(), *FLAGS, f"--user-data-dir={self._profile.name}", "about:blank"]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            self._socket = websocket.create_connection(self._address(), timeout=60, enable_multithread=False)
        except BaseException:
            self.close()
            raise
        self._numbers = itertools.count(1)
        self.events: list[dict[str, Any]] = []

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the process and remove its profile."""
        if hasattr(self, "_socket"):
            self._socket.close()
        self._process.terminate()
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._profile.cleanup()

    def _address(self) -> str:
        """Chromium writes the port it chose into its profile once it listens."""
        note, deadline = Path(self._profile.name) / "DevToolsActivePort", time.monotonic() + 60
        while time.monotonic() < deadline:
            lines = note.read_text().splitlines() if note.exists() else []
            if len(lines) == 2:
                return f"ws://127.0.0.1:{lines[0]}{lines[1]}"
            if self._process.poll() is not None:
                raise RuntimeError(f"Chromium ended with status {self._process.returncode} before it listened")
            time.sleep(0.05)
        raise TimeoutError("Chromium did not listen within 60 seconds")

    def call(self, method: str, parameters: dict[str, Any] | None = None, session: str | None = None) -> dict[str, Any]:
        """Send one command and return its result; events that arrive meanwhile are kept in `events`."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters or {}}
        self._socket.send(json.dumps(message | ({"sessionId": session} if session else {})))
        while True:
            answer = self._receive()
            if answer.get("id") == number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return dict(answer["result"])

    def wait_for(self, method: str, session: str) -> None:
        """Return once an event has arrived."""
        while not any(event["method"] == method and event.get("sessionId") == session for event in self.events):
            self._receive()

    def _receive(self) -> dict[str, Any]:
        message: dict[str, Any] = json.loads(self._socket.recv())
        if "method" in message:
            self.events.append(message)
        return message

    @contextmanager
    def page(self, url: str, *, width: int, height: int = 900, dark: bool = False) -> Iterator[Page]:
        """Open a url in a fresh tab of the given size and colour scheme."""
        target = self.call("Target.createTarget", {"url": "about:blank"})["targetId"]
        session = self.call("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
        try:
            yield Page(self, session, url, width, height, dark)
        finally:
            self.call("Target.closeTarget", {"targetId": target})


class Page:
    """One loaded page."""

    def __init__(self, browser: Browser, session: str, url: str, width: int, height: int, dark: bool) -> None:
        self._browser, self._session, self.url = browser, session, url
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        self.resize(width, height)
        self.media(dark=dark)
        self.call("Page.navigate", url=url)
        browser.wait_for("Page.loadEventFired", session)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send one command to this page."""
        return self._browser.call(method, parameters, self._session)

    def resize(self, width: int, height: int = 900) -> None:
        """Lay the page out for a window of this size."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def media(self, medium: str = "", *, dark: bool = False) -> None:
        """Emulate a colour scheme, and a medium where one is named; without one, printing uses the print styles."""
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", media=medium, features=scheme)

    def reload(self, *, scripts: bool) -> None:
        """Load the page again, with the scripts of the page switched on or off."""
        self.call("Emulation.setScriptExecutionDisabled", value=not scripts)
        self._browser.events.clear()
        self.call("Page.reload")
        self._browser.wait_for("Page.loadEventFired", self._session)

    def evaluate(self, expression: str) -> Any:
        """Return the value of an expression in the page; raises RuntimeError when it throws."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"]["text"])
        return answer["result"].get("value")

    def events(self, method: str) -> list[dict[str, Any]]:
        """Return what arrived for this page under one event name."""
        mine = (event for event in self._browser.events if event.get("sessionId") == self._session)
        return [event["params"] for event in mine if event["method"] == method]

    def complaints(self) -> list[str]:
        """Return everything the browser holds against the page: console messages, log entries, uncaught exceptions."""
        self.evaluate("new Promise(done => setTimeout(done, 100))")
        said = [str(event["args"]) for event in self.events("Runtime.consoleAPICalled")]
        said += [event["exceptionDetails"]["text"] for event in self.events("Runtime.exceptionThrown")]
        return said + [event["entry"]["text"] for event in self.events("Log.entryAdded")]

    def requests(self) -> list[str]:
        """Return the address of everything that the page asked for, the page itself included."""
        return [event["request"]["url"] for event in self.events("Network.requestWillBeSent")]

    def pdf(self) -> bytes:
        """Print the page to A4."""
        return base64.b64decode(
            self.call(
                "Page.printToPDF", paperWidth=8.27, paperHeight=11.69, printBackground=True, preferCSSPageSize=True
            )["data"]
        )

    def screenshot(self, path: Path, selector: str | None = None) -> None:
        """Write a PNG of the whole page, or of the first element that a selector finds."""
        box = self.evaluate(f"JSON.stringify(({BOX})({json.dumps(selector)}))")
        clip = {**json.loads(box), "scale": 1}
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        path.write_bytes(base64.b64decode(shot["data"]))


BOX = """selector => {
  const root = document.documentElement;
  if (!selector) return {x: 0, y: 0, width: root.clientWidth, height: root.scrollHeight};
  const box = document.querySelector(selector).getBoundingClientRect();
  return {x: box.x + scrollX, y: box.y + scrollY, width: box.width, height: box.height};
}"""
