// Figures as SVG, on the page and for saving. Nothing here touches the page.
"use strict";

const DASHES = [[], [7, 4], [2, 3]];

function escapeText(text) {
  const names = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" };
  // SVG is XML, which has no place for control characters.
  return String(text).replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]/g, "\ufffd").replace(/[&<>"']/g, (c) => names[c]);
}

function shortened(text, length) {
  return text.length > length ? text.slice(0, length - 1) + "\u2026" : text;
}

// Four digits, as in 0.01234, 12.34 and 1.23e+7.
function numberText(value, axis) {
  if (value === null || value === undefined) return "-";
  if (axis && axis.percent) return (100 * value).toFixed(2) + " %";
  if (value === 0) return "0";
  const size = Math.abs(value);
  return size >= 1e6 || size < 1e-3 ? value.toExponential(2) : String(Number(value.toPrecision(4)));
}

function tickText(value, axis) {
  return axis.percent ? Number((100 * value).toPrecision(4)) + " %" : numberText(value);
}

// Ticks at 1, 2 or 5 times a power of ten, about `count` of them.
function linearTicks(low, high, count) {
  const rough = (high - low) / count || 1;
  const power = Math.pow(10, Math.floor(Math.log10(rough)));
  const step = power * ([1, 2, 5].find((m) => m * power >= rough) || 10);
  const ticks = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; ++i) ticks.push(i * step);
  return ticks;
}

// Powers of ten; with 2 and 5 times them if there are few.
function logTicks(low, high) {
  const wide = Math.log10(high / low) > 3;
  const ticks = [];
  for (let p = Math.floor(Math.log10(low)); p <= Math.ceil(Math.log10(high)); ++p) {
    for (const m of wide ? [1] : [1, 2, 5]) ticks.push(m * Math.pow(10, p));
  }
  return ticks.filter((t) => t >= low * 0.999 && t <= high * 1.001);
}

function ticksOf(axis, scale, count) {
  return axis.log && scale.high / scale.low > 5 ? logTicks(scale.low, scale.high) : linearTicks(scale.low, scale.high, count);
}

// From values between `low` and `high` to places between `from` and `to`, and back.
function scaleBetween(low, high, log, from, to) {
  const change = log ? Math.log : (v) => v, back = log ? Math.exp : (v) => v;
  const a = change(low), b = change(high);
  return { low, high, at: (v) => from + ((change(v) - a) / (b - a)) * (to - from), value: (place) => back(a + ((place - from) / (to - from)) * (b - a)) };
}

// A scale for the range of the values, a little wider.
function scaleOf(values, log, from, to) {
  let low = Infinity, high = -Infinity;
  for (const value of values) {
    if (value === null || (log && value <= 0)) continue;
    low = Math.min(low, value);
    high = Math.max(high, value);
  }
  if (low > high) [low, high] = log ? [1, 10] : [0, 1];
  const change = log ? Math.log : (v) => v, back = log ? Math.exp : (v) => v;
  const a = change(low), b = change(high);
  const margin = (b - a) * 0.04 || (log ? 0.7 : Math.abs(a) * 0.1 || 1);
  return scaleBetween(back(a - margin), back(b + margin), log, from, to);
}

function textAt(x, y, text, more) {
  return `<text x="${x.toFixed(1)}" y="${y.toFixed(1)}" ${more || ""}>${escapeText(text)}</text>`;
}

function pathOf(curve, x, y, stepped, log) {
  let path = "", open = false;
  for (let i = 0; i < curve.x.length; ++i) {
    const value = curve.y[i];
    if (value === null || (log && value <= 0)) {
      open = false;
      continue;
    }
    const px = x.at(curve.x[i]).toFixed(1), py = y.at(value).toFixed(1);
    path += !open ? `M${px} ${py}` : stepped ? `H${px}V${py}` : `L${px} ${py}`;
    open = true;
  }
  return path;
}

function curveName(data, figure, curve) {
  return data.runs[curve.run].name + (curve.label ? ", " + curve.label : "");
}

// Rows of names with their line, as wide as the figure. Returns the SVG and its height.
function legendSvg(entries, width, top) {
  let x = 0, y = top, svg = "";
  for (const entry of entries) {
    const name = shortened(entry.name, 48), space = 40 + 6.7 * name.length;
    if (x > 0 && x + space > width) {
      x = 0;
      y += 18;
    }
    svg += `<line x1="${12 + x}" x2="${36 + x}" y1="${y - 4}" y2="${y - 4}" stroke="${entry.colour}" stroke-width="${entry.thick || 2}" stroke-dasharray="${(entry.dash || []).join(" ")}"/>`;
    svg += textAt(42 + x, y, name);
    x += space;
  }
  return { svg, height: entries.length ? y - top + 18 : 0 };
}

// The scales of a figure whose curves lie within `frame`; `range` holds the lowest and the highest x to show, or
// is null for all.
function scalesOf(figure, shown, frame, range) {
  const curves = figure.curves.filter((c) => shown[c.run]);
  const x = range ? scaleBetween(...range, figure.x.log, frame.left, frame.right)
    : scaleOf(curves.flatMap((c) => c.x), figure.x.log, frame.left, frame.right);
  const inside = curves.flatMap((c) => c.y.filter((_, i) => c.x[i] >= x.low && c.x[i] <= x.high));
  return { x, y: scaleOf(inside, figure.y.log, frame.bottom, frame.top) };
}

