// The charts: numbers from this server, drawn by uPlot in the colours of the style sheet. Nothing here is markup.
"use strict";

const charts = (() => {
  const drawn = new Map();
  const asked = new Map();

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  const number = new Intl.NumberFormat("en");
  const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
  const font = '11px system-ui, "Segoe UI", Roboto, sans-serif';
  const pixels = () => window.devicePixelRatio || 1;

  function fetched(address) {
    if (!asked.has(address)) {
      const answer = fetch(address, { headers: { Accept: "application/json" } }).then((response) => {
        if (response.status === 401) location.assign("/login");
        if (!response.ok) throw new Error(`${response.status}`);
        return response.json();
      });
      asked.set(address, answer.finally(() => setTimeout(() => asked.delete(address), 400)));
    }
    return asked.get(address);
  }

  function axis(more) {
    return { stroke: colour("faint"), font, grid: { stroke: colour("line"), width: 1 }, ticks: { show: false }, ...more };
  }

  function options(place, more) {
    return {
      width: Math.max(place.clientWidth, 120),
      height: more.height,
      legend: { show: false },
      cursor: { y: false, drag: { x: false, y: false }, points: { size: 7 } },
      ...more,
    };
  }

  function reading(place) {
    const line = document.createElement("p");
    line.className = "reading";
    place.append(line);
    return line;
  }

  // Tokens over messages

  function thresholds(plot, chart) {
    const { ctx, bbox } = plot;
    ctx.save();
    ctx.lineWidth = pixels();
    ctx.font = `${11 * pixels()}px system-ui, sans-serif`;
    ctx.textAlign = "left";
    ctx.textBaseline = "bottom";
    const height = (rule) => Math.round(plot.valToPos(rule.threshold * chart.found.budget, "y", true)) + 0.5;
    const top = Math.min(...chart.found.levels.map(height));
    let left = bbox.left + 6 * pixels(); // side by side above the highest: two may be closer than a line of text
    for (const rule of chart.found.levels) {
      const y = height(rule);
      ctx.strokeStyle = ctx.fillStyle = colour(rule.level);
      ctx.setLineDash([4 * pixels(), 4 * pixels()]);
      ctx.beginPath();
      ctx.moveTo(bbox.left, y);
      ctx.lineTo(bbox.left + bbox.width, y);
      ctx.stroke();
      const words = `${rule.level} ${Math.round(rule.threshold * 100)} %`;
      ctx.fillText(words, left, top - 2 * pixels());
      left += ctx.measureText(words).width + 14 * pixels();
    }
    ctx.restore();
  }

  function marks(plot, chart) {
    const { ctx } = plot;
    const size = 4.5 * pixels();
    ctx.save();
    ctx.lineWidth = 1.5 * pixels();
    for (const compaction of chart.found.compactions) {
      const x = plot.valToPos(compaction.message, "x", true);
      const y = plot.valToPos(compaction.before, "y", true);
      ctx.strokeStyle = colour(compaction.level || "accent");
      ctx.fillStyle = compaction.is_active ? colour(compaction.level || "accent") : colour("surface");
      ctx.beginPath();
      ctx.moveTo(x, y - size);
      ctx.lineTo(x + size, y);
      ctx.lineTo(x, y + size);
      ctx.lineTo(x - size, y);
      ctx.closePath();
      ctx.fill();
      ctx.stroke();
    }
    ctx.restore();
  }

  function compactionAt(plot, chart, within) {
    const near = chart.found.compactions
      .map((compaction) => [Math.abs(plot.valToPos(compaction.message, "x") - plot.cursor.left), compaction])
      .filter(([distance]) => distance <= within);
    return near.length ? near.reduce((best, each) => (each[0] < best[0] ? each : best))[1] : null;
  }

  function told(chart, plot) {
    const { found } = chart;
    const at = plot?.cursor.idx;
    if (at == null) {
      const undone = found.compactions.filter((compaction) => !compaction.is_active).length;
      const many = found.compactions.length === 1 ? "compaction" : "compactions";
      return `${number.format(found.compactions.length)} ${many}${undone ? `, ${undone} undone` : ""} · budget ${number.format(found.budget)}`;
    }
    const line = `message ${number.format(found.messages[at])} · ${number.format(found.tokens[at])} tokens`;
    const compaction = compactionAt(plot, chart, 8);
    if (!compaction) return line;
    const state = compaction.is_active ? "" : ", undone";
    return `${line} · ◆ ${number.format(compaction.before)} → ${number.format(compaction.after)}${compaction.level ? ` (${compaction.level}${state})` : state}`;
  }

  function tokens(place, chart) {
    const top = Math.max(chart.found.budget, ...chart.found.tokens) * 1.04;
    const plot = new uPlot(
      options(place, {
        height: 268,
        scales: { x: { time: false }, y: { range: [0, top] } },
        axes: [
          axis({ size: 26, values: (_, ticks) => ticks.map((tick) => (tick % 1 ? "" : number.format(tick))) }),
          axis({ size: 46, values: (_, ticks) => ticks.map((tick) => short.format(tick)) }),
        ],
        series: [{}, { stroke: colour("accent"), fill: `${colour("accent")}22`, width: 1.6, points: { show: false } }],
        hooks: {
          draw: [(made) => thresholds(made, chart), (made) => marks(made, chart)],
          setCursor: [(made) => { chart.line.textContent = told(chart, made); }],
        },
      }),
      [chart.found.messages, chart.found.tokens],
      place,
    );
    plot.over.addEventListener("click", () => {
      const compaction = compactionAt(plot, chart, 10);
      if (compaction) location.assign(`${place.dataset.to}/${encodeURIComponent(compaction.id)}`);
    });
    return plot;
  }

  // Quality

  const kinds = {
    reduction: { unit: " %", lines: [["reduction", "reduction", "accent"]] },
    fidelity: {
      unit: " %",
      lines: [["retained", "readable", "accent"], ["reachable", "reachable", "ease"], ["failures", "failures kept", "soft"]],
    },
    saved: { unit: " tokens", lines: [["saved", "saved", "summaries"]], bars: true },
  };

  const day = new Intl.DateTimeFormat("en", { day: "numeric", month: "short" });
  const hour = new Intl.DateTimeFormat("en", { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });

  // In the reader's own time; the day only where there are several.
  function moments(stamps) {
    const times = stamps.map((stamp) => new Date(stamp));
    const days = new Set(times.map((at) => at.toDateString()));
    return times.map((at) => (Number.isNaN(at.getTime()) ? "" : days.size > 1 ? `${day.format(at)} ${hour.format(at)}` : hour.format(at)));
  }

  function quality(place, chart) {
    const kind = kinds[place.dataset.chart];
    const { found } = chart;
    const at = found.at.map((_, index) => index + 1);
    const isShare = kind.unit === " %";
    const times = moments(found.at);
    const points = { show: at.length < 80, size: 5 };
    return new uPlot(
      options(place, {
        height: 208,
        scales: {
          x: { time: false, range: [0.4, at.length + 0.6] },
          y: { range: isShare ? [0, 104] : (_, low, high) => [Math.min(0, low), Math.max(high, 1) * 1.08] },
        },
        axes: [
          axis({ size: 24, space: 90, incrs: [1, 2, 5, 10, 20, 50, 100], values: (_, ticks) => ticks.map((tick) => times[tick - 1] ?? "") }),
          axis({ size: 44, values: (_, ticks) => ticks.map((tick) => short.format(tick) + (isShare ? " %" : "")) }),
        ],
        series: [
          {},
          ...kind.lines.map(([, , name], index) => ({
            stroke: colour(name),
            fill: kind.bars ? `${colour(name)}cc` : undefined,
            width: kind.bars ? 0 : 1.6,
            dash: index === 2 ? [2, 4] : index === 1 ? [7, 4] : undefined,
            paths: kind.bars ? uPlot.paths.bars({ size: [0.7, 40] }) : undefined,
            points: kind.bars ? { show: false } : points,
            spanGaps: true,
          })),
        ],
        hooks: { setCursor: [(made) => { chart.line.textContent = toldOf(kind, found, made.cursor.idx); }] },
      }),
      [at, ...kind.lines.map(([field]) => found[field])],
      place,
    );
  }

  function toldOf(kind, found, at) {
    if (at == null) at = found.at.length - 1;
    const values = kind.lines.map(([field, name]) => {
      const value = found[field][at];
      return `${name} ${value == null ? "–" : number.format(value) + kind.unit}`;
    });
    return `${found.session[at]}: ${values.join(", ")}`;
  }

  function keys(place) {
    const kind = kinds[place.dataset.chart];
    if (!kind || kind.lines.length < 2) return;
    const line = document.createElement("p");
    line.className = "keys";
    kind.lines.forEach(([, name, tone], index) => {
      const key = document.createElement("span");
      const sign = document.createElement("span");
      sign.textContent = ["━ ", "╍ ", "┅ "][index];
      sign.style.color = colour(tone);
      key.append(sign, name);
      line.append(key);
    });
    place.append(line);
  }

  // Drawing and looking again

  async function draw(place) {
    const found = await fetched(place.dataset.from);
    const before = drawn.get(place);
    const same = before && JSON.stringify(before.found) === JSON.stringify(found);
    if (same) return;
    before?.plot?.destroy();
    place.replaceChildren();
    const chart = { found, line: reading(place) };
    if (!(found.messages ?? found.at).length) {
      chart.line.textContent = "No messages yet: the line begins with the first one.";
    } else {
      chart.plot = place.dataset.chart === "tokens" ? tokens(place, chart) : quality(place, chart);
      const isTokens = place.dataset.chart === "tokens";
      chart.line.textContent = isTokens ? told(chart, null) : toldOf(kinds[place.dataset.chart], found, null);
      if (!isTokens) keys(place);
    }
    place.classList.toggle("is-empty", !chart.plot);
    drawn.set(place, chart);
  }

  function places() {
    return [...document.querySelectorAll("[data-chart]")];
  }

  async function look() {
    for (const place of places()) {
      try {
        await draw(place);
      } catch (error) {
        const waiting = place.querySelector(".waiting");
        if (waiting) waiting.textContent = "It could not be drawn. Trying again.";
      }
    }
  }

  function redraw() {
    for (const place of places()) {
      drawn.get(place)?.plot?.destroy();
      drawn.delete(place);
    }
    look();
  }

  function resized() {
    for (const place of places()) {
      const plot = drawn.get(place)?.plot;
      if (plot && plot.width !== place.clientWidth) plot.setSize({ width: Math.max(place.clientWidth, 120), height: plot.height });
    }
  }

  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  addEventListener("resize", resized);
  return { look };
})();
