#!/usr/bin/env python3
"""Does each file use only what stands below it?

- C: every #include "..." of a product file leads to the file's own folder or to a folder that FLOORS puts below it.
- Lua: every require does the same on LUA_FLOORS.
- Files: C files that call each other both ways, directly or by way of others, form a circle. Each circle must stand in
  CIRCLES with its reason, and CIRCLES holds at most CIRCLES_MOST.

Usage: test_floors.py [TOP]. Prints each breach as FILE:LINE: RULE. TOP: the tree, by default the one of this file.
"""
import glob
import os
import re
import sys

CIRCLES_MOST = 4

# From the highest floor to the lowest. A folder may use the folders of all lower floors.
FLOORS = [
    ["tuner/main.c", "tuner/commands"],
    ["tuner/bench", "tuner/search", "tuner/report"],
    ["tuner/worker", "tuner/judge", "tuner/input", "runtime/python", "runtime/share"],
    ["runtime/plan"],
    ["runtime/cuda", "runtime/lua"],
    ["cache"],
    ["runtime/ops", "runtime/base", "runtime/include"],
    ["gen", "templates"],
]
# Folders of one floor that may use each other: (who uses, what is used).
BESIDE = {
    ("tuner/main.c", "tuner/commands"),
    ("tuner/bench", "tuner/search"),
    ("tuner/bench", "tuner/report"),
    ("tuner/search", "tuner/report"),
    ("tuner/worker", "tuner/judge"),
    ("runtime/ops", "runtime/base"),
    ("runtime/ops", "runtime/include"),
    ("runtime/base", "runtime/include"),
}
# The same for Lua. "host" is what C gives to the scripts.
LUA_FLOORS = [["tuner"], ["init"], ["families", "baselines"], ["bench"], ["ops"], ["features"], ["core", "paths"],
              ["host"]]

# Examples are programs of users: they may include fa2.h and their own files.
EXAMPLES = "runtime/examples"

# The files of each circle that remains, and why it does.
CIRCLES = {
    frozenset({"runtime/base/shown.c", "runtime/base/status.c", "runtime/base/text.c"}):
        "a message is escaped text, and a text that cannot grow fails with a message",
    frozenset({"runtime/ops/dropout.c", "runtime/ops/features.c", "runtime/ops/features_rows.c",
               "runtime/ops/forward.c", "runtime/ops/operands.c"}):
        "forward asks the features for their parameters, and these ask it how many rows a packed batch has",
    frozenset({"cache/database/open.c", "cache/database/remake.c", "cache/database/schema.c",
               "cache/database/strangers.c", "cache/database/trial.c"}):
        "opening a file checks its schema against a new database, which is opened, too",
    frozenset({"tuner/judge/backward_features.c", "tuner/judge/backward_reference.c"}):
        "the reference asks for the rows of features, and these weigh scores as it does",
}


# A function's definition that other files can call.
DEFINED = re.compile(r"^(?!static\b|typedef\b|[\s#])[^;{}=#()]*?\b(fa2i?_\w+)\s*\([^;{}]*?\)\s*\{", re.M)


def floor_of(folder, floors):
    for level, folders in enumerate(floors):
        if folder in folders:
            return level
    return None


def breach(user, used, floors, beside):
    """Returns why a folder may not use another one; None if it may."""
    high, low = floor_of(user, floors), floor_of(used, floors)
    if high is None or low is None:
        return "%s stands on no floor" % (user if high is None else used)
    if user == used or high < low or (user, used) in beside:
        return None
    return "%s may not use %s, which stands %s it" % (user, used, "beside" if high == low else "above")


def c_folder(path):
    """Returns the name that FLOORS has for the folder of a C file."""
    parts = path.split("/")
    if parts[0] in ("cache", "gen", "templates"):
        return parts[0]
    return path if path == "tuner/main.c" else "/".join(parts[:2])


def resolve(path, name, files):
    """Returns the path of an included file."""
    if name == "fa2.h":
        return "runtime/include/fa2.h"
    near = os.path.join(os.path.dirname(path), name)
    return near if near in files or os.path.dirname(name) == "" else name


