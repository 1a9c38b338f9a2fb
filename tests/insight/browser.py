"""A headless Chromium, driven through its DevTools on a pipe: no package, no port."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))),
    None,
)
SECONDS = 60  # until it is given up


class Browser:
    """A page of a browser. What its console says of errors is in `errors`, and the addresses that
    it asks for are in `asked`."""

    def __init__(self, width: int = 1600, height: int = 950) -> None:
        assert CHROMIUM is not None
        self.folder = tempfile.mkdtemp()
        self.errors: list[str] = []
        self.asked: list[str] = []
        self.number = 0
        self.rest = b""
        theirs, self.to = os.pipe()
        self.of, back = os.pipe()
        options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run"]
        options += ["--disable-dev-shm-usage", f"--user-data-dir={self.folder}"]
        options += ["--remote-debugging-pipe", f"--window-size={width},{height}", "about:blank"]
        # It reads orders from 3, and answers on 4.
        order = 'exec 3<&$0 4>&$1; shift; exec "$@"'
        command = ["bash", "-c", order.replace("$0", str(theirs)).replace("$1", str(back))]
        self.process = subprocess.Popen(
            [*command, "-", "-", CHROMIUM, *options],
            pass_fds=(theirs, back),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs), os.close(back)
        (target,) = [
            x for x in self.send("Target.getTargets")["targetInfos"] if x["type"] == "page"
        ]
        attached = {"targetId": target["targetId"], "flatten": True}
        self.session = self.send("Target.attachToTarget", **attached)["sessionId"]
        for part in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{part}.enable")
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.send("Emulation.setDeviceMetricsOverride", **size)

    session: str | None = None

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: Any) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.to), os.close(self.of)
        shutil.rmtree(self.folder, ignore_errors=True)

    def send(self, method: str, **params: Any) -> Any:
        """What the browser answers."""
        self.number += 1
        message: dict[str, Any] = {"id": self.number, "method": method, "params": params}
        if self.session is not None:
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        while True:
            found = self._message()
            if found.get("id") == self.number:
                assert "error" not in found, (method, found["error"])
                return found["result"]
            self._note(found)

    def _message(self) -> Any:
        while b"\0" not in self.rest:
            ready, _, _ = select.select([self.of], [], [], SECONDS)
            assert ready, "the browser is silent"
            self.rest += os.read(self.of, 1 << 20)
        first, _, self.rest = self.rest.partition(b"\0")
        return json.loads(first)

    def _note(self, message: Any) -> None:
        method, params = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.errors.append(str(params["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
            self.errors.append(str(params["args"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.errors.append(str(params["entry"]))
        elif method == "Network.requestWillBeSent":
            self.asked.append(params["request"]["url"])

    # ---- what is done with a page

    def open(self, path: Path) -> float:
        """Open a page of ours; the seconds until it is there."""
        start = time.perf_counter()
        self.send("Page.navigate", url=path.resolve().as_uri())
        self.wait("document.documentElement?.dataset.ready === 'yes'")
        return time.perf_counter() - start

    def wait(self, condition: str) -> None:
        end = time.monotonic() + SECONDS
        while not self.value(f"Boolean({condition})"):
            assert time.monotonic() < end, f"waited in vain for {condition}; {self.errors}"
            time.sleep(0.02)

    def value(self, expression: str) -> Any:
        """What an expression of JavaScript is."""
        found = self.send("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def move(self, x: float, y: float) -> None:
        self.send("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def click(self, x: float, y: float) -> None:
        self.move(x, y)
        for kind in ("mousePressed", "mouseReleased"):
            self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def place(self, selector: str, k: int = 0) -> tuple[float, float]:
        """The middle of what a selector finds."""
        x, y = self.value(
            f"(() => {{ const b = document.querySelectorAll({selector!r})[{k}]"
            ".getBoundingClientRect(); return [b.left + Math.min(b.width / 2, 90),"
            " b.top + b.height / 2]; })()"
        )
        return x, y

    def press(self, key: str) -> None:
        text = {"text": key} if len(key) == 1 else {}
        if key == "Enter":
            text = {"text": "\r"}
        for kind in ("keyDown", "keyUp"):
            self.send("Input.dispatchKeyEvent", type=kind, key=key, **text)
            text = {}

    def picture(self) -> bytes:
        return base64.b64decode(self.send("Page.captureScreenshot", format="png")["data"])

    def printed(self) -> bytes:
        """The page as a PDF."""
        return base64.b64decode(self.send("Page.printToPDF", landscape=True)["data"])
