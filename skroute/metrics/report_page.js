
"use strict";
(function () {
  const data = JSON.parse(document.getElementById("data").textContent);
  const by = (id) => document.getElementById(id);
  const percent = Math.round(100 * data.confidence * 10) / 10;

  // Texts ------------------------------------------------------------------------------------
  function number(value, digits) {
    if (value === null || value === undefined) return "–";
    if (value === 0) return "0";
    const size = Math.abs(value);
    if (size >= 1e6 || size < 1e-4) return value.toExponential(2).replace("-", "−");
    const places = Math.max(0, (digits || 4) - 1 - Math.floor(Math.log10(size)));
    return String(parseFloat(value.toFixed(Math.min(places, 7)))).replace("-", "−");
  }
  const quality = (value) => (value !== null && Math.abs(value) < 10
    ? (Math.abs(value) < 5e-5 ? 0 : value).toFixed(4).replace("-", "−") : number(value, 5));
  const money = (value) => number(value) + (data.unit ? " " + data.unit : "");
  const budgetText = (value) => (value === null ? "unlimited" : money(value));
  function between(found, text) {
    return found[1] === null ? "" : text(found[1]) + " to " + text(found[2]);
  }
  function element(name, text, attributes) {
    const made = document.createElement(name);
    if (text !== undefined && text !== null) made.textContent = text;
    for (const key in attributes || {}) made.setAttribute(key, attributes[key]);
    return made;
  }
  const figure = (text) => element("td", text, { class: "figure" });
  function row(cells, heads) {
    const made = element("tr");
    cells.forEach((cell, k) => {
      const td = cell instanceof Node ? cell : element("td", cell);
      if (heads && heads[k] && (k || heads[k] === "Row")) td.setAttribute("data-head", heads[k]);
      made.append(td);
    });
    return made;
  }
  function headings(id, heads) {
    const made = element("tr");
    heads.forEach((head) => made.append(element("th", head, { scope: "col" })));
    by(id).replaceChildren(made);
  }

  // What does not depend on the budget ----------------------------------------------------------
  const last = data.budgets.length - 1;
  by("about").textContent = data.nRows.toLocaleString("en") + " rows that nothing was learned from. "
    + "Intervals: " + percent + " %, from resampled rows."
    + (data.unit ? " Costs in " + data.unit + "." : "");
  by("first").textContent = number(data.budgets[0], 3);
  by("last").textContent = data.budgets[last] === null ? "unlimited" : number(data.budgets[last], 3);
  by("meaning").textContent = "Random mix: rows given to the two best single choices by a coin that "
    + "spends as much. Oracle: the best assignment of these rows for as much, known in hindsight. "
    + "Best single: one choice for all rows whose cost is within what is spent.";
  by("chart-text").textContent = data.qualityLabel + " over what is spent. The band is the interval "
    + "of the router; grey points are single choices; the vertical line stands at the slider.";

  if (data.certificate) {
    by("certificate").hidden = false;
    by("sentence").textContent = data.certificate.sentence;
  }
  if (data.overAll) {
    const heads = ["", "Router", "Random mix", "Best single", "Oracle", "Router − random mix"];
    headings("all-heads", heads);
    by("all-text").textContent = "From the cheapest single choice to the best one. The gap is the "
      + "quality between these two; costs to recover are a share of the way between their costs.";
    data.overAll.forEach((metric) => {
      const cells = metric.cells.map((found) => {
        const td = figure(found[0] === null ? "not reached" : quality(found[0]));
        if (found[1] !== null) td.append(element("small", between(found, quality)));
        return td;
      });
      by("all").append(row([element("th", metric.name, { scope: "row" }), ...cells], heads));
    });
  } else {
    by("all-text").textContent = "The best single choice is also the cheapest: there is no gap "
      + "between the two to recover, and a budget beyond it buys little.";
  }

  // The example rows ------------------------------------------------------------------------------
  const examples = data.examples;
  const explained = examples.rows.length > 0 && examples.rows[0].estimates !== undefined;
  const rowHeads = ["Row", ...examples.heads, "Choice", "Cost", "Came out", ...(explained ? ["Why"] : [])];
  if (examples.rows.length) {
    headings("rows-heads", rowHeads);
    by("rows-text").textContent = "Examples, from rows that money is spent on first to rows that get "
      + "it last." + (explained && examples.price
        ? " A choice is worth its estimated quality less the price of the budget times its cost; "
          + "the one that is worth most is made." : "");
  } else by("rows-card").hidden = true;

  function why(example, k) {
    const made = example.route[k], price = examples.price ? examples.price[k] : undefined;
    const own = data.choices[made] + ": estimated " + quality(example.estimates[made]) + " for "
      + money(example.planned[made]);
    if (price === undefined) return own + ". Rows are decided together, within the budget.";
    if (price === null) return own + ". The budget pays for the cheapest only.";
    let other = -1, best = -Infinity;
    data.choices.forEach((name, j) => {
      const worth = example.estimates[j] - price * example.planned[j];
      if (j !== made && worth > best) { best = worth; other = j; }
    });
    if (other < 0) return own + ".";
    const more = example.estimates[made] - price * example.planned[made] - best;
    return own + "; next best " + data.choices[other] + ": " + quality(example.estimates[other])
      + " for " + money(example.planned[other]) + ". At the price of " + number(price, 3)
      + " it is worth " + quality(Math.abs(more)) + (more >= -1e-9 ? " more." : " less: a tie, shared out.");
  }

  // The chart --------------------------------------------------------------------------------------
  const names = ["router", "random mix", "best single", "oracle"];
  const lines = [];
  data.budgets.forEach((budget, k) => {
    lines.push({ x: data.cost[k][0], y: data.quality[k][0], name: "router", k: k });
  });
  data.drawn.x.forEach((x, k) => {
    ["random mix", "oracle"].forEach((name) => {
      if (data.drawn[name][k] !== null) lines.push({ x: x, y: data.drawn[name][k], name: name, k: k });
    });
  });
  // The best single choice within what is spent: a staircase with its corners where they are.
  const spends = data.cost.map((found) => found[0]);
  const least = Math.min(...spends), most = Math.max(...spends);
  let best = null;
  [...data.singles].sort((a, b) => a.cost - b.cost || b.quality - a.quality).forEach((one) => {
    if (one.cost > most || (best !== null && one.quality <= best)) return;
    best = one.quality;
    lines.push({ x: Math.max(one.cost, least), y: best, name: "best single", k: 0 });
  });
  if (best !== null) lines.push({ x: most, y: best, name: "best single", k: 1 });
  lines.sort((a, b) => a.x - b.x || a.y - b.y || a.k - b.k);
  const band = data.budgets.map((budget, k) => ({ x: data.cost[k][0], low: data.quality[k][1], high: data.quality[k][2] }))
    .filter((one) => one.low !== null).sort((a, b) => a.x - b.x);

  function spec(dark) {
    const ink = dark ? "#e8ecf1" : "#17202a", soft = dark ? "#a3afbd" : "#566573", grid = dark ? "#303945" : "#e4e8ec";
    const colors = dark ? ["#6db6f2", "#f0b45c", "#c3cad3", "#6fcf97"] : ["#0b62a8", "#b3610a", "#6b7683", "#1d7a46"];
    const x = { field: "x", type: "quantitative", title: "Mean cost per row" + (data.unit ? " (" + data.unit + ")" : ""), scale: { zero: false, nice: false, padding: 12 } };
    const y = (field) => ({ field: field, type: "quantitative", title: data.qualityLabel, scale: { zero: false } });
    return {
      width: "container", height: 320, background: null,
      autosize: { type: "fit", contains: "padding", resize: true },
      layer: [
        { data: { values: band }, mark: { type: "area", opacity: 0.18, color: colors[0] }, encoding: { x: x, y: y("low"), y2: { field: "high" } } },
        { data: { values: lines }, mark: { type: "line", strokeWidth: 2.25 },
          transform: [{ filter: "datum.name != 'best single'" }],
          encoding: { x: x, y: y("y"), order: { field: "x", type: "quantitative" },
            color: { field: "name", type: "nominal", scale: { domain: names, range: colors }, legend: { title: null, orient: "top", columns: 2, symbolSize: 250, symbolStrokeWidth: 2.5 } },
            strokeDash: { field: "name", type: "nominal", scale: { domain: names, range: [[1, 0], [6, 4], [2, 3], [10, 3, 2, 3]] }, legend: { title: null, orient: "top", columns: 2, symbolSize: 250, symbolStrokeWidth: 2.5 } } } },
        { data: { values: lines }, mark: { type: "line", interpolate: "step-after", strokeWidth: 1.75 },
          transform: [{ filter: "datum.name == 'best single'" }],
          encoding: { x: x, y: y("y"), color: { field: "name", type: "nominal" }, strokeDash: { field: "name", type: "nominal" } } },
        { data: { values: data.singles.filter((one) => one.cost >= band0 && one.cost <= band1) },
          mark: { type: "point", filled: true, size: 55, color: soft },
          encoding: { x: { ...x, field: "cost" }, y: y("quality"), tooltip: [{ field: "name", title: "single choice" }, { field: "cost", format: ".4~g" }, { field: "quality", format: ".4f" }] } },
        { data: { values: data.singles.filter((one) => one.cost >= band0 && one.cost <= band1) },
          mark: { type: "text", align: "left", dx: 7, dy: 12, fontSize: 12, color: soft, limit: 140 },
          encoding: { x: { ...x, field: "cost" }, y: y("quality"), text: { field: "short" } } },
        { data: { name: "now", values: [at()] }, mark: { type: "rule", color: ink, strokeDash: [3, 3] }, encoding: { x: x } },
        { data: { name: "now2", values: [at()] }, mark: { type: "point", filled: true, size: 110, color: colors[0], stroke: ink, strokeWidth: 1.5 }, encoding: { x: x, y: y("y") } },
      ],
      config: { font: "system-ui, sans-serif", view: { stroke: null }, axis: { labelColor: soft, titleColor: soft, gridColor: grid, domainColor: soft, tickColor: soft, labelFontSize: 12, titleFontSize: 12, titleFontWeight: "normal", labelOverlap: true, tickCount: 6 }, legend: { labelColor: ink, labelFontSize: 13 } },
    };
  }
  const widest = most - least, band0 = least - 0.05 * widest, band1 = most + 0.35 * widest;
  data.singles.forEach((one) => { one.short = one.name.length > 22 ? one.name.slice(0, 21) + "…" : one.name; });

  let view = null;
  const slider = by("budget");
  function at() {
    const k = Number(slider.value);
    return { x: data.cost[k][0], y: data.quality[k][0] };
  }
  function draw() {
    const dark = document.documentElement.dataset.theme === "dark";
    vegaEmbed(by("chart"), spec(dark), { actions: false, renderer: "svg", ast: true, tooltip: { theme: dark ? "dark" : "light", disableDefaultStyle: false } })
      .then((result) => { view = result.view; mark(); document.documentElement.dataset.drawn = dark ? "dark" : "light"; });
  }
  function mark() {
    if (!view) return;
    view.data("now", [at()]).data("now2", [at()]).runAsync();
  }

  // What the slider moves ---------------------------------------------------------------------------
  slider.max = String(last);
  slider.value = String(data.start);
  const bars = data.choices.map((name) => {
    const share = element("td"), track = element("span", null, { class: "track", "aria-hidden": "true" }), fill = element("span", null, { class: "fill" });
    track.append(fill);
    const cell = element("td", null, { class: "share" });
    cell.append(track);
    const tr = element("tr");
    tr.append(element("th", name, { scope: "row" }), share, cell);
    by("shares").append(tr);
    return { share: share, fill: fill };
  });

  function show() {
    const k = Number(slider.value), text = budgetText(data.budgets[k]);
    by("budget-text").textContent = text;
    slider.setAttribute("aria-valuetext", text);
    const items = [
      ["quality", data.qualityLabel, quality(data.quality[k][0]), between(data.quality[k], quality), true],
      ["cost", "Spent per row", number(data.cost[k][0]), between(data.cost[k], number) + (data.unit ? " " + data.unit : ""), true],
      ["gain", "Above the random mix", (data.gain[k][0] > 0 ? "+" : "") + quality(data.gain[k][0]), between(data.gain[k], quality), true],
      ["random", "Random mix", quality(data.random[k]), "", false],
      ["single", "Best single", quality(data.single[k]), "", false],
      ["oracle", "Oracle", quality(data.oracle[k]), "", false],
    ];
    by("numbers").replaceChildren(...items.map((item) => {
      const box = element("div", null, item[4] ? { class: "main" } : {});
      const dd = element("dd", null, { id: "number-" + item[0] });
      dd.append(element("span", item[2]));
      if (item[3]) dd.append(element("small", item[3]));
      box.append(element("dt", item[1]), dd);
      return box;
    }));
    bars.forEach((bar, j) => {
      const share = data.share[k][j];
      bar.share.textContent = (100 * share).toFixed(1) + " %";
      bar.fill.style.width = 100 * share + "%";
    });
    by("rows").replaceChildren(...examples.rows.map((example) => {
      const cells = [element("th", String(example.row), { scope: "row", class: "figure" }), ...example.shown, data.choices[example.route[k]], figure(number(example.cost[k])), figure(number(example.quality[k]))];
      if (explained) cells.push(element("td", why(example, k)));
      return row(cells, rowHeads);
    }));
    if (data.certificate) {
      const own = k === data.start && !data.certificate.single;
      by("promise").textContent = !data.certificate.promised ? "Nothing is promised"
        : own ? "The promise is about this budget" : "Nothing is promised about the budget that the slider shows";
      by("promise").className = "badge " + (own && data.certificate.promised ? "right" : "wrong");
    }
    mark();
  }

  // Light and dark ----------------------------------------------------------------------------------
  const wish = window.matchMedia("(prefers-color-scheme: dark)");
  function theme(dark) {
    document.documentElement.dataset.theme = dark ? "dark" : "light";
    by("theme").setAttribute("aria-pressed", String(dark));
    draw();
  }
  by("theme").addEventListener("click", () => theme(document.documentElement.dataset.theme !== "dark"));
  wish.addEventListener("change", (event) => theme(event.matches));
  slider.addEventListener("input", show);
  window.addEventListener("beforeprint", () => { by("details").open = true; });
  theme(wish.matches);
  show();
})();
