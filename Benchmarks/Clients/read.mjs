// read.mjs PACKAGE SOCKET COUNT [ndjson]: reads so many stored events of the stream `b`, and prints the seconds that it took: by the
// package in a folder, or with `ndjson` as lines of JSON over HTTP, by node:http.

import { once } from "node:events";
import { get } from "node:http";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const [folder, socket, number, form] = process.argv.slice(2), count = Number(number);
let received = 0, last;

function take(id, size, gap) {
  if (gap || size !== 64 || (last !== undefined && id !== last + 1n)) throw new Error(`event ${id} follows ${last}`);
  last = id;
  return ++received === count;
}

async function byStreamd() {
  const { connect } = await import(pathToFileURL(`${folder}/index.js`));
  const connection = await connect({ socket }), start = performance.now();
  for await (const event of connection.subscribe("b", { last: count, credit: 1024 })) {
    if (take(event.id, event.data.length, event.gap)) break;
  }
  console.log((performance.now() - start) / 1000);
  connection.close();
}

async function byLines() {
  const start = performance.now();
  const [response] = await once(get({ socketPath: socket, path: `/streams/b?as=ndjson&ids=1&last=${count}` }), "response");
  for await (const line of createInterface({ input: response })) {
    const { id, data_base64: data, lost } = JSON.parse(line);
    if (take(BigInt(id), Buffer.from(data, "base64").length, lost)) break;
  }
  console.log((performance.now() - start) / 1000);
  response.destroy();
}

await (form === "ndjson" ? byLines() : byStreamd());
