// The page: a view of each model with its slider, tabs, and what changes in print.
// a plot that is as high as its rows need says so to the page, so that nothing that follows is covered
function showPlot(node) {
  const [traces, drawn] = node.makeFigure();
  node.style.height = drawn.height ? `${drawn.height}px` : "";
  return Plotly.react(node, traces, drawn, config);
}

const views = [...document.querySelectorAll("article.model")].map((article) => new View(article, data.models[Number(article.dataset.model)]));

function View(article, model) {
  let at = null; // the stop of the slider; null is the tuned cut
  const slider = article.querySelector("[data-action=threshold]");
  const feature = article.querySelector("[data-action=feature]");
  const sky = article.querySelector("[data-action=sky]");
  const reset = article.querySelector("[data-action=reset]");
  const explorer = article.querySelector("[data-section=explorer]");
  const show = (name, text) => article.querySelectorAll(`[data-value=${name}]`).forEach((node) => { if (node.textContent !== text) node.textContent = text; });
  const follows = ["curve", "theta", "groups"];
  const has = { ...model, curve: model.explore, groups: model.groups.length > 0, before: model.features, after: model.features,
    rate_group: model.rates?.group, rate_night: model.rates?.night };

  for (const figure of article.querySelectorAll("[data-needs]")) figure.hidden = !has[figure.dataset.needs];
  if (model.null) show("null", `Significance of a search in each Off region, by the ${model.statistic}. Bands: 68 % and 95 % of a standard normal distribution. ${model.null.verdict}`);
  if (model.explore) {
    slider.max = model.explore.threshold.length - 1;
    slider.value = model.start;
    slider.setAttribute("aria-valuetext", "as tuned");
  } else {
    explorer.querySelector("figure").hidden = true;
    show("thresholds", "There are no scores, so no other threshold can be shown.");
  }

  function draw(names) {
    for (const node of article.querySelectorAll(".plot")) {
      const name = node.dataset.plot;
      if ((names && !names.includes(name)) || !has[name]) continue;
      node.makeFigure = () => plots[name](model, follows.includes(name) ? at : null);
      showPlot(node).then(() => {
        if (name !== "curve" || node.dataset.clickable) return;
        node.dataset.clickable = "yes";
        node.addEventListener("click", (event) => {
          const box = node.querySelector(".bglayer .bg, .plotbg, .xy")?.getBoundingClientRect() ?? slider.getBoundingClientRect();
          const share = (event.clientX - box.left) / box.width;
          if (share >= 0 && share <= 1) go(Math.round(share * (model.explore.threshold.length - 1)));
        });
      });
    }
  }
  function go(stop) {
    at = stop;
    const { explore } = model;
    slider.value = stop === null ? model.start : stop;
    const from = (key) => (stop === null ? model.tuned[key] : explore[key][stop]);
    for (const key of ["n_on", "n_off", "excess", "excess_error", "significance"]) show(key, from(key));
    show("threshold", stop === null ? "as tuned" : explore.threshold[stop]);
    show("state", stop === null ? "Tuned cut" : "Exploration");
    show("explanation", stop === null ? `These are the numbers of the cut${model.strategy === "pooled" ? " (pooled)" : ""}.`
      : "Not a result: the significance is too large if the threshold is chosen by looking at these events.");
    slider.setAttribute("aria-valuetext", stop === null ? "as tuned"
      : `${explore.threshold[stop]}: ${explore.significance[stop]} sigma, On ${explore.n_on[stop]}, Off ${explore.n_off[stop]}, exploration`);
    explorer.classList.toggle("exploring", stop !== null);
    const table = article.querySelector("[data-table=groups] tbody");
    if (table && explore.groups) {
      [...table.rows].forEach((row) => {
        const i = Number(row.dataset.row); // rows may have been sorted
        const texts = stop === null ? model.groups[i] : Object.fromEntries(Object.entries(explore.groups[stop]).map(([key, list]) => [key, list[i]]));
        const cells = row.querySelectorAll("td");
        cells[0].textContent = texts.significance;
        cells[1].textContent = texts.n_on;
        cells[2].textContent = texts.n_off;
        cells[3].textContent = `${texts.excess} ± ${texts.excess_error}`;
      });
    }
    draw(follows);
  }
  // the feature that is compared, and what the map shows
  function choose(number) {
    model.feature = (number + model.features.length) % model.features.length;
    feature.value = model.feature;
    draw(["before", "after"]);
  }
  if (model.features) {
    feature.addEventListener("change", () => choose(Number(feature.value)));
    for (const button of article.querySelectorAll("[data-step]")) button.addEventListener("click", () => choose((model.feature ?? 0) + Number(button.dataset.step)));
  }
  if (model.sky) {
    const known = skyLayers(model);
    for (const option of [...sky.options]) if (!(option.value.split(" ")[0] in known)) option.remove();
    const check = () => show("sky", model.sky.checks[sky.value.split(" ")[0]]);
    sky.value = firstSky(model);
    check();
    sky.addEventListener("change", () => { model.shownSky = sky.value; check(); draw(["sky"]); });
  }
  let waiting = null;
  slider.addEventListener("input", () => {
    const stop = Number(slider.value);
    if (waiting === null) requestAnimationFrame(() => { const next = waiting; waiting = null; go(next); });
    waiting = stop;
  });
  reset.addEventListener("click", () => { go(null); slider.focus(); });
  this.draw = draw;
  this.shown = () => article.classList.contains("chosen");
  this.article = article;
}

function drawAll(everything = false) {
  for (const view of views) if (everything || view.shown()) view.draw();
  const comparison = document.querySelector("[data-plot=comparison]");
  if (comparison) { comparison.makeFigure = () => plots.comparison(); showPlot(comparison); }
  for (const node of document.querySelectorAll("[data-panel]")) { node.makeFigure = () => panel(data.panels[Number(node.dataset.panel)]); showPlot(node); }
}

const tabs = [...document.querySelectorAll("[role=tab]")];
function choose(number) {
  tabs.forEach((tab, i) => { tab.setAttribute("aria-selected", i === number); tab.tabIndex = i === number ? 0 : -1; });
  views.forEach((view, i) => view.article.classList.toggle("chosen", i === number));
  views[number].draw();
}
tabs.forEach((tab, number) => {
  tab.addEventListener("click", () => choose(number));
  tab.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const next = (number + step + tabs.length) % tabs.length;
    choose(next);
    tabs[next].focus();
  });
});
// on paper all models are shown, one after the other
function fit(printing = print.matches) {
  drawAll(printing);
  for (const node of document.querySelectorAll(".js-plotly-plot")) if (node.offsetParent) Plotly.Plots.resize(node);
}
for (const query of [print, dark, narrow]) query.addEventListener("change", () => fit());
window.addEventListener("beforeprint", () => {
  for (const node of document.querySelectorAll("details")) node.open = true;
  fit(true);
});
window.addEventListener("afterprint", () => fit());
drawAll();
document.documentElement.dataset.ready = "yes";
