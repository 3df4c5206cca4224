#!/usr/bin/env python3
"""No byte of a database, of a file or its name, or of an argument reaches the terminal, JSON, CSV or HTML raw.

Plants control characters, bytes that are no UTF-8 and bidirectional controls in every text column of a database, in
names of tables, in files, in their names and in arguments, and looks at all that the commands write.
Usage: raw_texts.py FA2_TUNE REPORT_DATABASE LIBFA2SIM
"""
import csv
import io
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

FORGED = b"\nFORGED line"  # begins a line where a newline came through
NASTY = (FORGED + b"\x1b[31m\x07\x08\r\x7f" + b"\xc2\x9b\xc2\x85" + b"\x9b\xff\xfe" +
         b"\xc0\xaf\xe0\x80\xaf\xf0\x80\x80\xaf" + b"\xed\xa0\x80\xf4\x90\x80\x80" +
         "\u202e\u2066\u200f\u061c\u2028".encode() + b"\xe2\x82")
RAW = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")
SHAPE = "Hq=16,Hkv=4,Sq=128,D=64"


class Checker:
    def __init__(self, tune, simulator):
        self.tune, self.checks, self.failures = tune, 0, 0
        self.environment = dict(os.environ, FA2_SHARE="", FA2_CUDA_LIBRARY="/nonexistent/libcuda.so.1",
                                FA2_NVRTC_LIBRARY="/nonexistent/libnvrtc.so", TERM="xterm")
        self.environment.pop("FA2_GEN_PATH", None)
        self.simulated = dict(os.environ, FA2_SHARE="", FA2_CUDA_LIBRARY=simulator, FA2_SIM_CARD="l4",
                              FA2_GEN_PATH=str(Path(__file__).resolve().parent / "sim" / "few"))

    def expect(self, right, what):
        self.checks += 1
        if not right:
            self.failures += 1
            print(f"FAILED: {what}", file=sys.stderr)

    def clean(self, output, what):
        """Returns the text, which is "" where it is no UTF-8."""
        try:
            text = output.decode("utf-8")
        except UnicodeDecodeError as error:
            self.expect(False, f"{what}: {error}: {output[max(0, error.start - 60):error.end + 20]!r}")
            return ""
        found = RAW.search(text)
        self.expect(found is None, f"{what}: raw {found and ascii(text[max(0, found.start() - 60):found.end() + 20])}")
        self.expect("\nFORGED" not in text, f"{what}: a text begins a line of its own")
        return text

    def run(self, arguments, what, environment=None, **variables):
        arguments = [os.fsencode(a) for a in arguments]
        done = subprocess.run([self.tune, *arguments], input=variables.pop("standard_input", b""), capture_output=True,
                              env={**(environment or self.environment), **variables}, check=False)
        what = f"{what}: fa2-tune {b' '.join(arguments)!r}"
        text = self.clean(done.stdout, f"{what}, stdout")
        self.clean(done.stderr, f"{what}, stderr")
        self.expect(done.returncode in (0, 1, 2, 3), f"{what}: status {done.returncode}: {done.stderr!r}")
        if done.returncode == 0 and (b"--json" in arguments or arguments[0] == b"export"):
            for document in text.splitlines() if arguments[0] == b"export" else [text]:
                try:
                    json.loads(document)
                except ValueError as error:
                    self.expect(False, f"{what}: {error}")
        return done.returncode, text


QUICK = (["list"], ["list", "--json"], ["show", "--shape", SHAPE], ["show", "--op", "all", "--json"], ["check"],
         ["check", "--json"], ["export", "-"], ["list", "--device", "nosuch"], ["forget", "--failures", "--dry-run"])
EXPLAIN = ["explain", "--arch", "sm_90", "--shape", SHAPE]  # a second
SLOW = (EXPLAIN, [*EXPLAIN, "--json"], ["report"], ["report", "--html", "-"], ["gc"], ["check"])
EXPLAINED = ("device.name", "kernel.variant", "verification.detail")  # what explain may show of a database


def look(checker, database, what, commands=QUICK + SLOW):
    """Every command that reads a database."""
    for arguments in commands:
        checker.run([*arguments, "--db", database], what)


def text_columns(database):
    with sqlite3.connect(database) as db:
        return db.execute("SELECT m.name, c.name FROM sqlite_schema m, pragma_table_info(m.name) c "
                          "WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite%' AND c.type = 'TEXT'").fetchall()


def plant(database, statement):
    """False: SQLite refuses that."""
    db = sqlite3.connect(database)
    db.execute("PRAGMA ignore_check_constraints = ON")
    try:
        with db:
            return db.execute(statement).rowcount != 0
    except sqlite3.IntegrityError:
        return False
    finally:
        db.close()


def test_columns(checker, database, folder):
    columns, planted = text_columns(database), set()
    value = f"CAST(x'{NASTY.hex()}' AS TEXT)"
    for table, column in columns:
        copy = folder / "copy.db"
        for text in (value, f'substr("{column}", 1, 12) || {value}'):
            shutil.copy(database, copy)
            if plant(copy, f'UPDATE OR IGNORE "{table}" SET "{column}" = {text}'):
                planted.add((table, column))
                explained = f"{table}.{column}" in EXPLAINED and text != value
                look(checker, copy, f"{table}.{column}", QUICK + (SLOW if explained else SLOW[2:]))
    checker.expect(("device", "name") in planted and ("measurement", "detail") in planted and len(planted) > 10,
                   f"planted only in {sorted(planted)} of {columns}")


