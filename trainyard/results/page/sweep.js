/* A sweep: each trial as a line over its parameters up to its value, and the values over trials. */

(() => {
  const place = document.getElementById("parallel");
  if (!place) return;
  const [history, line, logValue, clear, ranges, count] = ["history", "trial-line", "log-value", "clear", "ranges", "trial-count"].map((id) => document.getElementById(id));
  const sweep = JSON.parse(document.getElementById("sweep-drawing").textContent);
  const TOP = 30, HEIGHT = 340, LOW = HEIGHT - 34, UNSET = HEIGHT - 14, NARROWEST = 96, SIDE = 56, REACH = 12;
  const HINT = "Drag along an axis to keep only the trials that cross it there.";
  const trials = sweep.trials.map(([number, state, value, values]) => ({number, state, value, values: [...values, value]}));
  const axes = [...sweep.axes, {name: sweep.metric, isValue: true}];
  const rows = new Map([...document.querySelectorAll("#trial-table tbody")].map((body) => [Number(body.dataset.trial), body.rows[0]]));
  const known = trials.filter(({value}) => value !== null);
  const marks = new Map(trials.map(({number}) => [number, []]));  // the elements drawn for each trial
  let brushed = {}, width = 0, near;

  /* The best trials are drawn last, in warm colours. Ranks give the colours: by value, one diverging trial would make all others look alike. */
  const better = (one, other) => (sweep.mode === "min" ? other.value - one.value : one.value - other.value);
  const ranked = [...known].sort(better);
  ranked.forEach((trial, at) => { trial.colour = `color-mix(in oklab, var(--c1) ${Math.round(100 * (at + 1) / ranked.length)}%, var(--c0))`; });
  const inOrder = [...trials.filter(({value}) => value === null), ...ranked];
  const finished = known.filter(({state}) => state === "complete");
  place.classList.toggle("many", trials.length > 150);
  logValue.parentElement.hidden = !known.length || known.some(({value}) => value <= 0);

  const cut = (text, pixels) => (text.length * 6.6 > pixels ? `${text.slice(0, Math.max(2, Math.floor(pixels / 6.6) - 1))}…` : text);
  const shown = (axis, value) => (value === null ? "–" : axis.labels ? axis.labels[value] : short(value));

  function measure(axis, at, all) {
    const values = trials.map(({values}) => values[at]).filter((value) => value !== null), numbers = axis.labels ? [0, axis.labels.length - 1] : [...(axis.ends ?? []), ...values];
    axis.x = SIDE + (all - 2 * SIDE) * (axes.length > 1 ? at / (axes.length - 1) : 0.5);
    axis.room = axes.length > 1 ? (all - 2 * SIDE) / (axes.length - 1) : all;
    const place = scale([numbers], {from: LOW, to: TOP + 8, log: axis.isValue ? logValue.checked : axis.log, padding: axis.labels ? 0.06 : 0.02});
    axis.y = (value) => (value === null ? UNSET : place(value));
    axis.ticks = axis.labels ? axis.labels.map((_, at) => at).filter((at) => at % Math.ceil(axis.labels.length / 14) === 0) : place.ticks(5);
    axis.lacks = trials.some(({values}) => values[at] === null);
  }

  function drawAxis(axis, at) {
    const anchor = at === axes.length - 1 ? "end" : "start", x = axis.x + (at === axes.length - 1 ? -6 : 6);
    const title = svg("text", {class: "name", x: axis.x, y: 14, "text-anchor": "middle"}, cut(axis.name, axis.room - 8));
    title.append(svg("title", {}, axis.name));
    const ticks = axis.ticks.map((value) => svg("text", {x, y: axis.y(value) + 4, "text-anchor": anchor}, cut(axis.labels ? axis.labels[value] : short(value), axis.room - 14)));
    if (axis.lacks) ticks.push(svg("text", {x, y: UNSET + 4, "text-anchor": anchor}, axis.isValue ? "no value" : "not set"));
    const [low, high] = brushed[axis.name] ?? [0, 0];
    return [svg("line", {class: "axis-line", x1: axis.x, x2: axis.x, y1: TOP, y2: LOW}), title, ...ticks, svg("rect", {class: "brush", x: axis.x - 7, width: 14, y: low, height: high - low})];
  }

  function draw() {
    const all = Math.max(place.clientWidth, 2 * SIDE + NARROWEST * (axes.length - 1)), picture = svg("svg", {viewBox: `0 0 ${all} ${HEIGHT}`, width: all, height: HEIGHT});
    width = place.clientWidth;
    for (const own of marks.values()) own.length = 0;
    axes.forEach((axis, at) => measure(axis, at, all));
    for (const trial of inOrder) {
      const points = axes.map((axis, at) => `${axis.x.toFixed(1)} ${axis.y(trial.values[at]).toFixed(1)}`);
      const path = svg("path", {class: trial.colour ? "trial" : "trial none", d: `M${points.join("L")}`, stroke: trial.colour ?? "var(--quiet)"});
      marks.get(trial.number).push(path);
      picture.append(path);
    }
    axes.forEach((axis, at) => picture.append(...drawAxis(axis, at)));
    place.replaceChildren(picture);
    drawHistory();
    filter();
  }

  function drawHistory() {
    const across = history.clientWidth, bottom = 212, picture = svg("svg", {viewBox: `0 0 ${across} 240`, height: 240});
    const x = scale([trials.map(({number}) => number)], {from: 46, to: across - 10, padding: 0.02});
    const y = scale([known.map(({value}) => value)], {from: bottom, to: 8, log: logValue.checked, padding: 0.05});
    for (const value of known.length ? y.ticks(4) : []) picture.append(svg("line", {class: "grid", x1: 46, x2: across - 10, y1: y(value), y2: y(value)}), svg("text", {x: 40, y: y(value) + 4, "text-anchor": "end"}, short(value)));
    for (const value of x.ticks(5).filter((value) => Number.isInteger(value) && value >= 0)) picture.append(svg("text", {x: x(value), y: bottom + 16, "text-anchor": "middle"}, String(value)));
    for (const trial of inOrder) {
      const isDone = trial.state === "complete", paint = trial.colour ?? "var(--quiet)";
      const dot = svg("circle", {cx: x(trial.number), cy: trial.value === null ? bottom : y(trial.value), r: trial.value === null ? 2 : 3.5, fill: isDone ? paint : "none", stroke: paint});
      marks.get(trial.number).push(dot);
      picture.append(dot);
    }
    let best = null, d = "";
    for (const trial of finished) {
      if (best && better(trial, best) <= 0) continue;
      d += best ? `H${x(trial.number).toFixed(1)}V${y(trial.value).toFixed(1)}` : `M${x(trial.number).toFixed(1)} ${y(trial.value).toFixed(1)}`;
      best = trial;
    }
    if (best) picture.append(svg("path", {class: "curve", d: `${d}H${across - 10}`, stroke: "var(--accent)"}));
    history.replaceChildren(picture);
    history.x = x;
    history.y = (trial) => (trial.value === null ? bottom : y(trial.value));
  }

  function highlight(trial) {
    if (trial === near) return;
    for (const [one, on] of [[near, false], [trial, true]]) {
      for (const mark of one ? marks.get(one.number) : []) mark.classList.toggle("near", on);
      if (one) rows.get(one.number)?.classList.toggle("near", on);
    }
    near = trial;
    const parts = trial ? axes.slice(0, -1).map((axis, at) => `${axis.name} = ${shown(axis, trial.values[at])}`) : [];
    line.replaceChildren(...(trial ? [html("b", "", `Trial ${trial.number}`), ` ${trial.state}, ${sweep.metric} ${shown({}, trial.value)}: ${parts.join(", ")}`] : [HINT]));
  }

  /* Keep the trials that cross every brushed axis within its range. */
  function filter() {
    const kept = axes.flatMap((axis, at) => (brushed[axis.name] ? [[axis, at, ...brushed[axis.name]]] : []));
    for (const trial of trials) {
      trial.isOut = kept.some(([axis, at, low, high]) => axis.y(trial.values[at]) < low || axis.y(trial.values[at]) > high);
      for (const mark of marks.get(trial.number)) mark.classList.toggle("out", trial.isOut);
      const row = rows.get(trial.number);
      if (row) row.parentElement.hidden = trial.isOut;
    }
    const inside = trials.filter(({isOut}) => !isOut).length;
    count.textContent = inside < trials.length ? `${inside.toLocaleString()} of ${trials.length.toLocaleString()}` : trials.length.toLocaleString();
    clear.disabled = !kept.length;
    ranges.value = kept.length ? JSON.stringify(brushed) : "";
  }

  function at(event) {
    const box = place.firstChild.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  }

  function nearestTrial([x, y]) {
    const right = axes.findIndex((axis) => axis.x >= x), two = right < 0 ? axes.length - 1 : Math.max(1, right), one = two - 1;
    if (axes.length < 2) return null;
    const part = Math.min(1, Math.max(0, (x - axes[one].x) / (axes[two].x - axes[one].x)));
    const distance = ({values}) => Math.abs(axes[one].y(values[one]) * (1 - part) + axes[two].y(values[two]) * part - y);
    return closest(distance, 24);
  }

  function closest(distance, reach) {
    let found = null, least = reach;
    for (const trial of inOrder) if (!trial.isOut && distance(trial) <= least) { found = trial; least = distance(trial); }
    return found;
  }

  place.addEventListener("pointermove", (event) => { if (!event.buttons) highlight(nearestTrial(at(event))); });
  place.addEventListener("pointerdown", (event) => {
    const [x, from] = at(event), axis = axes.find((one) => Math.abs(one.x - x) <= REACH);
    if (!axis || event.pointerType === "touch") return highlight(nearestTrial([x, from]));
    event.preventDefault();
    place.setPointerCapture(event.pointerId);
    const rectangle = place.querySelectorAll(".brush")[axes.indexOf(axis)];
    const move = (moved) => {
      const [low, high] = [from, at(moved)[1]].sort((one, other) => one - other);
      brushed[axis.name] = [low, high];
      rectangle.setAttribute("y", low);
      rectangle.setAttribute("height", high - low);
      filter();
    };
    place.addEventListener("pointermove", move);
    place.addEventListener("pointerup", (up) => {
      place.removeEventListener("pointermove", move);
      if (Math.abs(at(up)[1] - from) < 4) { delete brushed[axis.name]; draw(); }
    }, {once: true});
  });
  place.addEventListener("pointerleave", () => highlight(null));
  history.addEventListener("pointermove", (event) => {
    const box = history.getBoundingClientRect(), [x, y] = [event.clientX - box.left, event.clientY - box.top];
    highlight(closest((trial) => Math.hypot(history.x(trial.number) - x, history.y(trial) - y), 40));
  });
  history.addEventListener("pointerleave", () => highlight(null));
  const byNumber = new Map(trials.map((trial) => [trial.number, trial]));
  for (const [number, row] of rows) row.addEventListener("pointerenter", () => highlight(byNumber.get(number)));
  document.getElementById("trial-table").addEventListener("pointerleave", () => highlight(null));
  clear.addEventListener("click", () => { brushed = {}; draw(); });
  ranges.addEventListener("change", () => { brushed = JSON.parse(ranges.value || "{}"); draw(); });
  logValue.addEventListener("change", () => { brushed = {}; draw(); });
  new ResizeObserver(() => { if (place.clientWidth !== width) draw(); }).observe(place);
  draw();
  highlight(null);
})();
