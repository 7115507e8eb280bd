/* The plot of all learning curves: one scalar at a time, values under the pointer, names that switch curves off and on. */
"use strict";

(() => {
  const drawing = JSON.parse(document.getElementById("drawing").textContent);
  const plot = document.getElementById("plot");
  if (!plot) return;
  const tagList = document.getElementById("tag");
  const smoothing = document.getElementById("smoothing");
  const legend = document.getElementById("legend");
  const hidden = new Set();
  const DASHES = ["", "7 3", "2 3", "8 3 2 3"];
  const MARGIN = {left: 54, right: 14, top: 10, bottom: 30};
  const MOST_IN_TIP = 12;
  let view = null;

  drawing.tags.forEach((tag, index) => tagList.add(new Option(tag, index, false, index === drawing.first)));
  plot.classList.toggle("many", drawing.series.length > 12);

  function svg(name, attributes, ...children) {
    const element = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.append(...children);
    return element;
  }

  function html(name, className, ...children) {
    const element = document.createElement(name);
    element.className = className;
    element.append(...children);
    return element;
  }

  function stroke(index) {
    const colour = index < 32 ? `var(--c${index % 8})` : `hsl(${(index * 137.5) % 360} 55% 52%)`;
    return {stroke: colour, "stroke-dasharray": DASHES[Math.floor(index / 8) % 4]};
  }

  function swatch(index) {
    return svg("svg", {class: "swatch", viewBox: "0 0 22 8", "aria-hidden": "true"}, svg("path", {d: "M0 4H22", ...stroke(index)}));
  }

  /* As TensorBoard does it: an exponential mean that is not pulled towards zero at its beginning. */
  function smooth(values, weight) {
    let mean = 0, known = 0;
    return values.map((value) => {
      mean = mean * weight + (1 - weight) * value;
      known = known * weight + (1 - weight);
      return mean / known;
    });
  }

  function ticks(low, high, wanted) {
    const rough = (high - low) / wanted;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((factor) => factor * power).find((candidate) => candidate >= rough);
    const found = [];
    for (let index = Math.ceil(low / step); index * step <= high * (1 + 1e-9) + 1e-12; index++) found.push(index * step);
    return found;
  }

  function short(value) {
    const size = Math.abs(value);
    if (size >= 1e15 || (size > 0 && size < 1e-3)) return value.toExponential(1);
    for (const [unit, name] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e4, "k"]]) {
      if (size >= unit) return `${+(value / (unit === 1e4 ? 1e3 : unit)).toPrecision(3)}${name}`;
    }
    return String(+value.toPrecision(4));
  }

  function shown() {
    const tag = tagList.value, weight = Number(smoothing.value), found = [];
    drawing.series.forEach((series, index) => {
      const curve = series.curves[tag];
      if (curve && !hidden.has(index)) found.push({index, name: series.name, steps: curve[0], values: smooth(curve[1], weight)});
    });
    return found;
  }

  function range(lists, padding) {
    let low = Infinity, high = -Infinity;
    for (const list of lists) for (const value of list) { if (value < low) low = value; if (value > high) high = value; }
    if (low > high) return [0, 1];
    if (low === high) return [low - 1, high + 1];
    return [low - (high - low) * padding, high + (high - low) * padding];
  }

  function draw() {
    const width = plot.clientWidth, height = width < 520 ? 250 : 340;
    const curves = shown();
    const [left, right] = range(curves.map((curve) => curve.steps), 0);
    const [low, high] = range(curves.map((curve) => curve.values), 0.05);
    const inner = {width: width - MARGIN.left - MARGIN.right, height: height - MARGIN.top - MARGIN.bottom};
    const x = (step) => MARGIN.left + (step - left) / (right - left) * inner.width;
    const y = (value) => MARGIN.top + (high - value) / (high - low) * inner.height;
    const picture = svg("svg", {viewBox: `0 0 ${width} ${height}`, height});
    for (const value of ticks(low, high, 5)) {
      picture.append(svg("line", {class: "grid", x1: MARGIN.left, x2: width - MARGIN.right, y1: y(value), y2: y(value)}));
      picture.append(svg("text", {x: MARGIN.left - 8, y: y(value) + 4, "text-anchor": "end"}, short(value)));
    }
    for (const step of ticks(left, right, Math.max(2, Math.floor(width / 130)))) {
      picture.append(svg("text", {x: x(step), y: height - MARGIN.bottom + 17, "text-anchor": "middle"}, short(step)));
    }
    picture.append(svg("text", {x: width - MARGIN.right, y: height - 1, "text-anchor": "end"}, "step"));
    for (const curve of curves) {
      const points = curve.steps.map((step, at) => `${x(step).toFixed(1)} ${y(curve.values[at]).toFixed(1)}`);
      curve.path = points.length > 1
        ? svg("path", {class: "curve", d: `M${points.join("L")}`, ...stroke(curve.index)})
        : svg("circle", {class: "curve", cx: x(curve.steps[0]), cy: y(curve.values[0]), r: 3, ...stroke(curve.index)});
      picture.append(curve.path);
    }
    const cursor = svg("line", {class: "cursor", y1: MARGIN.top, y2: height - MARGIN.bottom, visibility: "hidden"});
    picture.append(cursor);
    const tip = html("div", "tip");
    tip.hidden = true;
    plot.replaceChildren(picture, tip);
    view = {curves, x, y, left, right, inner, width, cursor, tip};
  }

  function nearest(steps, wanted) {
    let low = 0, high = steps.length - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (steps[middle] < wanted) low = middle + 1; else high = middle;
    }
    return low > 0 && wanted - steps[low - 1] < steps[low] - wanted ? low - 1 : low;
  }

  function point(clientX, clientY) {
    const {curves, x, y, left, right, inner, width, cursor, tip} = view;
    const box = plot.getBoundingClientRect();
    const step = left + Math.min(1, Math.max(0, (clientX - box.left - MARGIN.left) / inner.width)) * (right - left);
    const found = curves
      .filter((curve) => step >= curve.steps[0] - (right - left) * 0.02 && step <= curve.steps.at(-1) + (right - left) * 0.02)
      .map((curve) => {
        const at = nearest(curve.steps, step);
        return {curve, step: curve.steps[at], value: curve.values[at], distance: Math.abs(y(curve.values[at]) - (clientY - box.top))};
      });
    if (!found.length) return leave();
    const near = found.reduce((best, one) => (one.distance < best.distance ? one : best));
    for (const curve of curves) curve.path.classList.toggle("near", curve === near.curve);
    cursor.parentNode.append(near.curve.path);  // above all others
    const closest = found.sort((one, other) => one.distance - other.distance).slice(0, MOST_IN_TIP);
    closest.sort((one, other) => other.value - one.value);
    const lines = closest.map((one) => html("div", one === near ? "near" : "", swatch(one.curve.index), html("span", "name", one.curve.name), html("span", "", short(one.value))));
    if (found.length > closest.length) lines.push(html("div", "muted", `and ${found.length - closest.length} more`));
    tip.replaceChildren(html("b", "", `step ${near.step.toLocaleString()}`), ...lines);
    tip.hidden = false;
    const at = x(near.step);
    cursor.setAttribute("x1", at);
    cursor.setAttribute("x2", at);
    cursor.setAttribute("visibility", "visible");
    tip.style.left = at < width / 2 ? `${at + 14}px` : "";
    tip.style.right = at < width / 2 ? "" : `${width - at + 14}px`;
  }

  function leave() {
    view.tip.hidden = true;
    view.cursor.setAttribute("visibility", "hidden");
    for (const curve of view.curves) curve.path.classList.remove("near");
  }

  function names() {
    legend.replaceChildren(...drawing.series.map((series, index) => {
      const button = html("button", "", swatch(index), series.name);
      button.type = "button";
      button.addEventListener("click", () => { hidden.has(index) ? hidden.delete(index) : hidden.add(index); update(); });
      button.addEventListener("dblclick", () => { drawing.series.forEach((_, other) => hidden.add(other)); hidden.delete(index); update(); });
      return button;
    }));
  }

  function update() {
    [...legend.children].forEach((button, index) => button.setAttribute("aria-pressed", String(!hidden.has(index))));
    draw();
  }

  tagList.addEventListener("change", draw);
  smoothing.addEventListener("input", draw);
  document.getElementById("all").addEventListener("click", () => { hidden.clear(); update(); });
  document.getElementById("none").addEventListener("click", () => { drawing.series.forEach((_, index) => hidden.add(index)); update(); });
  plot.addEventListener("pointermove", (event) => point(event.clientX, event.clientY));
  plot.addEventListener("pointerdown", (event) => point(event.clientX, event.clientY));
  plot.addEventListener("pointerleave", leave);
  new ResizeObserver(() => { if (view && plot.clientWidth !== view.width) draw(); }).observe(plot);
  names();
  update();
})();
