// Small parts that every view uses: chips, messages, copyable commands, a live region for screen readers.
import { html } from "htm/preact";
import { signal } from "@preact/signals";
import { classOf } from "../words.js";

export const Status = ({ status }) => html`<span class=${`chip ${classOf("status", status)}`}>${status}</span>`;

export const Loading = ({ what }) => html`<p class="loading" role="status">Loading ${what}…</p>`;

export const Empty = ({ children }) => html`<div class="empty">${children}</div>`;

// What went wrong, and what to do about it.
export function Problem({ error, retry }) {
  return html`<div class="problem" role="alert">
    <p>${error.message}</p>
    ${retry && html`<button type="button" onClick=${retry}>Try again</button>`}
  </div>`;
}

// A command to copy. The page changes nothing: what changes something is typed.
export function Command({ text, label }) {
  const copy = async (event) => {
    const button = event.currentTarget;
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "copied";
      say(`Copied: ${text}`);
    } catch {
      getSelection().selectAllChildren(button.previousElementSibling);
      button.textContent = "selected";
    }
    setTimeout(() => (button.textContent = "copy"), 1500);
  };
  return html`<div class="command">
    ${label && html`<span class="label">${label}</span>`}
    <code>${text}</code>
    <button type="button" class="quiet" aria-label=${`Copy ${text}`} onClick=${copy}>copy</button>
  </div>`;
}

// Text for people who listen; at most one message a second.
export const said = signal("");
let spoken = 0;
let later = 0;
export function say(text) {
  clearTimeout(later);
  const wait = spoken + 1000 - Date.now();
  later = setTimeout(
    () => {
      spoken = Date.now();
      said.value = text;
    },
    Math.max(0, wait),
  );
}
