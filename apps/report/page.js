// Draws the report: the summary, a checkbox for each run, and one figure for each entry of the data. Texts from
// the data reach the page as text nodes only, so that a run may have any name.
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
  const charts = new Map(); // by the figure's id: {figure, chart, plot, readout, zoomed}

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
    const head = make("tr", {}, ...["run", ...data.table.columns].map((name) => make("th", { scope: "col" }, name)));
    const rows = data.table.rows.map((cells, i) => {
      const run = data.runs[i];
      const name = make("th", { scope: "row", title: run.name }, run.name);
      if (run.unfinished) name.append(make("span", { className: "unfinished" }, "not finished"));
      name.style.color = colours.run(i);
      return make("tr", {}, name, ...cells.map((cell) => make("td", {}, cell)));
    });
    byId("summary").replaceChildren(make("thead", {}, head), make("tbody", {}, ...rows));
    byId("conclusion").textContent = data.conclusion;
    const names = data.runs.map((run) => run.name);
    document.title = "GraVAC: " + (names.length > 3 ? names.length + " runs" : names.join(", "));
  }

  function drawRuns() {
    const colours = look();
    const labels = data.runs.map((run, i) => {
      const box = make("input", { type: "checkbox", checked: shown[i] });
      box.addEventListener("change", () => {
        shown[i] = box.checked;
        showRuns();
      });
      const swatch = make("span", { className: "swatch" });
      swatch.style.color = colours.run(i);
      return make("label", { title: run.name }, box, swatch, make("span", { className: "name" }, run.name));
    });
    byId("runs").replaceChildren(byId("runs").firstElementChild, ...labels);
  }

  function showRuns() {
    for (const entry of charts.values()) {
      if (!entry.plot) {
        drawBars(entry);
        continue;
      }
      entry.plot.batch(() => entry.figure.curves.forEach((c, i) => entry.plot.setSeries(i + 1, { show: shown[c.run] })));
    }
  }

  // Figures.

  function save(blob, name) {
    const link = make("a", { href: URL.createObjectURL(blob), download: name });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  }

  function svgText(id) {
    return svgOf(charts.get(id).figure, data, shown, look(), 820, false);
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
    const entry = { figure, element, chart, plot: null, readout: make("div", { className: "readout", hidden: true }), zoomed: false };
    charts.set(figure.id, entry);
    chart.addEventListener("keydown", (event) => onKey(entry, event));
    chart.addEventListener("blur", () => (entry.readout.hidden = true));
    return entry;
  }

  function drawBars(entry) {
    const width = Math.max(entry.chart.clientWidth, 200);
    entry.chart.replaceChildren(svgNode(svgOf(entry.figure, data, shown, look(), width, true)));
    entry.element.dataset.points = entry.figure.bars.flatMap((b) => b.values).filter((v) => v !== null).length;
  }

  function tableOf(figure) {
    const tables = figure.curves.map((c) => [c.x, figure.y.log ? c.y.map((v) => (v > 0 ? v : null)) : c.y]);
    return uPlot.join(tables);
  }

  function sizeOf(entry) {
    const width = Math.max(entry.chart.clientWidth, 200);
    return { width, height: width < 450 ? 240 : 300 };
  }

  function axisOf(axis, side, colours) {
    const plain = { stroke: colours.muted, grid: { stroke: colours.line, width: 1 }, ticks: { stroke: colours.line, width: 1 },
      font: "12px system-ui, sans-serif", labelFont: "12px system-ui, sans-serif", label: axis.label, labelSize: 18 };
    plain.size = side === "x" ? 34 : axis.percent ? 66 : 58;
    const isPower = (v) => Math.abs(Math.log10(v) - Math.round(Math.log10(v))) < 1e-9;
    if (axis.log) plain.grid.filter = (u, splits) => splits.map((v) => (isPower(v) ? v : null));
    plain.values = (u, splits) => splits.map((v) => (v === null ? "" : axis.percent ? Number((100 * v).toPrecision(4)) + " %" : numberText(v)));
    return plain;
  }

  function drawCurves(entry) {
    const { figure } = entry, colours = look();
    const scale = (axis) => ({ time: false, distr: axis.log ? 3 : 1 });
    const options = {
      ...sizeOf(entry),
      scales: { x: scale(figure.x), y: scale(figure.y) },
      axes: [axisOf(figure.x, "x", colours), axisOf(figure.y, "y", colours)],
      legend: { show: false },
      cursor: { drag: { x: true, y: false }, points: { size: 7 } },
      series: [{}, ...figure.curves.map((c) => ({
        label: curveName(data, figure, c), show: shown[c.run], stroke: colours.run(c.run), width: 1.6, dash: DASHES[c.dash],
        paths: figure.stepped ? uPlot.paths.stepped({ align: 1 }) : undefined,
        points: { show: figure.dots || c.x.length < 3, size: 7, fill: colours.run(c.run) },
      }))],
      hooks: {
        setCursor: [() => showReadout(entry)],
        setSelect: [() => (entry.zoomed = true)],
      },
    };
    if (entry.plot) entry.plot.destroy();
    entry.chart.replaceChildren(entry.readout);
    entry.readout.hidden = true;
    entry.zoomed = false;
    entry.plot = new uPlot(options, tableOf(figure), entry.chart);
    entry.plot.over.addEventListener("dblclick", () => (entry.zoomed = false));
    countPoints(entry);
  }

  function countPoints(entry) {
    const known = entry.plot.data.slice(1).map((ys) => ys.filter((v) => v !== null && v !== undefined).length);
    entry.element.dataset.points = known.reduce((a, b) => a + b, 0);
  }

  function draw(entry) {
    entry.figure.bars ? drawBars(entry) : drawCurves(entry);
    const keys = entry.element.querySelector(".keys");
    keys.replaceChildren(...(entry.figure.bars ? [] : [dashKey(entry.figure, look())]));
  }

  function drawAll() {
    drawSummary();
    drawRuns();
    for (const figure of data.figures) draw(charts.get(figure.id) || addFigure(figure));
    if (!data.figures.length) byId("figures").replaceChildren(make("p", { className: "empty" }, "There is nothing to draw yet."));
  }

  // The values under the cursor. Runs have points at different places: each shows its last one up to there.
  function showReadout(entry) {
    const { plot, figure, readout } = entry;
    const at = plot ? plot.cursor.idx : null;
    readout.hidden = at === null || at === undefined || plot.cursor.left < 0;
    if (readout.hidden) return;
    const colours = look();
    const lines = [make("div", {}, `${figure.x.label} ${numberText(plot.data[0][at])}`)];
    figure.curves.forEach((curve, i) => {
      if (!shown[curve.run]) return;
      let back = at;
      while (back > 0 && plot.data[i + 1][back] === undefined) --back;
      const value = plot.data[i + 1][back];
      if (value === null || value === undefined) return;
      const swatch = make("span", { className: "swatch" });
      swatch.style.color = colours.run(curve.run);
      lines.push(make("div", {}, swatch, `${shortened(curveName(data, figure, curve), 40)}: ${numberText(value, figure.y)}`));
    });
    readout.replaceChildren(...lines);
    const right = plot.cursor.left > plot.over.clientWidth / 2;
    readout.style.left = right ? "66px" : "auto";
    readout.style.right = right ? "auto" : "8px";
  }

  function onKey(entry, event) {
    const { plot } = entry;
    if (!plot || event.ctrlKey || event.altKey || event.metaKey) return;
    const last = plot.data[0].length - 1, step = Math.max(1, Math.round(last / 100));
    const now = plot.cursor.idx ?? -step;
    const to = { ArrowLeft: now - step, ArrowRight: now + step, Home: 0, End: last }[event.key];
    if (event.key === "Escape") plot.setCursor({ left: -10, top: -10 });
    if (to === undefined) return;
    event.preventDefault();
    const left = plot.valToPos(plot.data[0][Math.min(Math.max(to, 0), last)], "x");
    plot.setCursor({ left, top: plot.over.clientHeight / 2 });
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
      for (const entry of charts.values()) if (entry.plot) entry.plot.destroy();
      charts.clear();
      byId("figures").replaceChildren();
      drawAll();
      return;
    }
    drawSummary();
    for (const figure of data.figures) {
      const entry = charts.get(figure.id);
      entry.figure = figure;
      if (!entry.plot) {
        drawBars(entry);
        continue;
      }
      entry.plot.setData(tableOf(figure), !entry.zoomed);
      if (entry.zoomed) entry.plot.redraw();
      countPoints(entry);
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

  startTheme();
  drawAll();
  let width = window.innerWidth;
  window.addEventListener("resize", () => {
    if (window.innerWidth === width) return; // a phone's address bar changes the height all the time
    width = window.innerWidth;
    for (const entry of charts.values()) entry.plot ? entry.plot.setSize(sizeOf(entry)) : drawBars(entry);
  });
  if (root.dataset.live === "yes") setTimeout(poll, POLL_MS);
  // uPlot draws in microtasks, which come before this one. Milliseconds since the page was opened.
  queueMicrotask(() => (root.dataset.drawn = Math.round(performance.now())));
})();
