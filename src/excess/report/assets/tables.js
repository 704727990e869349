// Tables: rows sorted by a click on the head of a column, and found by a text.
const numberIn = (text) => {
  const found = text.replaceAll(",", "").replaceAll("−", "-").replaceAll("∞", "Infinity").match(/^-?(\d+\.?\d*(e[+-]?\d+)?|Infinity)/);
  return found ? Number(found[0]) : null;
};

function sortRows(table, column, descending) {
  const body = table.tBodies[0];
  const keyed = [...body.rows].map((row) => { const text = row.cells[column]?.textContent.trim() ?? ""; return { row, text, value: numberIn(text) }; });
  // numbers by their size, texts by the numbers in them; empty cells last
  keyed.sort((one, other) => {
    if (!one.text || !other.text) return Boolean(other.text) - Boolean(one.text);
    const order = one.value !== null && other.value !== null && one.value !== other.value ? one.value - other.value : one.text.localeCompare(other.text, "en", { numeric: true });
    return descending ? -order : order;
  });
  body.append(...keyed.map(({ row }) => row));
}

function addSorting(table) {
  const heads = [...table.tHead.rows[table.tHead.rows.length - 1].cells];
  heads.forEach((head, column) => {
    if (head.tagName !== "TH") return;
    const button = document.createElement("button");
    button.type = "button";
    button.className = "sort";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const descending = head.getAttribute("aria-sort") === "ascending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", descending ? "descending" : "ascending");
      sortRows(table, column, descending);
    });
  });
}

function addSearch(table, tools) {
  const input = document.createElement("input");
  input.type = "search";
  input.placeholder = "find rows";
  input.setAttribute("aria-label", "Find rows of the table");
  const found = document.createElement("span");
  found.className = "what";
  found.setAttribute("role", "status");
  input.addEventListener("input", () => {
    const wanted = input.value.trim().toLowerCase();
    let shown = 0;
    for (const row of table.tBodies[0].rows) {
      row.hidden = wanted !== "" && ![...row.cells].some((one) => one.textContent.toLowerCase().includes(wanted));
      shown += !row.hidden;
    }
    found.textContent = wanted ? `${shown} of ${table.tBodies[0].rows.length} rows` : "";
  });
  tools.prepend(input, found);
}

for (const table of document.querySelectorAll("table")) {
  [...table.tBodies[0].rows].forEach((row, number) => { row.dataset.row = number; });
  if (table.tBodies[0].rows.length > 1) addSorting(table);
}
