// What every TypeScript SDK's client does, step by step. The SDK behind it is
// an adapter: connect(env, hooks) resolves to
//
//   revision                              the MCP revision it ended with
//   tools()                               the names of all tools
//   call(name, args, onprogress?)         { text, isError }
//   close()                               ends the session (DELETE) and the connection
//
// and calls hooks.logged(logger) for each log notification. Prints one JSON
// object a line: {"step": ..., "ok": ..., "detail": ...}. The CA is given to
// node itself (NODE_EXTRA_CA_CERTS): it is read before any program runs.

import { readFileSync } from 'node:fs';
import { createInterface } from 'node:readline';

const PATIENCE = 30_000; // milliseconds for a step
const MODERN = '2026-07-28'; // the first revision without a handshake
export const ANSWER = 'forty-two'; // what the client's model says to whatever it is asked

// environment says where to connect and what to try.
function environment() {
  const headers = {};
  const file = process.env.ARBITER_HEADER_FILE;
  for (const line of file ? readFileSync(file, 'ascii').split('\n') : []) {
    const colon = line.indexOf(':');
    if (colon > 0) headers[line.slice(0, colon).trim()] = line.slice(colon + 1).trim();
  }
  return {
    url: new URL(process.env.ARBITER_URL),
    era: process.env.ARBITER_ERA ?? '', // '', 'legacy' or 'auto'
    deniedTool: process.env.ARBITER_DENIED_TOOL ?? '',
    cut: process.env.ARBITER_CUT === '1',
    headers,
  };
}

function report(step, ok, detail) {
  process.stdout.write(JSON.stringify({ step, ok, detail: String(detail) }) + '\n');
}

function reason(err) {
  const cause = err?.cause ? ` (${reason(err.cause)})` : '';
  return `${err?.name ?? 'error'}: ${err?.message ?? err}${cause}`;
}

// within rejects when the promise takes longer than so many milliseconds.
async function within(milliseconds, promise) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`not within ${milliseconds} ms`)), milliseconds);
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}

// step runs one step; whatever it throws is its failure, and the next one still runs.
async function step(name, action) {
  try {
    report(name, true, await within(PATIENCE, action()));
  } catch (err) {
    report(name, false, reason(err));
  }
}

function expect(got, want) {
  const [g, w] = [JSON.stringify(got), JSON.stringify(want)];
  if (g !== w) throw new Error(`got ${g}, want ${w}`);
  return got;
}

// Log collects the loggers of log notifications; next waits for one.
class Log {
  #seen = [];
  #waiting = [];
  push(logger) {
    const waiting = this.#waiting.shift();
    if (waiting) waiting(logger);
    else this.#seen.push(logger);
  }
  next() {
    return this.#seen.length > 0 ? Promise.resolve(this.#seen.shift()) : new Promise((resolve) => this.#waiting.push(resolve));
  }
}

async function said(client, name, args, want) {
  const { text, isError } = await client.call(name, args);
  if (isError) throw new Error(`tool error: ${text}`);
  return expect(text, want);
}

async function lists(client) {
  const names = (await client.tools()).sort();
  if (!names.includes('echo')) throw new Error(`no echo among ${names}`);
  return names.join(',');
}

async function progress(client) {
  const seen = [];
  await client.call('slow', { steps: 3, delay_ms: 50 }, (p) => seen.push(p.progress));
  return expect(seen, [1, 2, 3]);
}

// ticks waits for log notifications of the clock, which come on the GET stream.
async function ticks(log, count) {
  for (let n = 0; n < count; n++) expect(await log.next(), 'clock');
  return `${count} notifications`;
}

async function notifications(client, log) {
  await client.call('clock', { ticks: 3, interval_ms: 50 });
  return await ticks(log, 3);
}

async function denied(client, tool) {
  const { text, isError } = await client.call(tool, { text: 'x' });
  if (!isError || !text) throw new Error(`not denied: ${JSON.stringify(text)}`);
  return text;
}

// afterCut: the session goes on, calls are answered, and the GET stream is opened
// again. A call may meet the connection that was cut with the stream; the next
// one must not.
async function afterCut(client, log) {
  let lost = 'no call lost';
  try {
    await said(client, 'echo', { text: 'still here' }, 'still here');
  } catch (err) {
    lost = `one call lost: ${reason(err)}`;
    await said(client, 'echo', { text: 'still here' }, 'still here');
  }
  const tick = ticks(log, 1);
  for (;;) {
    await client.call('clock', { ticks: 2, interval_ms: 50 });
    try {
      return `${await within(2_000, tick)}, ${lost}`;
    } catch {
      continue; // not open yet: PATIENCE ends it
    }
  }
}

async function line() {
  const input = createInterface({ input: process.stdin });
  await new Promise((resolve) => input.once('line', resolve));
  input.close();
}

async function walk(client, log, env) {
  await step('list', () => lists(client));
  await step('echo', () => said(client, 'echo', { text: 'hello' }, 'hello'));
  await step('add', () => said(client, 'add', { a: 2, b: 3 }, '5'));
  await step('progress', () => progress(client));
  await step('ask', () => said(client, 'ask', { question: 'why?' }, `the model says: ${ANSWER}`));
  if (env.deniedTool) {
    await step('denied', () => denied(client, env.deniedTool));
    await step('after-denied', () => said(client, 'echo', { text: 'again' }, 'again'));
  }
  if (client.revision >= MODERN) return;
  await step('notifications', () => notifications(client, log));
  if (env.cut) {
    report('ready-to-cut', true, '');
    await line();
    await step('after-cut', () => afterCut(client, log));
  }
}

export async function run(connect) {
  const env = environment();
  const log = new Log();
  let client;
  try {
    client = await connect(env, { logged: (logger) => log.push(logger) });
    report('connect', true, client.revision);
  } catch (err) {
    report('connect', false, reason(err));
    process.exit(1);
  }
  await walk(client, log, env);
  await step('close', async () => (await client.close()) ?? '');
  process.exit(0);
}
