// The state of a stream with keys, as snapshots and changes.

import { setTimeout as sleep } from "node:timers/promises";

import { ConnectionLost, Invalid, isTransient, Lagged, Reason } from "./errors.js";
import { getNewest } from "./single.js";
import { Subscription } from "./subscription.js";

/** Milliseconds before the state is taken again. */
const FIRST_PAUSE = 100, LONGEST_PAUSE = 5_000;

/**
 * Yields a snapshot, then changes. If the stream lost events before they were sent, or with `reconnect` after a loss
 * within the state, it takes the state again, and yields another snapshot.
 */
export async function* statesOf(connection, stream, { key, tombstone, reconnect = true, ...options } = {}) {
  const read = await readerOf(connection, stream, key, tombstone, options);
  for (let attempts = 0; ; attempts++) {
    if (attempts > 0) await sleep(Math.min(FIRST_PAUSE * 2 ** (attempts - 1), LONGEST_PAUSE), null, { signal: options.signal });
    const subscription = new Subscription(connection, stream, { ...options, reconnect, from: "state", marker: true });
    let state = new Map(), hasBegun = false, isComplete = true;
    try {
      for await (const event of subscription) {
        hasBegun = true;
        isComplete = event.gap === 0;
        if (!isComplete) break;
        if (event.kind === "marker") {
          if (state) yield { type: "snapshot", state };
          state = null;
          attempts = -1; // the next one is the first again
          continue;
        }
        const { name, isRemoval } = read(event);
        if (name === undefined) continue;
        if (!state) yield isRemoval ? { type: "removal", key: name, event } : { type: "change", key: name, event };
        else if (isRemoval) state.delete(name);
        else state.set(name, event);
      }
    } catch (error) {
      const isInState = state !== null && hasBegun && reconnect;
      if (!isRecoverable(error, isInState, state === null)) throw error;
      isComplete = false;
    }
    if (!isComplete) continue;
    if (state) yield { type: "snapshot", state };
    return;
  }
}

/**
 * Whether the state can be taken again. A subscription that continues after an id that its stream has not any more is
 * UNKNOWN_POSITION.
 */
function isRecoverable(error, isInState, isAfterState) {
  if (error instanceof Lagged || (isAfterState && error.reason === Reason.UNKNOWN_POSITION)) return true;
  return isInState && (error instanceof ConnectionLost || isTransient(error));
}

/** A function that finds the key of an event, undefined without one, and whether the event removes it. */
async function readerOf(connection, stream, key, tombstone, options) {
  if (key === undefined) {
    const pointers = await pointersOf(connection, stream, options);
    key = pointers.key;
    tombstone ??= pointers.tombstone;
  }
  const keyOf = functionOf(key), isTombstone = tombstone === undefined ? () => false : functionOf(tombstone);
  return (event) => {
    try {
      const name = keyOf(event), isKey = ["string", "number", "boolean"].includes(typeof name);
      return { name: isKey ? name : undefined, isRemoval: isTombstone(event) === true };
    } catch (error) {
      if (error instanceof SyntaxError) return {}; // the event is not JSON
      throw error;
    }
  };
}

/** Where the daemon finds the key of the stream's events, and what removes it. */
async function pointersOf(connection, stream, options) {
  const streams = await getNewest(connection, "$streams", { signal: options.signal });
  const { key, tombstone } = streams?.json().find(({ name }) => name === stream) ?? {};
  if (key !== undefined) return { key, tombstone };
  // A stream that does not exist, or has no keys, has an error of its own.
  const { signal } = options;
  for await (const _ of new Subscription(connection, stream, { from: "state", marker: true, credit: 1, signal })) break;
  throw new Invalid(`"${stream}" does not say where its events have their key: state() needs the option key`);
}

/** The function of an event that a JSON pointer stands for. */
function functionOf(pointer) {
  if (typeof pointer === "function") return pointer;
  if (pointer !== "" && !pointer.startsWith("/")) throw new Invalid(`"${pointer}" is no JSON pointer`);
  const names = pointer.split("/").slice(1).map((name) => name.replaceAll("~1", "/").replaceAll("~0", "~"));
  return (event) => names.reduce(memberOf, event.json());
}

function memberOf(value, name) {
  return typeof value === "object" && value && Object.hasOwn(value, name) ? value[name] : undefined;
}
