"""Check a page of `fa2-tune report --html` against its database: its structure, that it needs nothing besides
itself, that assistive technology finds names for what is there, and that its figures are SQL's.

usage: report_page.py PAGE [DATABASE]
"""

import html.parser
import math
import re
import sqlite3
import statistics
import sys

VOID = {"meta", "input", "br", "link"}
NAMED = {"a", "dt", "dd"}  # whose text is looked at
OPTIONAL_END = {"li", "tr", "td", "th", "thead", "tbody", "p", "dt", "dd"}
failures = 0


def check(condition, what):
    global failures
    if not condition:
        failures += 1
        print(f"FAILED: {what}", file=sys.stderr)


class Page(html.parser.HTMLParser):
    """Elements as a flat list [tag, attributes, text], and what is wrong with their nesting."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.open, self.faults = [], [], []
        self.feed(text)
        self.close()
        self.faults += [f"<{each[0]}> is not closed" for each in self.open]

    def handle_starttag(self, tag, attributes):
        element = [tag, dict(attributes), ""]
        self.elements.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_startendtag(self, tag, attributes):
        self.elements.append([tag, dict(attributes), ""])

    def handle_endtag(self, tag):
        while self.open and self.open[-1][0] != tag and self.open[-1][0] in OPTIONAL_END:
            self.open.pop()
        if not self.open or self.open[-1][0] != tag:
            self.faults.append(f"</{tag}> at {self.getpos()} closes nothing")
        else:
            self.open.pop()

    def handle_data(self, data):
        for element in self.open[-3:]:
            if element[0] in NAMED:
                element[2] += data

    def all(self, tag):
        return [each for each in self.elements if each[0] == tag]


def check_structure(page, text):
    check(not page.faults, f"nesting: {page.faults[:3]}")
    ids = [each[1]["id"] for each in page.elements if "id" in each[1]]
    check(len(ids) == len(set(ids)), "an id is there twice")
    for link in page.all("a"):
        target = link[1].get("href", "")
        check(target.startswith("#") and target[1:] in ids, f"a link to {target}")
        check(link[2].strip() or link[1].get("aria-label"), "a link without a name")
    for tag, attribute in (("img", "src"), ("script", "src"), ("link", "href"), ("iframe", "src"), ("use", "href")):
        check(not [each for each in page.all(tag) if attribute in each[1]], f"<{tag}> loads something")
    check(not re.search(r"url\(|@import|https?://", text), "an address")
    check(len(page.all("script")) == 1, "scripts that are not the page's")
    check(len(page.all("h1")) == 1 and len(page.all("main")) == 1 and page.all("title"), "h1, main, title")
    check(page.all("html")[0][1].get("lang") == "en", "the language")


def check_names(page):
    check(len(page.all("table")) == len(page.all("caption")), "tables and captions")
    check(all(each[1].get("scope") for each in page.all("th")), "a th without scope")
    for svg in page.all("svg"):
        check(svg[1].get("role") == "img" and svg[1].get("aria-label"), "a picture without a name")
    for element in page.elements:
        if element[1].get("tabindex") == "0":
            check(element[1].get("role") and element[1].get("aria-label"), "a stop of the keyboard without a name")
    inputs, labels = page.all("input"), page.all("label")
    check(len(inputs) <= len(labels), "an input without a label")


def luminance(colour):
    """Of WCAG 2, from "#rrggbb" or three numbers from 0 to 1."""
    if isinstance(colour, str):
        colour = [int(colour[i:i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colour]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a, b):
    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


def blend(colour, ground, opacity):
    channels = [[int(each[i:i + 2], 16) / 255 for i in (1, 3, 5)] for each in (colour, ground)]
    return [opacity * a + (1 - opacity) * b for a, b in zip(*channels)]


def check_contrast(text):
    """By the colours of the style sheet, light and dark: 4.5 for text, 3 for what pictures are made of."""
    schemes = [dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", each))
               for each in re.findall(r":root \{(.*?)\}", text, re.S)]
    check(len(schemes) == 2, "colours for light and dark")
    shades = [float(each) for each in re.findall(r"\.h[0-8] \{ fill-opacity: ([0-9.]+);", text)]
    check(len(shades) == 9, "nine shades")
    for colours in schemes:
        for ground in ("paper", "sheet", "key"):
            for ink in ("ink", "soft", "blue", "bad"):
                ratio = contrast(colours[ink], colours[ground])
                check(ratio >= 4.5, f"{ink} on {ground}: contrast {ratio:.2f}")
            for ink in ("cloud", "hot"):
                ratio = contrast(colours[ink], colours[ground])
                check(ratio >= 3, f"{ink} on {ground}: contrast {ratio:.2f}")
        for number, opacity in enumerate(shades):  # figures.lua: those above 5 have the other ink
            tile = blend(colours["cloud"], colours["paper"], opacity)
            ratio = contrast(colours["paper" if number > 5 else "ink"], tile)
            check(ratio >= 4.5, f"a number on shade {number}: contrast {ratio:.2f}")


def check_focus(page, text):
    """The keyboard goes in the order of the page, and where it is can be seen."""
    check(not [each for each in page.elements if int(each[1].get("tabindex") or 0) > 0], "an order of its own")
    check(":focus-visible { outline: 2px" in text, "a focus that cannot be seen")
    first = next(each for each in page.elements if each[0] == "a")
    check(first[1].get("class") == "skip", "the first link skips to the content")


def check_lines(text):
    """Roofs and other lines of plots lie within the frame that their grid draws."""
    for plot in re.findall(r'<svg class="plot".*?</svg>', text, re.S):
        grid = re.findall(r'class="grid" d="M([0-9.]+) ([0-9.]+)([HV])([0-9.]+)"', plot)
        across = [float(each) for x, _, way, end in grid if way == "H" for each in (x, end)]
        down = [float(each) for _, y, way, end in grid if way == "V" for each in (y, end)]
        lines = re.findall(r'<path class="(?:roof|roof given|guide)" d="([^"]*)"', plot)
        for line in lines:
            ends = [tuple(map(float, each)) for each in re.findall(r"[ML]([-0-9.]+) ([-0-9.]+)", line)]
            check(len(ends) == 2 and ends[0] < ends[1], f"the line {line}")
            check(all(min(across) <= x <= max(across) and min(down) <= y <= max(down) for x, y in ends),
                  f"the line {line} leaves its frame, {across[:2]} across and {down[:2]} down")
        check(len(re.findall(' label"', plot)) in (0, len(lines)), "a roof without its name")


def key_figure(page, name):
    """The <dd> behind the <dt> of that name."""
    texts = [(each[0], each[2].strip()) for each in page.elements if each[0] in ("dt", "dd")]
    return next(texts[i + 1][1] for i, each in enumerate(texts) if each == ("dt", name))


def check_figures(page, text, database):
    def rows(sql):
        return database.execute(sql).fetchall()

    timed, spared, failed = rows("SELECT sum(outcome = 'ok'), sum(outcome = 'left_out'), "
                                 "sum(outcome NOT IN ('ok', 'left_out')) FROM measurements")[0]
    plain = text.replace("\u202f", "")
    check(key_figure(page, "variants timed").replace("\u202f", "") == str(timed), "variants timed")
    check(f"; {spared} left out as hopeless</dd>" in plain, "variants that were left out")
    check(f"{timed + failed} measurements in" in plain, "measurements")
    check(key_figure(page, "failures").replace("\u202f", "") == str(failed), "failures")
    gains = [each[0] for each in rows("SELECT speedup_vs_default FROM winners WHERE speedup_vs_default NOT NULL")]
    gain = math.exp(statistics.fmean(map(math.log, gains)))
    check(key_figure(page, "gain over the default") == f"{100 * gain - 100:.1f}%", f"gain {gain}")
    check(f"geometric mean over {len(gains)} problem" in plain, f"{len(gains)} gains")
    winners = rows("SELECT median_us, tflops, speedup_vs_default FROM winners")
    check(f"{len(winners)} problems tuned" in plain, "problems tuned")
    table = re.search(r'<table[^>]*id="t-winners">.*?</table>', text, re.S).group(0)
    cells = [tuple(re.findall(r"<td class=n>([^<\n]*)", row)) for row in table.split("<tr>")[2:]]
    check(len(cells) == len(winners), f"{len(cells)} rows of winners")
    behind = 3 if ">vs naive" in table else 1  # columns
    shown = sorted(each[-3 - behind:-behind] for each in cells)
    wanted = sorted((f"{us:.2f}", f"{rate:.2f}", "" if ratio is None else f"{ratio:.3f}")
                    for us, rate, ratio in winners)
    check(shown == wanted, f"winners' figures: {shown[:2]} {wanted[:2]}")
    variants = 0
    for section in re.findall(r"<details.*?</details>", text, re.S):
        times = re.findall(r"<tr(?: class=w)?><td>([0-9.]+)<td>", section)
        variants += len(times)
        check(times == sorted(times, key=float), "variants in the order of their times")
        head = re.search(r"<b>([0-9.]+) µs</b>", section)
        check(head and head.group(1) == times[0], "the fastest in the heading")
    check(variants == timed, f"{variants} timed variants in the tables")
    reasons = rows("SELECT outcome, count(*) FROM measurements WHERE outcome NOT IN ('ok', 'left_out') GROUP BY 1")
    section = text[text.index('<section id="failures">'):text.index('<section id="problems">')]
    for outcome, count in reasons:
        found = re.findall(r"<tr><td class=\"n\">(\d+)<td>" + outcome, section)
        check(sum(map(int, found)) == count, f"{outcome}: {found}, and {count} in the database")


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        text = file.read()
    page = Page(text)
    check_structure(page, text)
    check_names(page)
    check_contrast(text)
    check_focus(page, text)
    check_lines(text)
    if len(sys.argv) > 2:
        check_figures(page, text, sqlite3.connect(f"file:{sys.argv[2]}?mode=ro", uri=True))
    sys.exit(failures > 0)


main()