def test_schema(checker, database, folder):
    name = NASTY.replace(b"\xff", b"").decode("utf-8", "ignore").replace('"', "")
    for statement in (f'CREATE TABLE "{name}" (a)', f'CREATE INDEX "{name}" ON device (name)',
                      f'CREATE VIEW "{name}" AS SELECT 1', f'ALTER TABLE device ADD COLUMN "{name}" TEXT'):
        copy = folder / "schema.db"
        shutil.copy(database, copy)
        plant(copy, statement)
        look(checker, copy, "a name in the schema", QUICK + SLOW[2:])


def test_names(checker, database, folder):
    """Arguments, and names of files that are there and that are not."""
    nasty = os.fsdecode(NASTY)
    for argument in (nasty, f"--{nasty}", f"-{nasty}"):
        for command in ([], ["list"], ["help"], ["completion"], ["show"], ["explain"], ["tune"], ["bench"], ["build"],
                        ["import"], ["export"], ["report"], ["gc"], ["check"], ["forget"], ["devices"]):
            checker.run([*command, argument], "an argument")
    options = ("--shape", "--shapes", "--preset", "--device", "--db", "--op", "--arch", "--jobs", "--format", "--html",
               "--against", "--variant", "--scale", "--runs", "--budget", "--max-size")
    for command in ("list", "show", "explain", "tune", "bench", "build", "report", "forget", "gc", "check", "export"):
        for option in options:
            values = [nasty]
            if option == "--shape":
                values += [f"Hq=1,Sq=8,D=64,{nasty}=1", f"Hq=1,Sq=8,D={nasty}"]
            for value in values:
                checker.run([command, option, value], "an option's value")
    place = folder / nasty
    place.mkdir()
    copy = place / f"{nasty}.db"
    shutil.copy(database, copy)
    look(checker, copy, "the name of a database")
    code, _ = checker.run(["list", "--json"], "FA2_DB", FA2_DB=str(copy))
    checker.expect(code == 0, "FA2_DB with such a name")
    checker.run(["export", place / "out.jsonl", "--db", copy], "the name of an export")
    checker.run(["import", place / "out.jsonl", "--db", place / "new.db"], "the name of an export")
    checker.run(["report", "--html", place / "page.html", "--db", copy], "the name of a page")
    checker.clean((place / "page.html").read_bytes(), "a page")
    checker.run(["devices", "--json"], "FA2_CUDA_LIBRARY", FA2_CUDA_LIBRARY=nasty, FA2_NVRTC_LIBRARY=nasty)
    checker.run(["devices"], "FA2_CUDA_LIBRARY", FA2_CUDA_LIBRARY=nasty, FA2_NVRTC_LIBRARY=nasty)
    checker.run(["explain", "--arch", "sm_90", "--shape", SHAPE], "FA2_SHARE", FA2_SHARE=str(place))


def test_files(checker, folder):
    for content in (NASTY, b"batch,heads_q," + NASTY + b"\n1,2,3\n", b"Hq,Sq,D\n1," + NASTY + b",64\n",
                    b'Hq,Sq,D\n1,"' + NASTY + b'",64\n', b'{"type":"fa2","version":"' + NASTY + b'"}\n',
                    b'{"' + NASTY + b'":1}\n', b"SQLite format 3\0" + NASTY * 20):
        path = folder / "content"
        path.write_bytes(content)
        path.chmod(0o600)
        for arguments in (["explain", "--arch", "sm_90", "--shapes", path],
                          ["import", path, "--db", folder / "none.db"], ["report", "--db", path],
                          ["check", "--db", path], ["gc", "--db", path]):
            checker.run(arguments, f"a file with {content[:30]!r}")


def test_bench(checker, folder):
    """On the software device, whose kernels a database with such a name takes."""
    database = folder / os.fsdecode(NASTY[:40] + b".db")
    for form in ("text", "csv", "json"):
        code, text = checker.run(["bench", "--device", "0", "--shape", "Hq=1,Sq=16,D=64", "--runs", "10",
                                  "--format", form, "--db", database], "bench", checker.simulated)
        checker.expect(code == 0, f"bench as {form}: status {code}")
        if form == "json":
            json.loads(text)
        if form == "csv":
            checker.expect(len({len(row) for row in csv.reader(io.StringIO(text))}) == 1, "bench: columns of its CSV")
    checker.run(["tune", "--device", "0", "--shape", "Hq=1,Sq=16,D=64", "--dry-run", "--db", database], "tune",
                checker.simulated)
    checker.run(["tune", "--device", "0", "--db", database, "--", "/nonexistent/" + os.fsdecode(NASTY)], "a program",
                checker.simulated)


def main():
    if len(sys.argv) != 4:
        print("usage: raw_texts.py FA2_TUNE REPORT_DATABASE LIBFA2SIM", file=sys.stderr)
        sys.exit(2)
    tune, make_database, simulator = (os.path.abspath(path) for path in sys.argv[1:])
    checker = Checker(tune, simulator)
    with tempfile.TemporaryDirectory() as name:
        folder, database = Path(name), Path(name, "plain.db")
        subprocess.run([make_database, database, "24"], check=True, env=checker.environment)
        look(checker, shutil.copy(database, folder / "same.db"), "nothing planted")
        test_columns(checker, database, folder)
        test_schema(checker, database, folder)
        test_names(checker, database, folder)
        test_files(checker, folder)
        test_bench(checker, folder)
    print(f"{checker.checks} checks, {checker.failures} failed", file=sys.stderr)
    sys.exit(0 if checker.failures == 0 else 1)


main()