// Axes and curves within a frame, {left, right, top, bottom}. A nested <svg> cuts off what leaves it.
function curvesSvg(figure, shown, look, frame, { x, y }) {
  const { left, right, top, bottom } = frame, middle = 'text-anchor="middle"';
  const line = (x1, x2, y1, y2) => `<line x1="${x1.toFixed(1)}" x2="${x2.toFixed(1)}" y1="${y1.toFixed(1)}" y2="${y2.toFixed(1)}" stroke="${look.line}"/>`;
  let svg = `<g fill="${look.muted}">`;
  for (const tick of ticksOf(figure.x, x, (right - left) / 60)) {
    svg += line(x.at(tick), x.at(tick), top, bottom) + textAt(x.at(tick), bottom + 16, tickText(tick, figure.x), middle);
  }
  for (const tick of ticksOf(figure.y, y, (bottom - top) / 35)) {
    svg += line(left, right, y.at(tick), y.at(tick)) + textAt(left - 6, y.at(tick) + 4, tickText(tick, figure.y), 'text-anchor="end"');
  }
  svg += textAt((left + right) / 2, bottom + 34, figure.x.label, middle);
  svg += textAt(0, 0, figure.y.label, `${middle} transform="translate(14 ${(top + bottom) / 2}) rotate(-90)"`);
  svg += `</g><svg x="${left}" y="${top}" width="${right - left}" height="${bottom - top}" viewBox="${left} ${top} ${right - left} ${bottom - top}">`;
  for (const curve of figure.curves) {
    if (!shown[curve.run]) continue;
    const colour = look.run(curve.run);
    svg += `<path d="${pathOf(curve, x, y, figure.stepped, figure.y.log)}" fill="none" stroke="${colour}" stroke-width="1.6" stroke-dasharray="${DASHES[curve.dash].join(" ")}"/>`;
    if (!figure.dots && curve.x.length >= 3) continue;
    curve.x.forEach((at, i) => {
      if (curve.y[i] !== null) svg += `<circle cx="${x.at(at).toFixed(1)}" cy="${y.at(curve.y[i]).toFixed(1)}" r="3" fill="${colour}"/>`;
    });
  }
  return svg + "</svg>";
}

// Where the curves lie in a chart of this size.
function frameOf(width, height, top) {
  return { left: 70, right: width - 12, top, bottom: height - 42 };
}

// Curves with their title above and their names below.
function titledCurvesSvg(figure, data, shown, look, width) {
  const frame = frameOf(width, 372, 36);
  const names = figure.curves.filter((c) => shown[c.run]).map((c) => ({ name: curveName(data, figure, c), colour: look.run(c.run), dash: DASHES[c.dash] }));
  const legend = legendSvg(names, width - 16, frame.bottom + 58);
  return { body: curvesSvg(figure, shown, look, frame, scalesOf(figure, shown, frame, null)) + legend.svg, height: frame.bottom + 46 + legend.height };
}

function barsSvg(figure, data, shown, look, width, top) {
  const bars = figure.bars.filter((b) => shown[b.run]);
  const sums = bars.map((b) => b.values.reduce((a, v) => a + v, 0));
  const longest = Math.max(...sums, 1e-9), room = width - 100;
  let svg = "", y = top;
  bars.forEach((bar, i) => {
    svg += textAt(8, y + 12, shortened(data.runs[bar.run].name, Math.floor((width - 16) / 7.5)), 'font-weight="600"');
    let x = 8;
    bar.values.forEach((value, part) => {
      const wide = (value / longest) * room;
      const name = `${figure.parts[part]}: ${numberText(value)} ${figure.y.label}`;
      svg += `<rect x="${x.toFixed(1)}" y="${y + 18}" width="${Math.max(wide, 0).toFixed(1)}" height="16" fill="${look.part(part)}"><title>${escapeText(name)}</title></rect>`;
      x += wide;
    });
    svg += textAt(x + 6, y + 31, `${numberText(sums[i])} ${figure.y.label}`);
    y += 46;
  });
  const entries = figure.parts.map((name, part) => ({ name, colour: look.part(part), thick: 8 }));
  const legend = legendSvg(entries, width - 16, y + 14);
  return { body: svg + legend.svg, height: y + 6 + legend.height };
}

// look: {back, text, muted, line, run(i), part(i)}, colours as CSS has them.
function svgElement(title, width, height, look, body) {
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" role="img" aria-label="${escapeText(title)}" font-family="system-ui, sans-serif" font-size="12" fill="${look.text}">${body}</svg>\n`;
}

// A figure as it is saved: with title, legend and background.
function savedSvg(figure, data, shown, look, width) {
  const drawn = figure.bars ? barsSvg(figure, data, shown, look, width, 36) : titledCurvesSvg(figure, data, shown, look, width);
  const back = `<rect width="100%" height="100%" fill="${look.back}"/>` + textAt(12, 22, figure.title, 'font-size="15" font-weight="600"');
  return svgElement(figure.title, width, Math.ceil(drawn.height), look, back + drawn.body);
}
