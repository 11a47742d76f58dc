// Arguments, and what they are in a request.

import { Invalid } from "./errors.js";

/** Credit of this number, or of a larger one, is without limit. */
const LARGEST_CREDIT = 2 ** 31 - 2, LARGEST_ID = 2n ** 64n - 1n;
const ON_LAG = ["skip", "latest", "fail"];

/** A stream's name, which has the size of a routing tag. */
export function checkedName(stream) {
  const size = typeof stream === "string" ? Buffer.byteLength(stream) : 0;
  if (size < 1 || size > 255) throw new Invalid("a stream's name has 1 to 255 bytes");
  return stream;
}

/** The members of the options of a subscription that stay the same, as JSON texts by name. */
export function subscriptionOptions({ where, marker, onLag }, hidesMarkers, isPattern) {
  if (onLag !== undefined && !ON_LAG.includes(onLag)) throw new Invalid(`onLag: ${onLag} is none of ${ON_LAG.join(", ")}`);
  const members = { gaps: "true" };
  if (onLag !== undefined) members.on_lag = JSON.stringify(onLag);
  if (where !== undefined) members.where = filterOf(where);
  if (marker || hidesMarkers) members.marker = "true";
  if (isPattern) members.names = "true";
  return members;
}

/** Where a subscription begins, as JSON. */
export function placeOf({ from, last }) {
  if (last !== undefined) {
    if (from !== undefined) throw new TypeError("from and last exclude each other");
    const count = wholeNumber("last", last);
    if (count < 1n) throw new Invalid("last: 0 is out of range");
    return `-${count}`;
  }
  if (from === undefined) return '"replay"';
  if (from instanceof Date) return JSON.stringify(from.toISOString()); // throws a RangeError for an invalid date
  return typeof from === "string" ? JSON.stringify(from) : String(wholeNumber("from", from));
}

export function checkedCredit(credit) {
  if (!Number.isInteger(credit) || credit < 1 || credit > LARGEST_CREDIT) {
    throw new Invalid(`credit: ${credit} is not between 1 and ${LARGEST_CREDIT}`);
  }
  return credit;
}

function wholeNumber(name, value) {
  const isWhole = typeof value === "bigint" || Number.isSafeInteger(value);
  if (!isWhole || value < 0 || value > LARGEST_ID) throw new Invalid(`${name}: ${String(value)} is out of range`);
  return BigInt(value);
}

/** A text stays as it is: its numbers are not rounded. */
function filterOf(where) {
  const text = typeof where === "string" ? where : JSON.stringify(where);
  let value;
  try {
    value = JSON.parse(text);
  } catch {
    value = null;
  }
  if (typeof value !== "object" || value === null || Array.isArray(value)) throw new Invalid("where: the filter is no JSON object");
  return text;
}

/** The bytes of a value. */
export function bytesOf(value) {
  if (Buffer.isBuffer(value)) return value;
  if (typeof value === "string") return Buffer.from(value);
  if (ArrayBuffer.isView(value)) return Buffer.from(value.buffer, value.byteOffset, value.byteLength);
  if (value instanceof ArrayBuffer) return Buffer.from(value);
  const text = JSON.stringify(value);
  if (text === undefined) throw new TypeError(`a value is a text, bytes, or what JSON has, not ${typeof value}`);
  return Buffer.from(text);
}
