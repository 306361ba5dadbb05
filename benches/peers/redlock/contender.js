// The line protocol of benches/performance/worker.rs for redlock.
const readline = require("node:readline");
const Redis = require("ioredis");
const Redlock = require("redlock");

const socket = process.argv[2];
const HELD = 30_000;
const now = () => process.hrtime.bigint();
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));
const percentile = (values, part) => (values.length ? values[Math.round((values.length - 1) * part)] : NaN);
const sorted = (values) => values.sort((a, b) => a - b);
const sum = (values) => values.reduce((a, b) => a + b, 0);

// Defaults of the package: ten retries, 200 ms apart.
const options = { default: {}, tuned: { retryCount: -1, retryDelay: 2, retryJitter: 0 }, patient: { retryCount: -1 } };
const shared = new Redis(socket);

async function make(name, wait, own) {
  const client = own ? new Redis(socket) : shared;
  await client.ping();
  const redlock = new Redlock([client], options[wait]);
  let held;
  return {
    async acquire() {
      try {
        held = await redlock.lock(name, HELD);
        return true;
      } catch (e) {
        if (e instanceof Redlock.LockError) return false;
        throw e;
      }
    },
    release: () => held.unlock(),
    close: () => own && client.disconnect(),
  };
}

const many = (count, of) => Promise.all(Array.from({ length: count }, (_, i) => of(i)));

async function cycles(callers, ms) {
  const times = [];
  const begun = now();
  const end = begun + BigInt(ms) * 1_000_000n;
  await Promise.all(
    callers.map(async (c) => {
      let last = now();
      while (last < end) {
        if (!(await c.acquire())) throw new Error("a lock that no other caller wants was taken");
        await c.release();
        const t = now();
        times.push(Number(t - last));
        last = t;
      }
    }),
  );
  const span = Number(now() - begun);
  sorted(times);
  return [times.length, span, percentile(times, 0.5), percentile(times, 0.99)];
}

async function contend(callers, holdUs, ms, polite) {
  const end = now() + BigInt(ms) * 1_000_000n;
  const handoffs = [];
  let last, over = false, gaveUp = 0, total = 0;
  const grants = await Promise.all(
    callers.map(async (c, me) => {
      let grants = 0;
      while (now() < end && !over) {
        if (!(await c.acquire())) {
          gaveUp++;
          continue;
        }
        const granted = now();
        if (granted >= end) {
          await c.release();
          break;
        }
        if (last && last.by !== me) handoffs.push(Number(granted - last.at));
        grants++;
        const mine = ++total;
        await sleep(holdUs / 1000);
        last = { by: me, at: now() };
        await c.release();
        while (polite && total === mine && now() < end) await sleep(1);
      }
      over = true;
      return grants;
    }),
  );
  sorted(handoffs);
  return [
    sum(grants), ms * 1e6, handoffs.length, percentile(handoffs, 0.5), percentile(handoffs, 0.99),
    Math.min(...grants), Math.max(...grants), gaveUp,
  ];
}

async function burst(callers, holdUs) {
  const begun = now();
  let gaveUp = 0;
  await Promise.all(
    callers.map(async (c) => {
      while (!(await c.acquire())) gaveUp++;
      await sleep(holdUs / 1000);
      await c.release();
    }),
  );
  return [Number(now() - begun), gaveUp];
}

const crowds = new Map();

async function answer(words) {
  const n = (i) => Number(words[i]);
  const rivals = (wait) => many(n(1), () => make("bench-contended", wait, true));
  const closing = async (callers, result) => {
    const numbers = await result;
    callers.forEach((c) => c.close());
    return numbers;
  };
  switch (words[0]) {
    case "cycles":
      if (!crowds.has(n(1))) {
        crowds.set(n(1), await many(n(1), (i) => make(`bench-${String(i).padStart(8, "0")}`, "default", false)));
      }
      return cycles(crowds.get(n(1)), n(2));
    case "handoff":
    case "contend": {
      const callers = await rivals(words[4]);
      return closing(callers, contend(callers, n(2), n(3), words[0] === "handoff"));
    }
    case "burst": {
      const callers = await rivals(words[3]);
      return closing(callers, burst(callers, n(2)));
    }
    case "wait": {
      const [holder, ...waiters] = await many(n(1) + 1, () => make("bench-waited", words[2], true));
      if (!(await holder.acquire())) throw new Error("the holder was not granted its lock");
      waiters.forEach((w) => w.acquire().catch(() => {}));
      return [];
    }
    default:
      throw new Error(`no such request: ${words}`);
  }
}

async function main() {
  await shared.ping();
  const version = (name) => require(`${name}/package.json`).version;
  console.log(`ready redlock ${version("redlock")} (ioredis ${version("ioredis")}, node ${process.versions.node})`);
  for await (const line of readline.createInterface({ input: process.stdin })) {
    try {
      console.log(["ok", ...(await answer(line.split(" ")))].join(" "));
    } catch (e) {
      console.log(`error ${String(e).replaceAll("\n", " ")}`);
    }
  }
  process.exit(0);
}

main();
