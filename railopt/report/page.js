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
for (const filters of document.querySelectorAll("[data-filters]")) {
  const rows = [...filters.nextElementSibling.querySelector("tbody").rows];
  const choices = [...filters.querySelectorAll("select")];
  const show = () => {
    for (const row of rows) row.hidden = choices.some(choice => choice.value !== "" && row.cells[choice.dataset.column].textContent !== choice.value);
    filters.querySelector("output").textContent = `${rows.filter(row => !row.hidden).length} of ${rows.length} shown`;
  };
  for (const choice of choices) choice.addEventListener("input", show);
  show();
}
const view = document.getElementById("view-data");
if (view !== null) {
  const { problems, plans } = JSON.parse(view.textContent);
  const [problem, policy, node] = ["problem", "policy", "node"].map(name => document.getElementById(`view-${name}`));
  const fill = (choice, names, chosen) => { choice.replaceChildren(...names.map(([value, text]) => new Option(text, value, false, String(value) === String(chosen)))); };
  const plan = () => plans[policy.value];
  const slowest = () => {
    let found = { times: -1 };
    for (const side of ["sent", "received"]) plan()[side].forEach((nics, node) => nics.forEach((times, rail) => { if (times > found.times) found = { times, node, rail, side }; }));
    return found;
  };
  const cell = times => {
    const made = document.createElement("td");
    if (times === null) { made.textContent = "dead"; return made; }
    const bar = document.createElement("span");
    bar.className = times > 1 ? "bar over" : "bar";
    bar.style.setProperty("--times", times);
    made.dataset.value = times;
    made.append(bar, times.toFixed(3));
    return made;
  };
  const draw = () => {
    const { sent, received } = plan();
    document.querySelector("#view tbody").replaceChildren(...sent[node.value].map((times, rail) => {
      const row = document.createElement("tr"), head = document.createElement("th");
      head.scope = "row";
      head.textContent = rail;
      row.append(head, cell(times), cell(received[node.value][rail]));
      return row;
    }));
  };
  const nodes = () => {
    const { times, node: at, rail, side } = slowest();
    document.getElementById("view-slowest").textContent = times < 0 ? "" : `Slowest NIC of this plan: rail ${rail} of node ${at}, ${side}, ${times.toFixed(3)} times the bound.`;
    fill(node, plan().sent.map((_, number) => [number, `node ${number}${number === at ? " (slowest NIC)" : ""}`]), at ?? 0);
    draw();
  };
  const policies = () => {
    const before = policy.selectedOptions[0]?.text;
    const offered = [...plans.entries()].filter(([, made]) => String(made.problem) === problem.value).map(([number, made]) => [number, made.policy]);
    fill(policy, offered, (offered.find(([, name]) => name === before) ?? offered.find(([, name]) => name === "lpt") ?? offered[0])[0]);
    nodes();
  };
  fill(problem, [...problems.entries()], 0);
  problem.addEventListener("input", policies);
  policy.addEventListener("input", nodes);
  node.addEventListener("input", draw);
  policies();
}
const theme = document.getElementById("theme");
theme.addEventListener("click", () => {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  theme.setAttribute("aria-pressed", String(!dark));
});
