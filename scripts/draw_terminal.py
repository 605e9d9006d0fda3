"""Draw docs/images/demo.svg: the commands of `make demo` in a terminal, one after the other.

The lines are what the commands printed. A browser shows them one by one; a viewer without animation
shows the end.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from html import escape
from pathlib import Path

import demo

PICTURE = Path(__file__).resolve().parents[1] / "docs" / "images" / "demo.svg"
COLUMNS, SIZE, LEADING = 98, 13, 18
#: Commands, and how many lines of their output are shown.
COMMANDS = (
    ("inspect events", 10),
    ("compact events --target-file-size 512KiB", 5),
    ("health events", 6),
)
#: Seconds before a command, and between two lines of its output.
BEFORE_COMMAND, BETWEEN_LINES = 1.2, 0.08
STYLE = """
text { font: 13px ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace;
       fill: #d6dbe1; white-space: pre; animation: show .01s both; }
.command { fill: #7ee2b8; font-weight: 600; }
@keyframes show { from { opacity: 0 } to { opacity: 1 } }
@media (prefers-reduced-motion: reduce) { text { animation: none } }
"""


def run_commands(directory: Path) -> list[tuple[str, list[str]]]:
    """Return the commands with the lines that they print."""
    program = Path(sys.executable).with_name("lakehand")
    shown = []
    for command, count in COMMANDS:
        ran = subprocess.run(
            [program, *command.split()], cwd=directory, capture_output=True, text=True, check=False
        )
        text = ran.stdout.replace(f"file://{directory}", "s3://lake").rstrip()
        lines = [line[:COLUMNS] for line in text.splitlines() if line.strip()]
        shown.append((command.replace("events", "s3://lake/events"), lines[:count]))
    return shown


def draw(shown: list[tuple[str, list[str]]]) -> str:
    """Return the terminal as SVG."""
    parts, top, seconds = [], 44, 0.4
    for command, lines in shown:
        for number, line in enumerate([f"$ lakehand {command}", *lines]):
            kind = ' class="command"' if number == 0 else ""
            delay = f"animation-delay:{seconds:.2f}s"
            parts.append(
                f'<text x="16" y="{top}"{kind} style="{delay}" xml:space="preserve">'
                f"{escape(line)}</text>"
            )
            top += LEADING
            seconds += BEFORE_COMMAND if number == 0 else BETWEEN_LINES
        top += LEADING // 2
        seconds += BEFORE_COMMAND
    width, height = int(COLUMNS * SIZE * 0.605) + 32, top
    dots = "".join(
        f'<circle cx="{18 + 16 * n}" cy="16" r="5" fill="{colour}"/>'
        for n, colour in enumerate(("#ff5f57", "#febc2e", "#28c840"))
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}"'
        f' height="{height}" role="img"><title>lakehand inspects, compacts and checks a table'
        f'</title><style>{STYLE}</style><rect width="{width}" height="{height}" rx="8"'
        f' fill="#1d232b"/>{dots}{"".join(parts)}</svg>\n'
    )


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        demo.build(Path(place) / "events")
        PICTURE.write_text(draw(run_commands(Path(place))))


if __name__ == "__main__":
    main()
