/* The ends of the logs: one is shown, all are searched. */

(() => {
  const logs = JSON.parse(document.getElementById("log-tails")?.textContent ?? "[]");
  const [list, search, hits, lines, found, whole] = ["log", "search", "hits", "lines", "found", "whole"].map((id) => document.getElementById(id));
  if (!list) return;
  const MOST_HITS = 300, MOST_MARKS = 2000;

  logs.forEach((log) => list.add(new Option(log.kind === "succeeded" ? log.name : `${log.name} (${log.kind})`, log.link)));

  /* A text with every occurrence of `wanted` marked, at most `most`. */
  function marked(text, wanted, most) {
    const parts = [], plain = text.toLowerCase();
    let from = 0;
    for (let at = wanted ? plain.indexOf(wanted) : -1; at >= 0 && parts.length < 2 * most; at = plain.indexOf(wanted, from)) {
      parts.push(text.slice(from, at), html("mark", "", text.slice(at, at + wanted.length)));
      from = at + wanted.length;
    }
    return [...parts, text.slice(from)];
  }

  function show() {
    const log = logs.find(({link}) => link === list.value);
    const before = log.left_out ? [html("span", "muted", `… ${log.left_out.toLocaleString()} bytes before this are in the whole log\n`)] : [];
    lines.replaceChildren(...before, ...marked(log.text, search.value.toLowerCase(), MOST_MARKS));
    whole.href = log.link;
  }

  function hit(log, line, wanted, number) {
    const button = html("button", "", html("span", "muted", `${log.name}  `), ...marked(line.slice(0, 400), wanted, 20));
    button.type = "button";
    button.addEventListener("click", () => {
      list.value = log.link;
      show();
      const mark = lines.querySelectorAll("mark")[number];
      if (mark) lines.scrollTop += mark.getBoundingClientRect().top - lines.getBoundingClientRect().top - lines.clientHeight / 3;
      lines.scrollIntoView({block: "nearest"});
    });
    return button;
  }

  function find() {
    const wanted = search.value.toLowerCase(), shown = [];
    let count = 0, inLogs = 0;
    for (const log of wanted ? logs : []) {
      let number = 0;  // occurrences so far
      for (const line of log.text.toLowerCase().includes(wanted) ? log.text.split("\n") : []) {
        const occurrences = line.toLowerCase().split(wanted).length - 1;
        if (occurrences && shown.length < MOST_HITS) shown.push(hit(log, line, wanted, number));
        count += occurrences > 0;
        number += occurrences;
      }
      inLogs += number > 0;
    }
    hits.replaceChildren(...shown);
    hits.hidden = !shown.length;
    const rest = count > shown.length ? `, the first ${shown.length} are shown` : "";
    found.textContent = wanted ? `${count.toLocaleString()} line${count === 1 ? "" : "s"} in ${inLogs} log${inLogs === 1 ? "" : "s"}${rest}` : "";
    show();
  }

  search.addEventListener("input", find);
  list.addEventListener("change", show);
  show();
})();
