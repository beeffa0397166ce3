"""Page loads: by headless Chromium through its debugging pipe, or by curl where there is none."""

import json
import os
import select
import subprocess
import time

import page
from origin import HTTP_PORT
from process import Failed, find, with_parent

# What a browser does on its own accord is not measured.
OPTIONS = """--headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --disable-extensions --no-first-run
--no-default-browser-check --disable-background-networking --disable-component-update --disable-sync
--disable-default-apps --disable-domain-reliability --metrics-recording-only --mute-audio --disable-breakpad
--disable-features=OptimizationHints,MediaRouter,Translate,DialMediaRouteProvider --remote-debugging-pipe""".split()
START_LIMIT = 30
# Navigation timing (W3C), after the load event; what failed to load has no size, images that did no width.
TIMES = """(() => { const t = performance.timing;
  return JSON.stringify({ load: t.loadEventEnd - t.navigationStart, response: t.responseEnd - t.navigationStart,
    objects: 1 + performance.getEntriesByType('resource').filter(r => r.transferSize > 0).length,
    broken: [...document.images].filter(i => !i.naturalWidth).length }) })()"""


def reserve_pipes():
    """Chromium wants its pipe at descriptors 3 and 4: nothing else may come to lie there."""
    while True:
        number = os.open(os.devnull, os.O_RDWR)
        if number > 4:
            os.close(number)
            return


class Chromium:
    def __init__(self, program, proxy, folder):
        commands, self.write = os.pipe()
        self.read, answers = os.pipe()
        os.dup2(commands, 3)
        os.dup2(answers, 4)
        os.close(commands)
        os.close(answers)
        command = [program, *OPTIONS, f"--user-data-dir={folder}/chromium"]
        if proxy:
            command.append(f"--proxy-server={proxy}")
        with open(f"{folder}/chromium.log", "wb") as log:
            self.child = subprocess.Popen(
                command + ["about:blank"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(3, 4),
                preexec_fn=with_parent,
                env={**os.environ, "HOME": folder},
            )
        for number in (3, 4):
            null = os.open(os.devnull, os.O_RDWR)
            os.dup2(null, number)
            os.close(null)
        self.buffer, self.number, self.events = b"", 0, []
        self.call("Browser.getVersion", limit=START_LIMIT)

    def message(self, deadline):
        while b"\0" not in self.buffer:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.read], [], [], left)[0]:
                raise TimeoutError
            data = os.read(self.read, 1 << 16)
            if not data:
                raise Failed("chromium ended: see chromium.log")
            self.buffer += data
        text, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(text)

    def call(self, method, session=None, limit=10, **params):
        self.number += 1
        asked = {"id": self.number, "method": method, "params": params}
        if session:
            asked["sessionId"] = session
        os.write(self.write, json.dumps(asked).encode() + b"\0")
        deadline = time.monotonic() + limit
        while True:
            try:
                answer = self.message(deadline)
            except TimeoutError:
                raise Failed(f"chromium does not answer {method}") from None
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise Failed(f"{method}: {answer['error'].get('message')}")
                return answer["result"]
            self.events.append(answer)

    def event(self, name, session, deadline):
        """Waits for an event, which may have come while an answer was waited for."""
        while True:
            message = self.events.pop(0) if self.events else self.message(deadline)
            if message.get("method") == name and message.get("sessionId") == session:
                return

    def load(self, url, limit):
        """One load in a fresh profile: a browser context shares no cache and no connection with others."""
        context = self.call("Target.createBrowserContext")["browserContextId"]
        try:
            target = self.call("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
            session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            self.call("Page.enable", session)
            self.events.clear()
            deadline = time.monotonic() + limit
            try:
                result = self.call("Page.navigate", session, limit=limit, url=url)
                if result.get("errorText"):
                    return {"load": None, "why": result["errorText"]}
                self.event("Page.loadEventFired", session, deadline)
            except (TimeoutError, Failed) as error:
                return {"load": None, "why": str(error) or f"not loaded after {limit} s"}
            time.sleep(0.05)  # the event's end is known after its handlers
            found = self.call("Runtime.evaluate", session, expression=TIMES)["result"]["value"]
            found = json.loads(found)
            found["load"] /= 1e3
            found["response"] /= 1e3
            return found
        finally:
            self.call("Target.disposeBrowserContext", browserContextId=context)

    def close(self):
        os.close(self.write)
        try:
            self.child.wait(5)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()


def curl_load(way, limit):
    """The document, then all the rest six at a time: no page, but its bytes and connections."""
    host, port = way.address(HTTP_PORT)
    base = ["curl", "-sS", "--max-time", str(limit)]
    if way.socks:
        base += ["-x", f"socks5h://127.0.0.1:{way.socks}"]
    url = f"http://{host}:{port}"
    rest = [part for path in page.objects() if path != "/" for part in (f"{url}{path}", "-o", "/dev/null")]
    start = time.monotonic()
    done = subprocess.run(base + [f"{url}/", "-o", "/dev/null"], capture_output=True, text=True)
    response = time.monotonic() - start
    if not done.returncode:
        done = subprocess.run(base + ["-Z", "--parallel-max", "6"] + rest, capture_output=True, text=True)
    if done.returncode:
        return {"load": None, "why": done.stderr.strip()[-200:]}
    return {"load": time.monotonic() - start, "response": response, "objects": len(page.sizes()), "broken": 0}


def chromium():
    return find("chromium") or find("chromium-browser") or find("google-chrome")


def loads(way, count, limit, folder):
    """Loads one after the other, with a pause that lets what is left of one pass."""
    program = chromium()
    results = []
    if program:
        proxy = f"socks5://127.0.0.1:{way.socks}" if way.socks else None
        browser = Chromium(program, proxy, folder)
        # The first page of a process is later than any other, wherever it comes from.
        browser.load("data:text/html,<img src='data:image/gif;base64,R0lGODlhAQABAAAAACw='>", limit)
        host, port = way.address(HTTP_PORT)
        load = lambda: browser.load(f"http://{host}:{port}/", limit)
    elif find("curl"):
        browser, load = None, lambda: curl_load(way, limit)
    else:
        raise Failed("neither chromium nor curl")
    for index in range(count):
        if index:
            time.sleep(0.5)
        results.append(load())
    if browser:
        browser.close()
    return {"loader": "chromium" if program else "curl", "loads": results}
