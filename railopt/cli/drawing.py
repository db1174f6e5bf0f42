"""What commands that draw share: --width, --title, and names that are refused before any work."""

from __future__ import annotations

import argparse

from railopt.base.arrays import check_targets
from railopt.base.errors import InputError, printable
from railopt.report.saving import figure_format
from railopt.report.style import PAGE, WIDTHS, parse_width

FORMATS_HELP = ".svg, .pdf or .png"


def add_figure_arguments(parser: argparse.ArgumentParser) -> None:
    """--width and --title."""
    add_width_argument(parser)
    parser.add_argument(
        "--title", help='title of the figure, instead of the usual one; "" leaves it out'
    )


def add_width_argument(parser: argparse.ArgumentParser) -> None:
    """--width."""
    inches = ", ".join(f"{name} ({width} in)" for name, width in WIDTHS.items())
    parser.add_argument(
        "--width",
        metavar="column|page|INCHES",
        help=f"how wide the figure is printed: {inches} or inches (default page)",
    )


def title_of(args: argparse.Namespace, usual: str = "") -> str:
    """The title of the figure: as --title gives it, else the usual one."""
    text = usual if args.title is None else args.title
    return "\n".join(printable(line, 1000) for line in text.split("\n"))


def width_of(args: argparse.Namespace) -> float:
    """Inches of the figure."""
    if args.width is None:
        return PAGE
    try:
        return parse_width(args.width)
    except InputError as error:
        raise InputError(f"--width {error}") from error


def figure_width(
    args: argparse.Namespace, flag: str, *, check: bool = True, also: str = ""
) -> float:
    """The same, where `flag` names its file: an unknown suffix is refused (`also` says what else
    the file could be), and with `check` what stands in the way.
    """
    width, path = width_of(args), getattr(args, flag)
    if path is not None:
        figure_format(path, also)
        check_targets(path if check else None, force=args.force)
    return width