def read(top, pattern):
    """Returns the texts of the files of a pattern by their paths below the tree's top."""
    texts = {}
    for file in sorted(glob.glob(os.path.join(top, pattern), recursive=True)):
        with open(file, encoding="utf-8") as stream:
            texts[os.path.relpath(file, top)] = stream.read()
    return texts


def lines_with(text, pattern):
    for number, line in enumerate(text.splitlines(), 1):
        for found in re.findall(pattern, line):
            yield number, found


def check_includes(files):
    for path, text in files.items():
        for number, name in lines_with(text, r'^\s*#\s*include\s+"([^"]+)"'):
            used = resolve(path, name, files)
            if path.startswith(EXAMPLES):
                inside = used.startswith((EXAMPLES, "runtime/include/"))
                why = None if inside else "an example includes fa2.h alone"
            else:
                why = breach(c_folder(path), c_folder(used), FLOORS, BESIDE)
            if why:
                yield "%s:%d: includes %s: %s" % (path, number, name, why)


def check_requires(files):
    for path, text in files.items():
        user = "tuner" if path.startswith("tuner/") else re.sub(r"\.lua$", "", path.split("/")[1])
        for number, name in lines_with(text, r'\brequire\s*\(?\s*"([^"]+)"'):
            why = breach(user, name.split(".", maxsplit=1)[0], LUA_FLOORS, set())
            if why:
                yield "%s:%d: requires %s: %s" % (path, number, name, why)


def calls_between(files):
    """Returns for each C file the set of C files whose functions it calls."""
    texts = {}
    for path, text in files.items():
        text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
        texts[path] = re.sub(r'"(\\.|[^"\\\n])*"', '""', text)
    home = {}
    for path, text in texts.items():
        for name in DEFINED.findall(text):
            home[name] = path
    return {path: {home[word] for word in re.findall(r"\bfa2i?_\w+", text) if home.get(word, path) != path}
            for path, text in texts.items()}


def reach(calls, start):
    """Returns the files that a file calls, directly or by way of others."""
    found, todo = set(), [start]
    while todo:
        for path in calls[todo.pop()]:
            if path not in found:
                found.add(path)
                todo.append(path)
    return found


def find_circles(calls):
    reached = {path: reach(calls, path) for path in calls}
    return {frozenset(other for other in reached[path] if path in reached[other])
            for path in calls if path in reached[path]}


def check_circles(files):
    calls = calls_between({path: text for path, text in files.items() if not path.startswith(EXAMPLES)})
    circles = find_circles(calls)
    new = [circle for circle in circles if not any(circle <= known for known in CIRCLES)]
    for circle in sorted(new, key=sorted):
        print("\n".join("  %s calls %s" % (path, ", ".join(sorted(calls[path] & circle))) for path in sorted(circle)))
        yield "%s:1: calls in a circle with %s" % (min(circle), ", ".join(sorted(circle - {min(circle)})))
    for known in CIRCLES:
        if not any(circle <= known for circle in circles):
            yield "tests/test_floors.py:1: CIRCLES lists %s, which have no circle" % ", ".join(sorted(known))
    if len(CIRCLES) > CIRCLES_MOST:
        yield "tests/test_floors.py:1: CIRCLES lists %d circles, and %d may remain" % (len(CIRCLES), CIRCLES_MOST)


def main():
    top = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    files = {}
    for folder in ("runtime", "tuner", "cache", "gen"):
        for ending in ("c", "h"):
            files.update(read(top, "%s/**/*.%s" % (folder, ending)))
    scripts = {**read(top, "gen/**/*.lua"), **read(top, "tuner/**/*.lua")}
    assert len(files) > 200 and len(scripts) > 20, "the tree's files were not found"
    breaches = [*check_includes(files), *check_requires(scripts), *check_circles(files)]
    print("\n".join(breaches))
    print("%d files, %d scripts: %d breaches, %d circles with a reason" % (
        len(files), len(scripts), len(breaches), len(CIRCLES)))
    sys.exit(1 if breaches else 0)


if __name__ == "__main__":
    main()
