"""A headless Chromium driven over its debugging pipe: no package is needed beyond the browser. Standard library only."""
import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


def find_chromium():
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """One page. Every call raises what the page threw."""

    def __init__(self, program, width=1360, height=900):
        self.profile = tempfile.mkdtemp(prefix="tandem_browser_")
        to_browser, self.write = os.pipe()
        self.read, from_browser = os.pipe()
        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run", "--mute-audio",
                 "--disable-extensions", "--disable-background-networking", "--disable-dev-shm-usage",
                 f"--user-data-dir={self.profile}", f"--window-size={width},{height}", "--remote-debugging-pipe", "about:blank"]

        def descriptors():  # the browser reads commands on 3 and answers on 4
            kept = os.dup(to_browser), os.dup(from_browser)
            os.dup2(kept[0], 3)
            os.dup2(kept[1], 4)

        self.process = subprocess.Popen([program, *flags], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL, preexec_fn=descriptors, close_fds=False)
        os.close(to_browser)
        os.close(from_browser)
        self.buffer, self.number, self.session, self.events = b"", 0, None, []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.size(width, height)

    def size(self, width, height, mobile=False, scale=1):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=mobile)

    def call(self, method, timeout=60, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.write, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + timeout
        while True:
            answer = self.receive(deadline)
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]
            self.events.append(answer)

    def receive(self, deadline):
        while b"\0" not in self.buffer:
            if not select.select([self.read], [], [], max(0, deadline - time.monotonic()))[0]:
                raise TimeoutError("the browser does not answer")
            got = os.read(self.read, 1 << 20)
            if not got:
                raise RuntimeError("the browser has gone")
            self.buffer += got
        line, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(line)

    def go(self, url):
        self.call("Page.navigate", url=url)

    def eval(self, expression):
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            details = result["exceptionDetails"]
            raise RuntimeError(f"{expression}: {details.get('exception', {}).get('description', details.get('text'))}")
        return result["result"].get("value")

    def wait(self, expression, what=None, timeout=20):
        """Until the expression is true; its value."""
        deadline = time.monotonic() + timeout
        while True:
            try:
                value = self.eval(expression)
            except RuntimeError as error:  # a page that is being left
                if "context" not in str(error).lower():
                    raise
                value = None
            if value:
                return value
            if time.monotonic() > deadline:
                raise TimeoutError(f"never came: {what or expression}")
            time.sleep(0.05)

    def key(self, key):
        for kind in ("keyDown", "keyUp"):
            extra = {"text": key} if len(key) == 1 and kind == "keyDown" else {}
            if key == "Escape":
                extra["windowsVirtualKeyCode"] = 27
            self.call("Input.dispatchKeyEvent", type=kind, key=key, **extra)

    def screenshot(self, path):
        with open(path, "wb") as file:
            file.write(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def complaints(self):
        """What the page's console has said of errors so far."""
        self.eval("0")
        found = []
        for event in self.events:
            parameters = event.get("params", {})
            if event.get("method") == "Runtime.exceptionThrown":
                details = parameters["exceptionDetails"]
                found.append(details.get("exception", {}).get("description", details["text"]))
            if event.get("method") == "Log.entryAdded" and parameters["entry"]["level"] == "error":
                found.append(f"{parameters['entry']['text']} {parameters['entry'].get('url', '')}")
        return found

    def close(self):
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.read)
        os.close(self.write)
        shutil.rmtree(self.profile, ignore_errors=True)
