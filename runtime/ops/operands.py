#!/usr/bin/env python3
"""Writes what repeats runtime/ops/operands.def in other languages.

operands.py stub IN OUT      Python's stub file: puts the keywords of a call in place of @SETTINGS@
operands.py readme FILE      the table in a README, between the lines that begin and end it
operands.py check FILE       the same without writing; fails if the table is not up to date
"""

import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
COLUMNS = ("id", "name", "member", "elem", "shape", "strides", "field", "ops", "access")
ELEMS = {"FP32": "fp32", "INT32": "int32", "UINT64": "uint64", "DTYPE": "dtype", "BIAS": "type of the bias",
         "SCALE": "fp32 or fp16"}
DIMS = {"B1": "B + 1", "One": "1", "P": "pages", "R": "positions", "R2": "rotary_dim / 2", "N": "Sn"}
ACCESS = {"READ": "read", "TERM": "read", "ROW": "read", "MAY_READ": "read, or NULL",
          "GROW": "read; written with `append`", "WRITE": "written", "MAY_WRITE": "written, or NULL"}
BEGIN, END = "<!-- runtime/ops/operands.py writes this table -->", "<!-- end of the table -->"


def read(path=HERE / "operands.def"):
    """Returns the lines of the table as dicts of the columns, with keyword ("": none) and doc."""
    text = path.read_text(encoding="utf-8").split("*/", 1)[1]
    lines = []
    for entry in re.findall(r"^FA2I_OPERAND\((.*?\)\))$", text, re.M | re.S):
        head, keyword, doc = re.fullmatch(r"(.*?),\s*(?:NO_)?KEYWORD\((?:(\w+),)?\s*(.*)\)\)", entry, re.S).groups()
        cells = [cell.strip() for cell in re.split(r",(?![^(]*\))", head)]
        line = dict(zip(COLUMNS, cells))
        line["keyword"] = keyword or ""
        line["doc"] = "".join(re.findall(r'"(.*?)"', doc)).replace("\\n", " ")
        lines.append(line)
    return lines


# Lists that runtime/python/native/settings.def includes: how a line gives a keyword, and what the line then is.
KEYWORDS = {
    "operands.def": (r"(?<!_)KEYWORD\((\w+),", r'SETTING(\1, None, "Any",'),
    "factors.def": (r"^FA2I_FACTOR\(\w+, [\w()]+, (\w+),", r'SETTING(\1, None, "Optional[float]",'),
}


def settings(path=HERE.parent / "python/native/settings.def"):
    """Returns the settings of a call as a stub file has them."""
    def included(match):
        pattern, line = KEYWORDS[match[2]]
        text = (HERE.parent / match[1] / match[2]).read_text(encoding="utf-8").split("*/", 1)[1]
        return "\n".join(re.sub(pattern, line, found[0]) for found in re.finditer(pattern, text, re.M))

    text = re.sub(r'^#include "runtime/(\w+)/(\w+\.def)"$', included,
                  path.read_text(encoding="utf-8").split("*/", 1)[1], flags=re.M)
    return [f"{word}: {kind} = {default}," for word, default, kind in
            re.findall(r'^(?:SETTING|PERMISSION)\((\w+), ([\w.\']+), "([^"]+)",', text, re.M)]


def stub(template):
    """Returns the stub file: the place's own indent and line width hold for the keywords, too."""
    words = settings()

    def filled(match):
        rows, indent = [""], match[1]
        for word in words:
            if len(indent) + len(rows[-1]) + len(word) + 1 > 120:
                rows.append("")
            rows[-1] += (" " if rows[-1] else "") + word
        return "\n".join(indent + row for row in rows)

    return re.sub(r"^( *)@SETTINGS@$", filled, template, flags=re.M)


def table():
    rows = ["| argument | problem | shape, strides | backward | access | Python |", "|---|---|---|---|---|---|"]
    for line in read():
        shape = ", ".join(DIMS.get(dim, dim) for dim in line["shape"].strip("()").split(", "))
        strides = "" if line["strides"] == "0" else f"; {line['strides']} stride" + "s" * (line["strides"] != "1")
        where = {"BOTH": "too", "FORWARD": "no", "BACKWARD": "only"}[line["ops"]]
        rows.append(f"| `{line['member']}` | `{line['field']}` | {ELEMS[line['elem']]} [{shape}]{strides} | {where} | "
                    f"{ACCESS[line['access']]} | " + (f"`{line['keyword']}`" if line["keyword"] else "–") + " |")
    return "\n".join(rows)


def with_table(text):
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


def main(how, path, out=None):
    file = pathlib.Path(path)
    text = file.read_text(encoding="utf-8")
    if how == "stub":
        pathlib.Path(out).write_text(stub(text), encoding="utf-8")
    elif how == "readme":
        file.write_text(with_table(text), encoding="utf-8")
    elif with_table(text) != text:
        sys.exit(f"{path}: the table of operands is not that of runtime/ops/operands.def: "
                 f"run runtime/ops/operands.py readme {path}")


if __name__ == "__main__":
    main(*sys.argv[1:])
