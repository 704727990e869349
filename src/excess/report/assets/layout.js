// Data of the page, and what all plots have in common. Every number on the page is a text from the data, computed by Python beforehand:
// no significance is computed here.
const data = JSON.parse(document.getElementById("data").textContent);
const print = window.matchMedia("print");
const dark = window.matchMedia("(prefers-color-scheme: dark)");
const narrow = window.matchMedia("(max-width: 34rem)");
const config = { displaylogo: false, responsive: true, displayModeBar: false };

// labels of plots may hold markup, which Plotly would show as such
const plain = (text) => String(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
const unescaped = (text) => String(text).replaceAll("&lt;", "<").replaceAll("&gt;", ">").replaceAll("&amp;", "&");
// colours of the page; those of images to download are for white paper
let paper = document.documentElement;
const color = (name) => getComputedStyle(paper).getPropertyValue(`--${name}`).trim();
function onWhitePaper(make) {
  paper = document.querySelector(".white-paper");
  try { return make(); } finally { paper = document.documentElement; }
}

function layout(x, y, more = {}) {
  const axis = { gridcolor: color("grid"), linecolor: color("line"), zerolinecolor: color("line"), tickcolor: color("line"), fixedrange: true };
  const { xaxis, yaxis, ...rest } = more;
  return {
    margin: { l: narrow.matches ? 48 : 60, r: narrow.matches ? 12 : 20, t: 28, b: 48 },
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", dragmode: false, hovermode: "closest", autosize: true,
    font: { family: getComputedStyle(document.body).fontFamily, color: color("text"), size: 12 },
    hoverlabel: { bgcolor: color("card"), bordercolor: color("line"), font: { color: color("text") } },
    legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", bgcolor: "rgba(0,0,0,0)" },
    xaxis: { ...axis, title: { text: x, standoff: 8 }, ...xaxis },
    yaxis: { ...axis, title: { text: y, standoff: 6 }, ...yaxis },
    ...rest,
  };
}
const line = (shape) => ({ type: "line", xref: "x", yref: "paper", y0: 0, y1: 1, line: { color: color("muted"), width: 1.5, dash: "dash" }, ...shape });
const middles = (edges) => edges.slice(1).map((edge, i) => (edge + edges[i]) / 2);
// the two sides of every bin, so that a line through them is the outline of a histogram
const outline = (edges, values) => ({
  x: edges.flatMap((edge) => [edge, edge]),
  y: [0, ...values.flatMap((value) => [value, value]), 0],
});
