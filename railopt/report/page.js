"use strict";
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0];
  table.tHead.rows[0].querySelectorAll("th").forEach((head, column) => {
    head.querySelector("button").addEventListener("click", () => {
      const rising = head.getAttribute("aria-sort") !== "ascending";
      for (const other of head.parentNode.cells) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", rising ? "ascending" : "descending");
      const key = row => row.cells[column].dataset.value ?? row.cells[column].textContent;
      const rows = [...body.rows].map(row => [key(row), row]);
      const numbers = rows.every(([value]) => value !== "" && !Number.isNaN(Number(value)));
      rows.sort(([a], [b]) => (numbers ? Number(a) - Number(b) : String(a).localeCompare(String(b))) * (rising ? 1 : -1));
      body.append(...rows.map(([, row]) => row));
    });
  });
}
const theme = document.getElementById("theme");
theme.addEventListener("click", () => {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  theme.setAttribute("aria-pressed", String(!dark));
});
