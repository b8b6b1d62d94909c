// Colours: as the system has them, until the reader chooses. Read before anything is drawn, so that nothing flickers;
// this is why it is no module.
(() => {
  "use strict";
  const root = document.documentElement;
  const dark = matchMedia("(prefers-color-scheme: dark)");

  /** Return what was chosen earlier; a browser may keep nothing. */
  function remembered() {
    try {
      return localStorage.getItem("theme");
    } catch {
      return null;
    }
  }

  /** @param {string} theme */
  function remember(theme) {
    try {
      localStorage.setItem("theme", theme);
    } catch {
      // It holds until the page is left.
    }
  }

  const now = () => root.dataset.theme ?? (dark.matches ? "dark" : "light");
  const chosen = remembered();
  if (chosen === "dark" || chosen === "light") root.dataset.theme = chosen;

  addEventListener("DOMContentLoaded", () => {
    const button = document.getElementById("theme");
    const show = () => button?.setAttribute("aria-pressed", String(now() === "dark"));
    button?.addEventListener("click", () => {
      root.dataset.theme = now() === "dark" ? "light" : "dark";
      remember(root.dataset.theme);
      show();
    });
    dark.addEventListener("change", show);
    show();
  });
})();
