// Draws a page: the summary, a checkbox for each run, and one figure for each entry of the data
// (apps/report/page_data.h). Texts from the data reach the page as text nodes only, so that a run may have any name.
"use strict";

(() => {
  const LIGHT = ["#0b62c4", "#c2410c", "#15803d", "#7e22ce", "#b91c1c", "#0e7490", "#a16207", "#475569",
    "#be185d", "#3f6212", "#4338ca", "#78350f"];
  const DARK = ["#60a5fa", "#fb923c", "#4ade80", "#c084fc", "#f87171", "#22d3ee", "#facc15", "#94a3b8",
    "#f472b6", "#a3e635", "#818cf8", "#d6a37c"];
  const PARTS = ["#64748b", "#a855f7", "#eab308", "#ef4444", "#14b8a6"]; // of bars; other colours than those of runs
  const POLL_MS = 2000;
  const root = document.documentElement;
  const byId = (id) => document.getElementById(id);
  let text = byId("data").textContent;
  let data = JSON.parse(text);
  let shown = data.runs.map(() => true);
  const charts = new Map(); // by the figure's id: {figure, element, chart, readout, range, frame, scales, places, at}

  function make(tag, properties, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(properties || {})) {
      name in element && name !== "role" ? (element[name] = value) : element.setAttribute(name, value);
    }
    element.append(...children);
    return element;
  }

  // Colours.

  function isDark() {
    const chosen = root.dataset.theme;
    return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  }

  function look() {
    const style = getComputedStyle(root), palette = isDark() ? DARK : LIGHT;
    const value = (name) => style.getPropertyValue(name).trim();
    return {
      back: value("--card"), text: value("--text"), muted: value("--muted"), line: value("--line"),
      run: (i) => palette[i % palette.length],
      part: (i) => PARTS[i % PARTS.length],
    };
  }

  function setTheme(theme) {
    theme ? (root.dataset.theme = theme) : delete root.dataset.theme;
    byId("theme").textContent = "Colours: " + (theme || "automatic");
    try {
      theme ? localStorage.setItem("gravac-theme", theme) : localStorage.removeItem("gravac-theme");
    } catch (error) {
      // Pages in files may have no storage; then the choice lasts as long as the page.
    }
  }

  function startTheme() {
    let kept = null;
    try {
      kept = localStorage.getItem("gravac-theme");
    } catch (error) {
      // As above.
    }
    const asked = new URLSearchParams(location.search).get("theme");
    const first = [asked, kept].find((theme) => theme === "light" || theme === "dark");
    if (first) setTheme(first);
    byId("theme").addEventListener("click", () => {
      setTheme({ light: "dark", dark: "" }[root.dataset.theme] ?? "light");
      drawAll();
    });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
  }

  // Summary and runs.

  function drawSummary() {
    const colours = look();
    const isText = data.table.columns.map((_, i) => !data.table.rows.some((row) => /^\d/.test(row[i])));
    const kind = (i) => (i === 0 || isText[i] ? "words" : "");
    const head = make("tr", {}, ...data.table.columns.map((name, i) => make("th", { scope: "col", className: kind(i) }, name)));
    const rows = data.table.rows.map(([first, ...cells]) => {
      const i = data.runs.findIndex((run) => run.name === first);
      const name = make("th", { scope: "row", title: first, className: "words" }, first);
      if (i >= 0) name.style.color = colours.run(i);
      if (i >= 0 && data.runs[i].unfinished) name.append(make("span", { className: "unfinished" }, "not finished"));
      return make("tr", {}, name, ...cells.map((cell, column) => make("td", { className: kind(column + 1) }, cell)));
    });
    byId("summary").replaceChildren(make("thead", {}, head), make("tbody", {}, ...rows));
    byId("conclusion").replaceChildren(...data.paragraphs.map((paragraph) => make("p", {}, paragraph)));
    document.title = byId("title").textContent = data.title;
  }

  function drawRuns() {
    const colours = look();
    const labels = data.runs.map((run, i) => {
      const box = make("input", { type: "checkbox", checked: shown[i] });
      box.addEventListener("change", () => {
        shown[i] = box.checked;
        charts.forEach(draw);
      });
      const swatch = make("span", { className: "swatch" });
      swatch.style.color = colours.run(i);
      return make("label", { title: run.name }, box, swatch, make("span", { className: "name" }, run.name));
    });
    byId("runs").replaceChildren(byId("runs").firstElementChild, ...labels);
  }

  // Figures.

  function save(blob, name) {
    const link = make("a", { href: URL.createObjectURL(blob), download: name });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  }

  function svgText(id) {
    return savedSvg(charts.get(id).figure, data, shown, look(), 820);
  }

  function saveSvg(id) {
    save(new Blob([svgText(id)], { type: "image/svg+xml" }), id + ".svg");
  }

  function pngBlob(id) {
    return new Promise((resolve, reject) => {
      const image = new Image();
      image.onload = () => {
        const canvas = make("canvas", { width: 2 * image.width, height: 2 * image.height });
        canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
        canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error("no PNG was made"))), "image/png");
      };
      image.onerror = () => reject(new Error("the browser cannot read the SVG"));
      image.src = "data:image/svg+xml;charset=utf-8," + encodeURIComponent(svgText(id));
    });
  }

  // What tests and other scripts may call.
  window.gravacReport = { svgText, pngBlob };

  function dashKey(figure, colours) {
    const labels = new Map(figure.curves.filter((c) => c.label).map((c) => [c.label, c.dash]));
    const key = make("div", { className: "key" });
    for (const [label, dash] of labels) {
      const line = `<svg xmlns="http://www.w3.org/2000/svg" width="28" height="6"><line x1="0" x2="28" y1="3" y2="3" stroke="${colours.muted}" stroke-width="2" stroke-dasharray="${DASHES[dash].join(" ")}"/></svg>`;
      key.append(make("span", {}, svgNode(line), label));
    }
    return labels.size ? key : "";
  }

  function svgNode(text) {
    return document.importNode(new DOMParser().parseFromString(text, "image/svg+xml").documentElement, true);
  }

  function addFigure(figure) {
    const button = (name, act) => {
      const one = make("button", { type: "button", "aria-label": `Save "${figure.title}" as ${name}` }, name);
      one.addEventListener("click", act);
      return one;
    };
    const chart = make("div", { className: "chart", tabIndex: 0, role: "img" });
    chart.setAttribute("aria-label", figure.title + (figure.bars ? "" : "; arrow keys read values off the curves"));
    const element = make("figure", { id: "figure-" + figure.id },
      make("div", { className: "head" }, make("h2", {}, figure.title),
        button("PNG", () => pngBlob(figure.id).then((blob) => save(blob, figure.id + ".png"))),
        button("SVG", () => saveSvg(figure.id))),
      chart, make("div", { className: "keys" }), make("figcaption", {}, figure.text));
    byId("figures").append(element);
    const entry = { figure, element, chart, readout: make("div", { className: "readout", hidden: true }), range: null, at: null };
    charts.set(figure.id, entry);
    if (!figure.bars) listen(entry);
    return entry;
  }

  function drawBars(entry, width) {
    const bars = barsSvg(entry.figure, data, shown, look(), width, 4);
    entry.chart.replaceChildren(svgNode(svgElement(entry.figure.title, width, Math.ceil(bars.height), look(), bars.body)));
    return entry.figure.bars.flatMap((bar) => bar.values);
  }

  function drawCurves(entry, width) {
    const { figure } = entry, height = width < 450 ? 240 : 300;
    entry.frame = frameOf(width, height, 8);
    entry.scales = scalesOf(figure, shown, entry.frame, entry.range);
    entry.places = [...new Set(figure.curves.filter((c) => shown[c.run]).flatMap((c) => c.x))].sort((a, b) => a - b);
    const body = curvesSvg(figure, shown, look(), entry.frame, entry.scales);
    entry.chart.replaceChildren(svgNode(svgElement(figure.title, width, height, look(), body)), entry.readout);
    showReadout(entry, null);
    entry.element.querySelector(".keys").replaceChildren(dashKey(figure, look()));
    return figure.curves.flatMap((c) => c.y);
  }

  function draw(entry) {
    const width = Math.max(entry.chart.clientWidth, 200);
    const values = entry.figure.bars ? drawBars(entry, width) : drawCurves(entry, width);
    entry.element.dataset.points = values.filter((v) => v !== null).length;
  }

  function drawAll() {
    drawSummary();
    drawRuns();
    for (const figure of data.figures) draw(charts.get(figure.id) || addFigure(figure));
    if (!data.figures.length) byId("figures").replaceChildren(make("p", { className: "empty" }, "There is nothing to draw yet."));
  }

  // Reading values and zooming.

  // Marks one of a chart's places, or none, and says the values there. Curves have points at different places: each
  // shows its last one up to there.
  function showReadout(entry, at) {
    const { figure, readout, frame, scales } = entry;
    entry.at = at;
    entry.chart.querySelectorAll(".cursor").forEach((old) => old.remove());
    readout.hidden = at === null;
    if (at === null) return;
    const colours = look(), place = scales.x.at(entry.places[at]).toFixed(1);
    let marks = `<line x1="${place}" x2="${place}" y1="${frame.top}" y2="${frame.bottom}" stroke="${colours.muted}" stroke-dasharray="3 3"/>`;
    const lines = [make("div", {}, `${figure.x.label} ${numberText(entry.places[at])}`)];
    for (const curve of figure.curves.filter((c) => shown[c.run])) {
      const value = curve.y[curve.x.findLastIndex((x) => x <= entry.places[at])];
      if (value === null || value === undefined) continue;
      const swatch = make("span", { className: "swatch" });
      swatch.style.color = colours.run(curve.run);
      lines.push(make("div", {}, swatch, `${shortened(curveName(data, figure, curve), 40)}: ${numberText(value, figure.y)}`));
      if (!figure.y.log || value > 0) marks += `<circle cx="${place}" cy="${scales.y.at(value).toFixed(1)}" r="3.5" fill="${colours.run(curve.run)}"/>`;
    }
    entry.chart.firstElementChild.append(svgNode(`<svg xmlns="http://www.w3.org/2000/svg" class="cursor">${marks}</svg>`));
    readout.replaceChildren(...lines);
    const right = place > (frame.left + frame.right) / 2;
    readout.style.left = right ? frame.left + 8 + "px" : "auto";
    readout.style.right = right ? "auto" : "18px";
  }

  // The places that are in sight, as first and last index.
  function sight(entry) {
    const { low, high } = entry.scales.x;
    return [entry.places.findIndex((x) => x >= low), entry.places.findLastIndex((x) => x <= high)];
  }

  function onKey(entry, event) {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    if (event.key === "Escape") showReadout(entry, null);
    const [first, last] = sight(entry);
    const step = Math.max(1, Math.round((last - first) / 100)), now = entry.at ?? first - step;
    const to = { ArrowLeft: now - step, ArrowRight: now + step, Home: first, End: last }[event.key];
    if (to === undefined || first < 0 || last < first) return;
    event.preventDefault();
    showReadout(entry, Math.min(Math.max(to, first), last));
  }

  // Where in a chart the pointer is, from left to right.
  function pointerPlace(entry, event) {
    const place = event.clientX - entry.chart.getBoundingClientRect().left;
    return Math.min(Math.max(place, entry.frame.left), entry.frame.right);
  }

  function onMove(entry, event) {
    const [first, last] = sight(entry), x = entry.scales.x.at, place = pointerPlace(entry, event);
    let nearest = null;
    for (let i = first; first >= 0 && i <= last; ++i) {
      if (nearest === null || Math.abs(x(entry.places[i]) - place) < Math.abs(x(entry.places[nearest]) - place)) nearest = i;
    }
    showReadout(entry, nearest);
  }

  // Dragging marks a part of the x-axis, which then fills the figure.
  function onDown(entry, event) {
    if (event.button !== 0 || event.pointerType === "touch") return;
    const from = pointerPlace(entry, event), box = make("div", { className: "selection" });
    const move = (moved) => {
      const to = pointerPlace(entry, moved);
      Object.assign(box.style, { left: Math.min(from, to) + "px", width: Math.abs(to - from) + "px", top: entry.frame.top + "px", height: entry.frame.bottom - entry.frame.top + "px" });
    };
    const up = (ended) => {
      window.removeEventListener("pointermove", move);
      box.remove();
      const to = pointerPlace(entry, ended);
      if (Math.abs(to - from) < 6) return;
      entry.range = [Math.min(from, to), Math.max(from, to)].map(entry.scales.x.value);
      draw(entry);
    };
    entry.chart.append(box);
    window.addEventListener("pointermove", move);
    window.addEventListener("pointerup", up, { once: true });
  }

  function listen(entry) {
    const { chart } = entry;
    chart.addEventListener("keydown", (event) => onKey(entry, event));
    chart.addEventListener("blur", () => showReadout(entry, null));
    chart.addEventListener("pointermove", (event) => onMove(entry, event));
    chart.addEventListener("pointerleave", () => showReadout(entry, null));
    chart.addEventListener("pointerdown", (event) => onDown(entry, event));
    chart.addEventListener("dblclick", () => {
      entry.range = null;
      draw(entry);
    });
  }

  // A run that goes on.

  function sameShape(a, b) {
    const shape = (d) => JSON.stringify([d.runs.map((r) => r.name), d.figures.map((f) => [f.id, (f.curves || f.bars).map((c) => [c.run, c.label])])]);
    return shape(a) === shape(b);
  }

  function update(newText) {
    if (newText === text) return;
    const newData = JSON.parse(newText), same = sameShape(data, newData);
    text = newText;
    data = newData;
    if (!same) {
      if (shown.length !== data.runs.length) shown = data.runs.map(() => true);
      charts.clear();
      byId("figures").replaceChildren();
      drawAll();
      return;
    }
    drawSummary();
    for (const figure of data.figures) {
      const entry = charts.get(figure.id), { at } = entry;
      entry.figure = figure;
      draw(entry);
      if (at !== null && at < entry.places.length) showReadout(entry, at);
    }
  }

  async function poll() {
    if (!document.hidden) {
      try {
        const answer = await fetch("data.json", { cache: "no-store" });
        if (!answer.ok) throw new Error("status " + answer.status);
        update(await answer.text());
        byId("status").textContent = "updated " + new Date().toLocaleTimeString();
      } catch (error) {
        byId("status").textContent = "gravac watch does not answer any more: the page shows the last state";
      }
    }
    setTimeout(poll, POLL_MS);
  }

  let width = byId("figures").clientWidth;
  startTheme();
  drawAll();
  new ResizeObserver(() => {
    if (byId("figures").clientWidth === width) return; // only the height
    width = byId("figures").clientWidth;
    requestAnimationFrame(() => charts.forEach(draw));
  }).observe(byId("figures"));
  if (root.dataset.live === "yes") setTimeout(poll, POLL_MS);
  root.dataset.drawn = Math.round(performance.now()); // milliseconds since the page was opened
})();
