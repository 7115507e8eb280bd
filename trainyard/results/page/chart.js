/* One chart: axes, curves with their bands, and the values under the pointer. Also the arithmetic that charts need. */

const MARGIN = {left: 54, right: 14, top: 10, bottom: 30};
const DASHES = ["", "7 3", "2 3", "8 3 2 3"];
const MOST_IN_TIP = 12;
const NICE_SECONDS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400];

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

/* As in TensorBoard: an exponential mean, corrected so that its beginning is not pulled towards zero. */
function smooth(values, weight) {
  let mean = 0, known = 0;
  return values.map((value) => {
    mean = mean * weight + (1 - weight) * value;
    known = known * weight + (1 - weight);
    return mean / known;
  });
}

/* The index of the first number of an ascending list that is not below `wanted`; the list's length for none. */
function position(numbers, wanted) {
  let low = 0, high = numbers.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (numbers[middle] < wanted) low = middle + 1; else high = middle;
  }
  return low;
}

function nearest(numbers, wanted) {
  const at = Math.min(position(numbers, wanted), numbers.length - 1);
  return at > 0 && wanted - numbers[at - 1] < numbers[at] - wanted ? at - 1 : at;
}

function between({xs, ys}, x) {
  const at = position(xs, x);
  if (xs[at] === x || at === 0) return ys[at];
  return ys[at - 1] + (ys[at] - ys[at - 1]) * (x - xs[at - 1]) / (xs[at] - xs[at - 1]);
}

/* The mean and standard deviation of several curves; at each x, those of the curves that reach x. */
function averaged(curves, most = 400) {
  const all = [...new Set(curves.flatMap((curve) => curve.xs))].sort((one, other) => one - other);
  const every = Math.ceil(all.length / most);
  const xs = all.filter((_, at) => at % every === 0 || at === all.length - 1);
  const mean = {xs, ys: [], spread: [], count: []};
  for (const x of xs) {
    const values = curves.filter((curve) => x >= curve.xs[0] && x <= curve.xs.at(-1)).map((curve) => between(curve, x));
    const middle = values.reduce((sum, value) => sum + value, 0) / values.length;
    const squares = values.reduce((sum, value) => sum + (value - middle) ** 2, 0);
    mean.ys.push(middle);
    mean.spread.push(values.length > 1 ? Math.sqrt(squares / (values.length - 1)) : 0);
    mean.count.push(values.length);
  }
  return mean;
}

function short(value) {
  const size = Math.abs(value);
  if (size >= 1e15 || (size > 0 && size < 1e-3)) return value.toExponential(1);
  for (const [unit, name] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e4, "k"]]) {
    if (size >= unit) return `${+(value / (unit === 1e4 ? 1e3 : unit)).toPrecision(3)}${name}`;
  }
  return String(+value.toPrecision(4));
}

function duration(seconds) {
  const whole = Math.round(seconds), two = (value) => String(value).padStart(2, "0");
  if (seconds < 60) return `${+seconds.toFixed(1)} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)}:${two(whole % 60)} min`;
  return `${Math.floor(whole / 3600)}:${two(Math.floor(whole / 60) % 60)} h`;
}

const AXES = {
  step: {title: "step", short, long: (value) => `step ${value.toLocaleString()}`},
  seconds: {title: "since its start", short: duration, long: duration},
  clock: {
    title: "wall time",
    short: (value) => new Date(value * 1000).toLocaleTimeString(undefined, {hour: "2-digit", minute: "2-digit"}),
    long: (value) => new Date(value * 1000).toLocaleString(undefined, {dateStyle: "medium", timeStyle: "medium"}),
  },
};

function ticks(low, high, wanted, isTime) {
  const rough = (high - low) / wanted, power = 10 ** Math.floor(Math.log10(rough));
  const nice = isTime && rough > 1 ? NICE_SECONDS : [1, 2, 5, 10].map((factor) => factor * power);
  const step = nice.find((candidate) => candidate >= rough) ?? Math.ceil(rough / 86400) * 86400;
  const found = [];
  for (let index = Math.ceil(low / step); index * step <= high * (1 + 1e-9) + 1e-12; index++) found.push(index * step);
  return found;
}

