// The colour theme: that of the system until the user chooses one. Not a module, because it must run before the page
// is drawn.
(() => {
  "use strict";
  const root = document.documentElement;
  const dark = matchMedia("(prefers-color-scheme: dark)");

  /** Return the saved theme; a browser may not allow storage. */
  function savedTheme() {
    try {
      return localStorage.getItem("theme");
    } catch {
      return null;
    }
  }

  /** @param {string} theme */
  function saveTheme(theme) {
    try {
      localStorage.setItem("theme", theme);
    } catch {
      // The choice lasts until the page is closed.
    }
  }

  const currentTheme = () => root.dataset.theme ?? (dark.matches ? "dark" : "light");
  const chosen = savedTheme();
  if (chosen === "dark" || chosen === "light") root.dataset.theme = chosen;

  addEventListener("DOMContentLoaded", () => {
    const button = document.getElementById("theme");
    const show = () => button?.setAttribute("aria-pressed", String(currentTheme() === "dark"));
    button?.addEventListener("click", () => {
      root.dataset.theme = currentTheme() === "dark" ? "light" : "dark";
      saveTheme(root.dataset.theme);
      show();
    });
    dark.addEventListener("change", show);
    show();
  });
})();
