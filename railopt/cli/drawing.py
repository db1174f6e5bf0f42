"""What commands that draw share: --width, and names that are refused before any work is done."""

from __future__ import annotations

import argparse

from railopt.base.arrays import check_targets
from railopt.base.errors import InputError
from railopt.report.saving import figure_format
from railopt.report.style import PAGE, WIDTHS, parse_width

FORMATS_HELP = ".svg, .pdf or .png"


def add_width_argument(parser: argparse.ArgumentParser) -> None:
    """--width."""
    inches = ", ".join(f"{name} ({width} in)" for name, width in WIDTHS.items())
    parser.add_argument(
        "--width",
        metavar="column|page|INCHES",
        help=f"how wide the figure is printed: {inches} or inches (default page)",
    )


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
