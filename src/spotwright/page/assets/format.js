// The texts of numbers: the same as `spotwright show` and `report` print, so that a figure is one figure everywhere.

// Seconds for people: 0.4s, 12s, 3m20s, 2h05m (spotwright.model.quantities.format_duration).
export function duration(seconds) {
  if (seconds === null || seconds === undefined || Number.isNaN(seconds)) return "";
  if (seconds < 0) return `-${duration(-seconds)}`;
  const tenth = Math.round(seconds * 10) / 10;
  if (tenth < 10 && tenth !== Math.trunc(tenth)) return `${tenth.toFixed(1)}s`;
  const whole = Math.round(tenth);
  if (whole < 60) return `${whole}s`;
  const two = (number) => String(number).padStart(2, "0");
  if (whole < 3600) return `${Math.floor(whole / 60)}m${two(whole % 60)}s`;
  return `${Math.floor(whole / 3600)}h${two(Math.floor((whole % 3600) / 60))}m`;
}

// A place on the run's own clock: +1m30s.
export const offset = (seconds) => (seconds === null || seconds === undefined ? "" : `+${duration(seconds)}`);

// A moment (Unix seconds) with its zone, for tooltips.
export function moment(at) {
  if (at === null || at === undefined) return "";
  return new Date(at * 1000).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "long" });
}

// A moment for tables: fixed, sortable by eye, in the reader's zone.
export function dateTime(at) {
  if (at === null || at === undefined) return "";
  const date = new Date(at * 1000);
  const two = (number) => String(number).padStart(2, "0");
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
}

const decimals = (value, digits) =>
  value ? Math.min(8, Math.max(2, digits - 1 - Math.floor(Math.log10(Math.abs(value))))) : 2;

// Money with at least two decimals and two significant digits; a limit where it is too small beside the total.
export function money(value, currency = "", beside = 0) {
  if (value === null || value === undefined) return "";
  const finest = beside ? decimals(beside, 3) : 8;
  const unit = currency ? ` ${currency}` : "";
  if (value && Math.abs(value) < 10 ** -finest) {
    const limit = (10 ** -finest).toFixed(finest);
    return `${value > 0 ? `<${limit}` : `>-${limit}`}${unit}`;
  }
  return `${value.toFixed(decimals(value, 2))}${unit}`;
}

// An amount of the JSON views, {seconds, money}: its money, or node-hours where a pool has no price.
export function amount(value, currency = "", beside = 0) {
  if (!value) return "";
  return value.money === null ? money(value.seconds / 3600, "node-hours") : money(value.money, currency, beside);
}

export const count = (number) => (number ?? 0).toLocaleString("en-US");
export const plural = (number, noun) => `${count(number)} ${noun}${number === 1 ? "" : "s"}`;

// A share in whole percent; a half goes to the even one, as Python prints it.
export function percent(share) {
  if (share === null || share === undefined) return "";
  const value = share * 100;
  const whole = Math.floor(value);
  return `${value - whole === 0.5 ? whole + (whole % 2) : Math.round(value)}%`;
}

// Bytes for people: 812 B, 3.4 kB, 64 MB, in steps of 1,000 as for file sizes.
export function bytes(number) {
  if (number === null || number === undefined) return "";
  const units = ["B", "kB", "MB", "GB", "TB"];
  let step = 0;
  let value = number;
  while (value >= 999.5 && step < units.length - 1) {
    value /= 1000;
    step += 1;
  }
  return `${value < 10 && step ? value.toFixed(1) : Math.round(value)} ${units[step]}`;
}

const STEPS = [0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800];

// The round step of a clock that is at least so many seconds.
export const clockStep = (seconds) => STEPS.find((each) => each >= seconds) ?? Math.ceil(seconds / 604800) * 604800;

// A tick of an axis: start, +10m, +2h.
export const tick = (seconds) => (seconds ? offset(seconds).replace(/([mh])00[sm]$/, "$1") : "start");
