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

  let timer = null;
  const announce = () => {
    // Many events at once are one reload.
    if (timer !== null) return;
    timer = setTimeout(() => {
      timer = null;
      // What is being filled in stays.
      const active = document.activeElement;
      if (active && active.closest("[hx-get]") && active.matches("input, select, textarea")) return;
      document.body.dispatchEvent(new CustomEvent("lakehand"));
    }, 400);
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
