/** The button that goes through the themes: that of the system, light, dark. */

const THEMES = ["auto", "light", "dark"];
const SIGNS = { auto: "◐", light: "☀", dark: "☾" };

/** @param {HTMLButtonElement} button */
export function themeButton(button) {
  const root = document.documentElement;
  const show = () => {
    const theme = root.dataset.theme;
    button.textContent = SIGNS[theme];
    button.title = `Theme: ${theme}`;
    button.setAttribute("aria-label", `Theme: ${theme === "auto" ? "as the system" : theme}`);
  };
  button.addEventListener("click", () => {
    root.dataset.theme = THEMES[(THEMES.indexOf(root.dataset.theme) + 1) % THEMES.length];
    localStorage.setItem("ttaps-theme", root.dataset.theme);
    show();
  });
  show();
}
