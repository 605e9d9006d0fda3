// Live updates: events of the service become the event `lakehand`, on which parts of a page reload.
(() => {
  "use strict";
  const state = document.querySelector("[data-live-state]");
  const show = (word) => {
    if (!state) return;
    state.hidden = false;
    state.textContent = word;
    state.dataset.state = word;
  };

  // A page of one table or one job reloads for what happened to it, and to the service.
  const about = document.querySelector("[data-about]");
  const [subject, number] = about ? about.dataset.about.split(" ") : [null, null];
  const concerns = (event) => {
    if (subject === null) return true;
    const told = JSON.parse(event.data)[subject + "_id"];
    return told === null || String(told) === number;
  };

  let timer = null;
  const announce = (event) => {
    // Many events at once are one reload.
    if (timer !== null || !concerns(event)) return;
    timer = setTimeout(() => {
      timer = null;
      // What is being filled in stays.
      const active = document.activeElement;
      if (active && active.closest("[hx-get]") && active.matches("input, select, textarea")) return;
      document.body.dispatchEvent(new CustomEvent("lakehand"));
    }, 2100); // Longer than the server keeps an answer: it has been made after the event.
  };

  if (document.querySelector("[hx-get]") && "EventSource" in window) {
    const source = new EventSource("/api/v1/events/stream");
    source.onopen = () => show("live");
    source.onerror = () => show("reconnecting");
    const kinds = (document.body.dataset.kinds || "").split(" ").filter(Boolean);
    for (const kind of kinds) source.addEventListener(kind, announce);
    addEventListener("pagehide", () => source.close());
  }

  addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.matches("input, select, textarea")) return;
    const search = document.querySelector("[data-search]");
    if (search) {
      event.preventDefault();
      search.focus();
      search.select();
    }
  });
})();