function logarithmicTicks(low, high, wanted) {
  const found = [], first = Math.floor(Math.log10(low)), last = Math.ceil(Math.log10(high));
  const factors = last - first > 2 ? [1] : [1, 2, 5], every = Math.ceil((last - first) * factors.length / (2 * wanted));
  for (let power = first; power <= last; power += every) found.push(...factors.map((factor) => factor * 10 ** power));
  return found.filter((value) => value >= low && value <= high);
}

/* Returns a function from values to pixels, whose `value` leads back. A logarithmic scale shows only values above zero. */
function scale(lists, {from, to, log = false, padding = 0, isTime = false}) {
  let low = Infinity, high = -Infinity;
  for (const list of lists) for (const value of list) if (!log || value > 0) { if (value < low) low = value; if (value > high) high = value; }
  if (low > high) [low, high] = log ? [1, 10] : [0, 1];
  const bend = log ? Math.log10 : (value) => value, unbend = log ? (value) => 10 ** value : bend;
  let first = bend(low), last = bend(high);
  const room = first === last ? (log ? 0.5 : 1) : (last - first) * padding;
  [first, last] = [first - room, last + room];
  const place = (value) => from + (bend(value) - first) / (last - first) * (to - from);
  place.value = (pixel) => unbend(first + (pixel - from) / (to - from) * (last - first));
  place.shows = (value) => !log || value > 0;
  place.ticks = (wanted) => {
    const found = log ? logarithmicTicks(unbend(first), unbend(last), wanted) : [];
    return found.length > 1 ? found : ticks(unbend(first), unbend(last), wanted, isTime);
  };
  return place;
}

/* Equal curves would hide each other, so they get dashes that alternate. Returns the names of each group of equal curves. */
function tellApart(curves) {
  const same = new Map();
  for (const curve of curves) {
    const key = `${curve.xs.join()};${curve.ys.join()}`;
    same.set(key, [...(same.get(key) ?? []), curve]);
  }
  const groups = [...same.values()].filter((group) => group.length > 1);
  for (const group of groups) {
    group.forEach((curve, at) => { curve.dashes = {"stroke-dasharray": `9 ${9 * (group.length - 1)}`, "stroke-dashoffset": -9 * at}; });
  }
  return groups.map((group) => group.map((curve) => curve.name));
}

function drawCurve(curve, x, y) {
  const points = curve.xs.map((value, at) => [value, curve.ys[at], at]).filter(([one, other]) => x.shows(one) && y.shows(other));
  const line = (list) => list.map(([one, other]) => `${x(one).toFixed(1)} ${y(other).toFixed(1)}`).join("L");
  const style = {...stroke(curve.index), ...curve.dashes};
  const own = points.filter(([, , at]) => at >= (curve.own ?? 0)), before = points.filter(([, , at]) => at <= curve.own);
  const path = own.length === 1 && before.length < 2
    ? svg("circle", {class: "curve", cx: x(own[0][0]), cy: y(own[0][1]), r: 3, ...style})
    : svg("path", {class: "curve", d: own.length ? `M${line(own)}` : "", ...style});
  if (curve.own) return [svg("path", {class: "curve before", d: `M${line(before)}`, ...style}), path];
  if (!curve.spread || !points.length) return [path];
  const edge = (sign) => points.map(([one, other, at]) => [one, other + sign * curve.spread[at]]).map(([one, other]) => [one, y.shows(other) ? other : y.value(y.bottom)]);
  return [svg("path", {class: "band", d: `M${line(edge(1))}L${line(edge(-1).reverse())}Z`, fill: style.stroke}), path];
}

