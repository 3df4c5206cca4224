#!/usr/bin/env python3
"""The READMEs' links lead to files and headings of the tree, and scripts that begin with #! can be run as they are.

Usage: tests/test_pages.py [TREE]
"""
import os
import re
import sys


def files_of(top):
    for folder, folders, names in os.walk(top):
        folders[:] = [name for name in folders if not name.startswith((".", "build"))]
        for name in names:
            yield os.path.join(folder, name)


def anchors(page):
    """Returns the anchors of the headings, as GitHub makes them."""
    with open(page, encoding="utf-8") as file:
        headings = re.findall(r"^#+ (.*)$", file.read(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(page):
    with open(page, encoding="utf-8") as file:
        links = re.findall(r"\]\(([^)\s]+)\)", file.read())
    for link in links:
        path, _, anchor = link.partition("#")
        target = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
        if not os.path.exists(target) or anchor and anchor not in anchors(target):
            yield "%s: %s leads nowhere" % (page, link)


def main():
    top = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    wrong, links, scripts = [], 0, 0
    for path in files_of(top):
        if path.endswith(".md"):
            links += 1
            wrong += broken_links(path)
        elif os.path.isfile(path) and path.endswith((".py", ".sh")):
            with open(path, "rb") as file:
                begins = file.read(2) == b"#!"
            scripts += begins
            if begins and not os.access(path, os.X_OK):
                wrong.append("%s begins with #!, and is not executable" % path)
    assert links > 8 and scripts > 10, "the tree's pages were not found"
    print("\n".join(wrong) or "%d pages, %d scripts" % (links, scripts))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
