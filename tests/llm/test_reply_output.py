"""Replies in a terminal: wrapped between words, whatever pieces they come in, and without control characters."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

from edgewright.cli.reply_output import WrappedText

TEXT = "the quick brown fox jumps over the lazy dog, and\n  indented   text with extraordinarilylongwords follows"


def screen(output: str) -> list[str]:
    """The lines that a terminal shows."""
    lines, at = [""], 0
    for part in output.replace("\x1b[K", "\x00"):
        if part == "\n":
            lines.append("")
            at = 0
        elif part == "\b":
            at -= 1
        elif part == "\r":
            at = 0
        elif part == "\x00":
            lines[-1] = lines[-1][:at]
        else:
            lines[-1] = lines[-1][:at] + part + lines[-1][at + 1 :]
            at += 1
    return [line.rstrip() for line in lines]


@pytest.mark.parametrize("width", [16, 20, 33, 200])
@pytest.mark.parametrize("size", [1, 3, 7, 1000])
def test_lines_are_broken_between_words(width: int, size: int) -> None:
    text = WrappedText(width)
    shown = screen("".join(text.add(TEXT[i : i + size]) for i in range(0, len(TEXT), size)))
    assert all(len(line) <= width for line in shown)
    if width > 22:
        words = " ".join(shown).split()
        assert words == TEXT.split()  # none is cut
        assert shown[0] == textwrap.wrap(TEXT.split("\n")[0], width)[0]
    assert "".join("".join(shown).split()) == "".join(TEXT.split())


def test_words_longer_than_a_line_are_cut() -> None:
    text = WrappedText(10)
    assert screen(text.add("ab " + "x" * 25)) == ["ab", "x" * 10, "x" * 10, "x" * 5]


def test_wide_characters_count_twice_and_control_characters_are_escaped() -> None:
    assert screen(WrappedText(10).add("漢字漢字漢字")) == ["漢字漢字漢", "字"]
    assert WrappedText(80).add("a\x1b[2Jb\u202ec") == "a\\x1b[2Jb\\u202ec"
    assert WrappedText(80).add("ab\tcé🙂\nd") == "ab      cé🙂\nd"


@pytest.mark.skipif(sys.platform == "win32", reason="has no pseudo-terminals")
def test_a_terminal_does_not_echo_while_a_reply_is_written() -> None:
    code = (
        "import sys, termios\n"
        "from edgewright.cli.reply_output import reply_output\n"
        "echo = lambda: bool(termios.tcgetattr(0)[3] & termios.ECHO)\n"
        "seen = [echo()]\n"
        "with reply_output() as write:\n"
        "    seen.append(echo()); write('hel'); write('lo')\n"
        "seen.append(echo())\n"
        "print(); print(seen)\n"
    )
    import pty

    main, worker = pty.openpty()
    subprocess.run([sys.executable, "-c", code], stdin=worker, stdout=worker, stderr=worker, check=True, timeout=60)
    os.close(worker)
    output = b""
    try:
        while part := os.read(main, 4096):
            output += part
    except OSError:  # the end
        pass
    os.close(main)
    shown = screen(output.decode().replace("\r\n", "\n"))
    assert shown[:2] == ["hello", "[True, False, True]"]
