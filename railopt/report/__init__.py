"""Figures, and the page that `railopt report` writes.

page      result rows -> one self-contained HTML page;  verdict, rows: what it says, from which rows
figures   the page's figures, each with its table;  gaps, heatmap, frontier, blame, comparison,
          gantt, node, timeline_figure, hybrid_figure: those of the commands
saving    a figure as a file, by its suffix;  style: how all of them look
"""
