#!/usr/bin/env python3
"""Runs a program on a terminal of so many columns, and prints what it shows there. Usage: on_terminal.py COLUMNS
COMMAND ARGUMENT...; the exit status is the command's."""
import fcntl
import os
import pty
import struct
import sys
import termios


def main():
    pid, terminal = pty.fork()
    if pid == 0:
        fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", 24, int(sys.argv[1]), 0, 0))
        os.execvp(sys.argv[2], sys.argv[2:])
    shown = bytearray()
    while True:
        try:
            part = os.read(terminal, 65536)
        except OSError:  # its end, on Linux
            break
        if not part:
            break
        shown += part
    sys.stdout.buffer.write(shown.replace(b"\r\n", b"\n"))  # whole: a part may end amid a line's end
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


main()
