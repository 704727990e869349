// Downloads of plots and tables. All of it is on the page already: nothing is asked of a server.
const asFileName = (...parts) => parts.filter(Boolean).map((part) => String(part).replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-+|-+$/g, "")).filter(Boolean).join("_") || "report";

function save(url, name) {
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  document.body.append(link);
  link.click();
  link.remove();
}
function saveText(text, name) {
  const url = URL.createObjectURL(new Blob(["\ufeff", text], { type: "text/csv;charset=utf-8" }));
  save(url, name);
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

// a cell that a spreadsheet would compute begins with an apostrophe, as in the files of a run
const cell = (value) => {
  if (value === null || value === undefined || Number.isNaN(value)) return "";
  if (typeof value === "number") return String(value);
  const text = /^[=+\-@\t\r']/.test(value) && numberIn(value) === null ? `'${value}` : String(value);
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
};
const asCsv = (rows) => rows.map((row) => row.map(cell).join(",")).join("\r\n") + "\r\n";

function plotRows(traces) {
  if (traces[0]?.type === "heatmap") {
    const [{ x, y, z, name }] = traces;
    return [["x", "y", name], ...y.flatMap((north, i) => x.map((east, j) => [Number(east.toFixed(6)), Number(north.toFixed(6)), z[i][j]]))];
  }
  const rows = [["series", "x", "y", "error_minus", "error_plus"]];
  for (const trace of traces) {
    const value = (one) => (typeof one === "string" ? unescaped(one) : one);
    trace.x.forEach((x, i) => {
      const plus = trace.error_y?.array?.[i];
      rows.push([unescaped(trace.name ?? ""), value(x), value(trace.y[i]), trace.error_y?.arrayminus?.[i] ?? plus, plus]);
    });
  }
  return rows;
}

// columns with "value ± error" become two, and numbers lose their separators
function tableRows(table) {
  const above = table.tHead.rows.length > 1 ? [...table.tHead.rows[0].cells].flatMap((head) => Array(head.colSpan).fill(head.textContent.trim())) : [];
  const texts = (row) => [...row.cells].map((one) => one.textContent.replace(/\s+/g, " ").trim());
  const heads = texts(table.tHead.rows[table.tHead.rows.length - 1]).map((head, i) => [above[i], head].filter(Boolean).join(" "));
  const rows = [...table.tBodies[0].rows].map(texts);
  const pairs = heads.map((_, i) => rows.some((row) => (row[i] ?? "").includes(" ± ")));
  const clean = (text) => (/^[−-]?[\d,]+(\.\d+)?(e[+-]?\d+)?$/.test(text) ? text.replaceAll(",", "").replace("−", "-") : text);
  const split = (row, fill) => row.flatMap((text, i) => (pairs[i] ? fill(text) : [clean(text)]));
  return [split(heads, (text) => [text, `${text} error`]), ...rows.map((row) => split(row, (text) => { const [value, error = ""] = text.split(" ± "); return [clean(value), clean(error)]; }))];
}

function addTools(node, label, actions) {
  const tools = document.createElement("p");
  tools.className = "tools";
  for (const [name, action] of Object.entries(actions)) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = name;
    button.setAttribute("aria-label", `Download ${label} as ${name}`);
    button.addEventListener("click", action);
    tools.append(button);
  }
  return tools;
}

const modelOf = (node) => data.models[Number(node.closest("article.model")?.dataset.model ?? NaN)]?.name;
function addPlotTools(node) {
  const label = node.getAttribute("aria-label");
  const name = () => asFileName(data.title, modelOf(node), node.dataset.plot ?? `panel-${node.dataset.panel}`);
  const image = (format) => async () => {
    const [traces, drawn] = onWhitePaper(node.makeFigure);
    const size = { width: Math.max(640, node.clientWidth), height: Math.max(drawn.height ?? 0, node.clientHeight, 400) };
    const whole = { data: traces, layout: { ...drawn, ...size, autosize: false, paper_bgcolor: "#ffffff" } };
    save(await Plotly.toImage(whole, { format, ...size, scale: 2 }), `${name()}.${format}`);
  };
  const tools = addTools(node, label, { PNG: image("png"), SVG: image("svg"), CSV: () => saveText(asCsv(plotRows(node.makeFigure()[0])), `${name()}.csv`) });
  node.after(tools);
}

for (const node of document.querySelectorAll(".plot")) addPlotTools(node);
for (const box of document.querySelectorAll(".scroll")) {
  const table = box.querySelector("table");
  const label = box.getAttribute("aria-label").toLowerCase();
  const tools = addTools(table, label, { CSV: () => saveText(asCsv(tableRows(table)), `${asFileName(data.title, modelOf(table), label.replace("table of ", ""))}.csv`) });
  if (table.tBodies[0].rows.length > 12) addSearch(table, tools);
  box.before(tools);
}
