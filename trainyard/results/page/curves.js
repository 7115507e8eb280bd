/* The learning curves: one scalar large, others small; over steps or time, each task's own or means over keys of the matrix. */

(() => {
  const drawing = JSON.parse(document.getElementById("drawing").textContent);
  const plot = document.getElementById("plot");
  if (!plot) return;
  const [tagList, across, smoothing, logX, logY, legend, charts, more] =
    ["tag", "across", "smoothing", "log-x", "log-y", "legend", "charts", "more"].map((id) => document.getElementById(id));
  const SMALL_CHARTS = 6;
  const hidden = new Set();  // names
  let groups = [], view = null, width = 0;

  drawing.tags.forEach((tag, index) => tagList.add(new Option(tag, tag, false, index === drawing.telling[0])));

  /* Keys with several values can be averaged over. */
  const averages = drawing.keys.map((key, at) => ({key, at})).filter(({at}) => new Set(drawing.series.map(({values}) => values[at])).size > 1);
  for (const average of averages) {
    const box = average.box = html("input", "");
    Object.assign(box, {type: "checkbox", id: `average-${average.key}`, checked: drawing.averaged.includes(average.key)});
    box.addEventListener("change", regroup);
    document.getElementById("averages").append(html("label", "", box, ` mean over ${average.key}`));
  }

  function regroup() {
    const over = averages.filter(({box}) => box.checked).map(({at}) => at), found = new Map();
    drawing.series.forEach((series, index) => {
      const rest = drawing.keys.flatMap((key, at) => (over.includes(at) || !series.values[at] ? [] : key === "run" || key === "task" ? [series.values[at]] : [`${key}=${series.values[at]}`]));
      const parts = [rest.join(",") || `mean over ${drawing.keys.join(", ")}`, ...(series.place ? [series.place] : [])];
      const name = over.length ? parts.join(" · ") : series.name;
      const key = over.length ? name : index;
      if (!found.has(key)) found.set(key, {name, index: found.size, members: []});
      found.get(key).members.push(series);
    });
    groups = [...found.values()];
    if (drawing.seen_first) {  // the best trials of a sweep
      hidden.clear();
      for (const {name} of groups.slice(drawing.seen_first)) hidden.add(name);
    }
    plot.classList.toggle("many", groups.length > 12);
    charts.classList.toggle("many", groups.length > 12);
    legend.replaceChildren(...groups.map(legendButton));
    update();
  }

  function legendButton(group) {
    const count = group.members.length, button = html("button", "", swatch(group.index), count > 1 ? `${group.name} (${count})` : group.name);
    button.type = "button";
    button.dataset.name = group.name;
    button.addEventListener("click", () => { legend.dataset.chosen = "yes"; hidden.has(group.name) ? hidden.delete(group.name) : hidden.add(group.name); update(); });
    button.addEventListener("dblclick", () => { for (const {name} of groups) hidden.add(name); hidden.delete(group.name); update(); });
    return button;
  }

  function member(series, tag) {
    const curve = series.curves[tag];
    if (!curve) return null;
    const [steps, values, times] = curve.map((list) => drawing.lists[list]);
    const xs = {step: () => steps, seconds: () => times.map((time) => time - times[0]), clock: () => times.map((time) => drawing.began + time)}[across.value]();
    const own = drawing.resumed ? position(times, drawing.resumed.at) : 0;  // earlier points are of the run that was resumed
    return {xs, ys: smooth(values, Number(smoothing.value)), own};
  }

  function curvesOf(tag) {
    const shown = groups.filter(({name}) => !hidden.has(name)).map(({name, index, members}) => {
      const known = members.map((series) => member(series, tag)).filter(Boolean);
      return {name, index, known, ...(known.length > 1 ? averaged(known) : known[0])};
    });
    return shown.filter(({known}) => known.length);
  }

  function options(place, height) {
    return {width: place.clientWidth, height, across: across.value, logX: logX.checked && across.value !== "clock", logY: logY.checked};
  }

  function draw() {
    width = plot.clientWidth;
    const curves = curvesOf(drawing.tags.indexOf(tagList.value)), together = tellApart(curves), remarks = [];
    view = drawChart(plot, curves, options(plot, width < 520 ? 250 : 340));
    for (const names of together.slice(0, 3)) remarks.push(`The same curve, drawn as alternating dashes: ${names.slice(0, 8).join(", ")}${names.length > 8 ? ` and ${names.length - 8} more` : ""}.`);
    if (curves.some(({spread}) => spread)) remarks.push("The band is one standard deviation to each side.");
    if (curves.some(({own}) => own > 0)) remarks.push(`Pale: written by run ${drawing.resumed.run}, which this run resumes.`);
    if (logY.checked && curves.some(({ys}) => ys.some((value) => value <= 0))) remarks.push("Values of zero and below are not seen on a logarithmic axis.");
    document.getElementById("remarks").textContent = remarks.join(" ");
  }

  function drawSmall() {
    const others = drawing.telling.filter((tag) => drawing.tags[tag] !== tagList.value);
    const shown = more.ariaPressed === "true" ? others.slice(0, SMALL_CHARTS) : others;
    more.hidden = others.length <= SMALL_CHARTS;
    more.textContent = more.ariaPressed === "true" ? `all ${others.length + 1} scalars` : "fewer scalars";
    const buttons = shown.map((tag) => {
      const button = html("button", "chart", html("span", "", drawing.tags[tag]), html("div", "plot"));
      Object.assign(button, {type: "button", title: `show ${drawing.tags[tag]} large`});
      button.addEventListener("click", () => { tagList.value = drawing.tags[tag]; update(); plot.scrollIntoView({block: "nearest"}); });
      return button;
    });
    charts.replaceChildren(...buttons);
    shown.forEach((tag, at) => {
      const curves = curvesOf(tag);
      tellApart(curves);
      drawChart(buttons[at].lastChild, curves, {...options(buttons[at].lastChild, 120), small: true});
    });
  }

  function update() {
    for (const button of legend.children) button.ariaPressed = String(!hidden.has(button.dataset.name));
    logX.disabled = across.value === "clock";
    draw();
    drawSmall();
  }

  for (const control of [tagList, across, logX, logY]) control.addEventListener("change", update);
  smoothing.addEventListener("input", update);
  more.addEventListener("click", () => { more.ariaPressed = String(more.ariaPressed !== "true"); drawSmall(); });
  document.getElementById("all").addEventListener("click", () => { hidden.clear(); update(); });
  document.getElementById("none").addEventListener("click", () => { for (const {name} of groups) hidden.add(name); update(); });
  for (const event of ["pointermove", "pointerdown"]) plot.addEventListener(event, ({clientX, clientY}) => view.point(clientX, clientY));
  plot.addEventListener("pointerleave", () => view.leave());
  new ResizeObserver(() => { if (plot.clientWidth !== width) update(); }).observe(plot);
  regroup();
})();