/* Draw curves ({index, name, xs, ys, spread, count, own}) into an element. Returns {point, leave}, which show and hide the values under the pointer. */
function drawChart(plot, curves, {width, height, across, logX = false, logY = false, small = false}) {
  const axis = AXES[across], margin = small ? {left: 40, right: 6, top: 6, bottom: 18} : MARGIN;
  const bottom = height - margin.bottom, right = width - margin.right;
  const x = scale(curves.map((curve) => curve.xs), {from: margin.left, to: right, log: logX, isTime: across !== "step"});
  const edges = curves.flatMap(({ys, spread}) => (spread ? [ys.map((value, at) => value - spread[at]), ys.map((value, at) => value + spread[at])] : [ys]));
  const y = scale(logY ? curves.map((curve) => curve.ys) : edges, {from: bottom, to: margin.top, log: logY, padding: 0.05});
  y.bottom = bottom;
  const picture = svg("svg", {viewBox: `0 0 ${width} ${height}`, height});
  for (const value of y.ticks(small ? 3 : 5)) {
    picture.append(svg("line", {class: "grid", x1: margin.left, x2: right, y1: y(value), y2: y(value)}));
    picture.append(svg("text", {x: margin.left - 6, y: y(value) + 4, "text-anchor": "end"}, short(value)));
  }
  for (const value of x.ticks(Math.max(2, Math.floor(width / 130)))) {
    picture.append(svg("text", {x: x(value), y: bottom + 15, "text-anchor": "middle"}, axis.short(value)));
  }
  if (!small) picture.append(svg("text", {x: right, y: height - 1, "text-anchor": "end"}, axis.title));
  for (const curve of curves) {
    const drawn = drawCurve(curve, x, y);
    curve.path = drawn.at(-1);
    picture.append(...drawn);
  }
  plot.replaceChildren(picture);
  return small ? null : pointer(plot, picture, curves, {x, y, axis, width, bottom});
}

function pointer(plot, picture, curves, {x, y, axis, width, bottom}) {
  const cursor = svg("line", {class: "cursor", y1: MARGIN.top, y2: bottom, visibility: "hidden"});
  const tip = html("div", "tip");
  tip.hidden = true;
  picture.append(cursor);
  plot.append(tip);

  function leave() {
    tip.hidden = true;
    cursor.setAttribute("visibility", "hidden");
    for (const curve of curves) curve.path.classList.remove("near");
  }

  function point(clientX, clientY) {
    const box = plot.getBoundingClientRect(), pixel = Math.min(width - MARGIN.right, Math.max(MARGIN.left, clientX - box.left));
    const wanted = x.value(pixel), slack = 0.02 * (width - MARGIN.left);
    const found = curves.filter(({xs}) => pixel >= x(xs[0]) - slack && pixel <= x(xs.at(-1)) + slack).map((curve) => {
      const at = nearest(curve.xs, wanted);
      return {curve, at, value: curve.ys[at], distance: Math.abs(y(curve.ys[at]) - (clientY - box.top))};
    });
    if (!found.length) return leave();
    const near = found.reduce((best, one) => (one.distance < best.distance ? one : best));
    for (const curve of curves) curve.path.classList.toggle("near", curve === near.curve);
    picture.append(near.curve.path);  // above all others
    const closest = found.sort((one, other) => one.distance - other.distance).slice(0, MOST_IN_TIP);
    closest.sort((one, other) => other.value - one.value);
    const lines = closest.map((one) => html("div", one === near ? "near" : "", swatch(one.curve.index), html("span", "name", one.curve.name), html("span", "", valueText(one))));
    if (found.length > closest.length) lines.push(html("div", "muted", `and ${found.length - closest.length} more`));
    tip.replaceChildren(html("b", "", axis.long(near.curve.xs[near.at])), ...lines);
    tip.hidden = false;
    const left = x(near.curve.xs[near.at]);
    cursor.setAttribute("x1", left);
    cursor.setAttribute("x2", left);
    cursor.setAttribute("visibility", "visible");
    tip.style.left = left < width / 2 ? `${left + 14}px` : "";
    tip.style.right = left < width / 2 ? "" : `${width - left + 14}px`;
  }

  return {point, leave};
}

function valueText({curve, at, value}) {
  return curve.spread ? `${short(value)} ± ${short(curve.spread[at])} (${curve.count[at]})` : short(value);
}
