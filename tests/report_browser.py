#!/usr/bin/env python3
"""Opens a page of `fa2-tune report --html` in headless Chromium, light and dark, on a telephone, a laptop and a wide
screen, and asks of each: does axe find a violation, is there a message on the console, does the page scroll sideways?
With every problem's <details> open, too.

usage: report_browser.py [--pictures FOLDER] [--only WIDTH-SCHEME] [--no-axe] [PAGE...]

Without a page: is all there that it needs? axe takes seconds for a page of a few hundred measurements, many minutes
for one of ten thousand.

Needs chromium, and axe.min.js out of one of PyPI's packages axe-playwright-python, axe-core-python; FA2_CHROMIUM and
FA2_AXE name them elsewhere. Without: exit status 77, which CTest shows as skipped. Chromium is spoken to by its pipe
(--remote-debugging-pipe, messages that end with a zero byte), so no package for that is needed.
"""

import argparse
import base64
import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

SKIPPED = 77
WIDTHS = (390, 1280, 2560)
LIMIT_S = 600  # to end in

OPEN = """document.querySelectorAll("details").forEach(d => { d.open = true; });
document.querySelector("details")?.scrollIntoView({behavior: "instant"})"""

LOOK = """(async () => {
  const found = window.axe ? await axe.run(document, {resultTypes: ["violations"]})
                           : {violations: [], incomplete: [], passes: []};
  const root = document.documentElement;
  return JSON.stringify({
    violations: found.violations.map(v => v.id + " (" + v.impact + "): " + v.help + ": " + v.nodes.length
                                          + " times, at " + v.nodes[0].target.join(" ")),
    unsure: found.incomplete.length, rules: found.passes.length, scroll: root.scrollWidth, width: root.clientWidth});
})()"""


def find_axe():
    if os.environ.get("FA2_AXE"):
        return pathlib.Path(os.environ["FA2_AXE"])
    for package in ("axe_playwright_python", "axe_core_python"):
        spec = importlib.util.find_spec(package)
        for folder in spec.submodule_search_locations if spec else ():
            if (pathlib.Path(folder) / "axe.min.js").exists():
                return pathlib.Path(folder) / "axe.min.js"
    return None


def find_chromium():
    names = ("chromium", "chromium-browser", "google-chrome")
    return os.environ.get("FA2_CHROMIUM") or next(filter(None, map(shutil.which, names)), None)


class Browser:
    """One tab of a Chromium with a profile of its own."""

    def __init__(self, program, profile):
        (child_reads, self.commands), (self.answers, child_writes) = os.pipe(), os.pipe()

        def take_pipe():  # where it looks for it: 3 and 4
            read, write = os.dup(child_reads), os.dup(child_writes)  # which may be 3 or 4 themselves
            os.dup2(read, 3)
            os.dup2(write, 4)

        # A sandbox wants rights that a container lacks; the page is this repository's own.
        self.process = subprocess.Popen(
            [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
             "--no-first-run", f"--user-data-dir={profile}", "--remote-debugging-pipe", "about:blank"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=take_pipe,
            close_fds=False)
        os.close(child_reads)
        os.close(child_writes)
        self.rest, self.number, self.session, self.messages, self.loaded = b"", 0, None, [], False
        targets = self.ask("Target.getTargets")["targetInfos"]
        tab = next(each["targetId"] for each in targets if each["type"] == "page")
        self.session = self.ask("Target.attachToTarget", targetId=tab, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(domain + ".enable")

    def read(self):
        while b"\0" not in self.rest:
            part = os.read(self.answers, 1 << 20)
            if not part:
                sys.exit("Chromium ended")
            self.rest += part
        message, self.rest = self.rest.split(b"\0", 1)
        return json.loads(message)

    def note(self, event):
        name, about = event["method"], event.get("params", {})
        if name == "Runtime.consoleAPICalled":
            self.messages.append("console: " + " ".join(str(each.get("value")) for each in about["args"]))
        elif name == "Runtime.exceptionThrown":
            self.messages.append("exception: " + str(about["exceptionDetails"].get("text")))
        elif name == "Log.entryAdded":
            self.messages.append(about["entry"]["source"] + ": " + about["entry"]["text"])
        elif name == "Network.requestWillBeSent" and not about["request"]["url"].startswith(("file:", "data:")):
            self.messages.append("asks for " + about["request"]["url"])
        elif name == "Page.loadEventFired":
            self.loaded = True

    def ask(self, method, **params):
        self.number += 1
        request = {"id": self.number, "method": method, "params": params}
        if self.session:
            request["sessionId"] = self.session
        os.write(self.commands, json.dumps(request).encode() + b"\0")
        while True:
            answer = self.read()
            if answer.get("id") == self.number:
                if "error" in answer:
                    sys.exit(f"{method}: {answer['error']}")
                return answer["result"]
            self.note(answer)

    def run(self, script):
        result = self.ask("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in result:
            sys.exit(f"in the page: {result['exceptionDetails']}")
        return result["result"].get("value")

    def open(self, address, width, scheme):
        telephone = width < 600
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=844 if telephone else 1000,
                 deviceScaleFactor=1, mobile=telephone)
        self.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.loaded = False
        self.ask("Page.navigate", url=address)
        while not self.loaded:
            self.note(self.read())

    def end(self):
        self.ask("Browser.close")
        self.process.wait(timeout=LIMIT_S)


def look(browser, axe, page, width, scheme, folder):
    """How much is wrong."""
    browser.messages.clear()
    browser.open(page.resolve().as_uri(), width, scheme)
    if axe:
        browser.run(axe + ";0")
    wrong = []
    for state, change in (("closed", "0"), ("open", OPEN)):
        browser.run(change)
        seen = json.loads(browser.run(LOOK))
        wrong += [f"{state}: {each}" for each in seen["violations"]]
        if seen["scroll"] > seen["width"]:
            wrong.append(f"{state}: {seen['scroll']} pixels of content are {seen['width']} wide")
        if folder:
            picture = browser.ask("Page.captureScreenshot", format="png", captureBeyondViewport=state == "closed")
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{page.stem}-{width}-{scheme}-{state}.png").write_bytes(base64.b64decode(picture["data"]))
    wrong += browser.messages
    print(f"{page.name} {width} {scheme}: {seen['rules']} rules of axe hold, {seen['unsure']} it cannot decide; "
          f"{len(wrong)} wrong", flush=True)
    for each in wrong:
        print(f"    {each}")
    return len(wrong)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pictures", type=pathlib.Path, help="folder for screenshots, PAGE-WIDTH-SCHEME-STATE.png")
    parser.add_argument("--only", help="at one width and in one scheme: 1280-light")
    parser.add_argument("--no-axe", action="store_true", help="messages, scrolling and pictures alone")
    parser.add_argument("pages", type=pathlib.Path, nargs="*")
    args = parser.parse_args()
    axe, chromium = find_axe(), find_chromium()
    if not chromium or not (axe or args.no_axe):
        print("skipped: no " + ("chromium" if not chromium else "axe.min.js (PyPI: axe-playwright-python)"))
        return SKIPPED
    if not args.pages:
        return 0
    script = None if args.no_axe else axe.read_text(encoding="utf-8")
    wrong = 0
    with tempfile.TemporaryDirectory() as profile:
        browser = Browser(chromium, profile)
        for page in args.pages:
            wrong += sum(look(browser, script, page, width, scheme, args.pictures)
                         for width in WIDTHS for scheme in ("light", "dark")
                         if args.only in (None, f"{width}-{scheme}"))
        browser.end()
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
