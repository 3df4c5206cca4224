#!/usr/bin/env python3
"""Are the pages true?

- Links lead to files and headings of the tree, and sections that are cited by page and title exist.
- Scripts that begin with #! can be run as they are.
- The index of functions in fa2.h has each of them once.

Usage: tests/test_pages.py [TREE], or --installed FOLDER: only the links and sections of installed pages
"""
import os
import re
import sys


def files_of(top):
    for folder, folders, names in os.walk(top):
        folders[:] = [name for name in folders if not name.startswith((".", "build"))]
        for name in names:
            yield os.path.join(folder, name)


def anchor_of(heading):
    """Returns the anchor of a heading, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def anchors(page):
    with open(page, encoding="utf-8") as file:
        headings = re.findall(r"^#+ (.*)$", file.read(), re.MULTILINE)
    return {anchor_of(heading) for heading in headings}


def broken_links(page):
    with open(page, encoding="utf-8") as file:
        links = re.findall(r"\]\(([^)\s]+)\)", file.read())
    for link in links:
        path, _, anchor = link.partition("#")
        target = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
        if not os.path.exists(target) or anchor and anchor not in anchors(target):
            yield "%s: %s leads nowhere" % (page, link)


def missing_sections(page, top):
    """Yields what is cited as `PAGE.md`, "Title" and is no heading of that page."""
    with open(page, encoding="utf-8") as file:
        text = " ".join(file.read().split())
    for path, title in re.findall(r'([\w./]*\w\.md)`?(?:\]\([^)]*\))?,? \(?"([^"]+)"', text):
        beside = os.path.normpath(os.path.join(os.path.dirname(page), path))
        target = beside if os.path.exists(beside) else os.path.join(top, path)
        if not os.path.exists(target) or anchor_of(title) not in anchors(target):
            yield '%s: %s has no section "%s"' % (page, path, title)


def wrong_index(header):
    """Yields functions that are in the index of fa2.h alone, or declared alone, or twice in the index."""
    with open(header, encoding="utf-8") as file:
        text = file.read()
    index = text.partition("\n * FUNCTIONS\n")[2].partition("\n * runtime/examples")[0]
    listed = re.findall(r"(fa2_\w+)   *\S", index)
    declared = re.findall(r"^FA2_API [^;(]*?(fa2_\w+)\(", text, re.MULTILINE)
    for name in sorted({*listed, *declared}):
        if listed.count(name) != 1 or name not in declared:
            yield "%s: the index has %s %d times" % (header, name, listed.count(name))


def main():
    installed = sys.argv[1:2] == ["--installed"]
    top = sys.argv[-1] if len(sys.argv) > 1 else os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    wrong, links, scripts = [*wrong_index(os.path.join(top, "runtime/include/fa2.h"))], 0, 0
    for path in files_of(top):
        if path.endswith(".md"):
            links += 1
            wrong += [*broken_links(path), *missing_sections(path, top)]
        elif os.path.isfile(path) and path.endswith((".py", ".sh")):
            with open(path, "rb") as file:
                begins = file.read(2) == b"#!"
            scripts += begins
            if begins and not os.access(path, os.X_OK):
                wrong.append("%s begins with #!, and is not executable" % path)
    assert links > 8 and (installed or scripts > 10), "the tree's pages were not found"
    print("\n".join(wrong) or "%d pages, %d scripts" % (links, scripts))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
