"""A page in headless Chromium, driven over its DevTools protocol: keys, evaluated expressions, screenshots, and what its console says."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from klamm.tests.harness.waits import eventually, eventually_asked

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--remote-debugging-port=0", "--hide-scrollbars",
)
KEYS = {"Tab": 9, "Enter": 13, " ": 32}


def chromium() -> str:
    """The browser; a test that needs it fails without it."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        found = shutil.which(name)
        if found is not None:
            return found
    raise AssertionError("the page is tested in Chromium: install the package `chromium`")


class Page:
    """A page that is open. `errors` has everything that the console and the log said as an error, and exceptions."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.errors: list[str] = []
        self._socket = socket
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._reader = asyncio.create_task(self._read())

    async def call(self, method: str, **params: object) -> dict[str, Any]:
        """A command of the DevTools protocol."""
        number = next(self._numbers)
        self._waiting[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": params})
        return await self._waiting[number]

    async def evaluate(self, expression: str) -> Any:
        """The value of an expression; a promise is awaited. Raises AssertionError if it throws."""
        done = await self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in done, done
        return done["result"].get("value")

    async def until(self, expression: str) -> Any:
        """The first true value of an expression."""
        return await eventually_asked(lambda: self.evaluate(expression), expression)

    async def open(self, url: str) -> None:
        """Go to an address and wait until the page shows the brokers, or wants a token."""
        await self.call("Page.navigate", url=url)
        await self.until("document.querySelector('#brokers tr') !== null || document.querySelector('#token-form:not([hidden])') !== null")

    async def press(self, key: str, *, shift: bool = False) -> None:
        """Press a key as a user does: Tab, Enter, or a character."""
        text = {"Enter": "\r", "Tab": ""}.get(key, key)
        code = KEYS.get(key, ord(key[0]))
        common = {"key": key, "windowsVirtualKeyCode": code, "modifiers": 8 if shift else 0}
        await self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **common)
        await self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    async def tab_to(self, selector: str) -> None:
        """Press Tab until the element has the focus, as a user without a mouse does."""
        for _ in range(300):
            if await self.evaluate(f"document.activeElement.matches({json.dumps(selector)})"):
                return
            await self.press("Tab")
        raise AssertionError(f"Tab never reaches {selector}")

    async def type(self, selector: str, text: str) -> None:
        """Go to a field with Tab and type into it."""
        await self.tab_to(selector)
        await self.call("Input.insertText", text=text)

    async def look(self, *, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """The size of the window and the colours that the user prefers."""
        await self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.call("Emulation.setEmulatedMedia", features=[scheme])

    async def screenshot(self, file: Path) -> None:
        """Write a picture of the window."""
        made = await self.call("Page.captureScreenshot")
        file.write_bytes(base64.b64decode(made["data"]))

    async def _read(self) -> None:
        async for message in self._socket:
            said = json.loads(message.data)
            if "id" in said:
                self._waiting.pop(said["id"]).set_result(said.get("result", said))
            elif said["method"] == "Runtime.exceptionThrown":
                self.errors.append(said["params"]["exceptionDetails"].get("exception", {}).get("description", str(said)))
            elif said["method"] == "Log.entryAdded" and said["params"]["entry"]["level"] in ("error", "warning"):
                self.errors.append(f"{said['params']['entry']['text']} {said['params']['entry'].get('url', '')}")
            elif said["method"] == "Runtime.consoleAPICalled" and said["params"]["type"] in ("error", "warning", "assert"):
                self.errors.append(str(said["params"]["args"]))

    async def close(self) -> None:
        self._reader.cancel()
        await self._socket.close()


@asynccontextmanager
async def browser(folder: Path) -> AsyncIterator[Page]:
    """An empty page. `folder` is for the profile of the browser."""
    profile = folder / "profile"
    command = [chromium(), *FLAGS, f"--user-data-dir={profile}", "about:blank"]
    with (folder / "chromium.log").open("wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        port_file = profile / "DevToolsActivePort"
        lines = await eventually(lambda: port_file.read_text().splitlines() if port_file.exists() else [], "Chromium listens")
        port = int(lines[0])
        async with aiohttp.ClientSession() as session:
            async with session.get(f"http://127.0.0.1:{port}/json/list") as listed:
                target = next(each for each in await listed.json() if each["type"] == "page")
            socket = await session.ws_connect(target["webSocketDebuggerUrl"], max_msg_size=0)
            page = Page(socket)
            try:
                for domain in ("Page", "Runtime", "Log"):
                    await page.call(f"{domain}.enable")
                await page.look()
                yield page
            finally:
                await page.close()
    finally:
        process.terminate()
        process.wait(30)
