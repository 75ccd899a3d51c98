// Keeps the page true: looks again when something has happened, says when the server is gone, opens the dialog.
"use strict";

(() => {
  const LOOK_EVERY = 4000;
  const LOOK_AT_MOST_EVERY = 600;
  const TRY_EVERY = 2000;
  const SAID_FOR = 7000;
  const EVENTS = [
    "threshold.crossed", "job.queued", "job.retried", "job.dropped", "summary.applied", "session.compacted",
    "compaction.refused", "compaction.failed", "compaction.undone", "compaction.suggested", "item.recalled",
    "item.restored", "fact.promoted", "session.deleted",
  ];
  const body = document.body;
  const isLive = "live" in body.dataset;
  const pulse = document.getElementById("pulse");
  const said = document.getElementById("said");
  const banner = document.getElementById("offline");
  const [, place, name] = location.pathname.split("/");
  const here = place === "sessions" ? decodeURIComponent(name) : ""; // the page of one session speaks of no other
  let isAway = false;
  let isTold = false;
  let lastLook = 0;
  let waiting = null;

  function show(state, words) {
    if (!pulse) return;
    pulse.className = `pulse ${state}`;
    pulse.textContent = words;
  }

  function settle() {
    if (isAway) show("is-off", "offline");
    else show("is-live", isTold ? "live" : "every 4 s");
  }

  // Looking again

  function look() {
    clearTimeout(waiting);
    waiting = null;
    lastLook = Date.now();
    if (!document.hidden && !isAway) body.dispatchEvent(new CustomEvent("changed"));
  }

  function lookSoon() {
    waiting ??= setTimeout(look, Math.max(0, lastLook + LOOK_AT_MOST_EVERY - Date.now()));
  }

  function say(words) {
    said.textContent = words;
    setTimeout(() => { if (said.textContent === words) said.textContent = ""; }, SAID_FOR);
  }

  // Being told

  function follow() {
    const source = new EventSource("/v1/events");
    source.onopen = () => { isTold = true; settle(); };
    source.onerror = () => {
      isTold = false;
      settle();
      if (source.readyState === EventSource.CLOSED) setTimeout(follow, 10 * TRY_EVERY);
    };
    for (const type of EVENTS) source.addEventListener(type, (event) => heard(type, event.data));
    addEventListener("pagehide", () => source.close());
  }

  function heard(type, text) {
    if (type === "session.deleted" && here && JSON.parse(text).session_id === here) {
      location.assign("/"); // there is nothing left to look at
      return;
    }
    lookSoon();
    if (type !== "session.compacted" && type !== "compaction.failed") return;
    try {
      const event = JSON.parse(text);
      if (here && event.session_id !== here) return;
      const { tokens_before: before, tokens_after: after } = event.payload;
      const what = type === "compaction.failed" ? "compaction failed" : `compacted, ${before.toLocaleString("en")} → ${after.toLocaleString("en")} tokens`;
      say(`${event.session_id}: ${what}`);
    } catch {
      return; // an event of another version is not worth a word
    }
  }

  // The server is gone, and comes back

  function lose() {
    if (isAway) return;
    isAway = true;
    banner.hidden = false;
    settle();
    setTimeout(seek, TRY_EVERY);
  }

  async function seek() {
    try {
      const answer = await fetch("/healthz", { cache: "no-store" });
      if (!answer.ok) throw new Error(`${answer.status}`);
    } catch {
      setTimeout(seek, TRY_EVERY);
      return;
    }
    isAway = false;
    banner.hidden = true;
    settle();
    look();
  }

  body.addEventListener("htmx:error", (event) => {
    if (!(event.detail.error instanceof TypeError)) return; // what `fetch` throws when nobody answers
    lose();
    const { request, target } = event.detail.ctx ?? {};
    if (request?.method === "POST" && target) target.replaceChildren(unanswered());
  });

  function unanswered() {
    const told = document.createElement("div");
    const title = document.createElement("strong");
    told.className = "problem";
    title.textContent = "The server did not answer";
    told.append(title, document.createElement("p"));
    told.lastChild.textContent = "Look whether it was done once the server is back, and try again if not.";
    return told;
  }

  addEventListener("offline", lose);

  // The address says what is shown

  body.addEventListener("htmx:after:swap", (event) => {
    const { sourceElement, request } = event.detail.ctx;
    if (sourceElement?.matches?.("form[data-address]") && request.method === "GET") history.replaceState(null, "", tidy(request.action));
  });

  function tidy(address) {
    const url = new URL(address, location.href);
    for (const [name, value] of [...url.searchParams]) if (!value) url.searchParams.delete(name);
    return url.pathname + url.search;
  }

  // Times stand in the page as they were stored; whoever asks is told them as their own clock shows them

  const clock = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "long" });

  body.addEventListener("pointerover", (event) => {
    const time = event.target.closest?.("time[datetime]");
    const at = time ? new Date(time.dateTime) : null;
    if (at && !Number.isNaN(at.getTime())) time.title = clock.format(at);
  });

  // Dialogs, by buttons that may be replaced at any time

  body.addEventListener("click", (event) => {
    const opener = event.target.closest("[data-opens]");
    if (opener) {
      document.getElementById("outcome")?.replaceChildren();
      document.getElementById(opener.dataset.opens).showModal();
    } else if (event.target.closest("[data-closes]") || event.target.matches("dialog")) {
      event.target.closest("dialog").close();
    }
  });

  addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.ctrlKey || event.metaKey || event.target.closest("input, select, textarea, dialog")) return;
    const field = document.querySelector("input[type=search]");
    if (field) {
      event.preventDefault();
      field.focus();
    }
  });

  // Begin

  charts.look();
  if (!isLive) return;
  settle();
  follow();
  body.addEventListener("changed", () => { if (!document.hidden) charts.look(); });
  setInterval(look, LOOK_EVERY);
  document.addEventListener("visibilitychange", () => { if (!document.hidden) look(); });
})();
