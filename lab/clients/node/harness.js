// What every Node library of table.toml has to do; lab/clients/python/harness.py tells the command line and the output.
'use strict';

const crypto = require('crypto');

const RUN = crypto.randomBytes(4).toString('hex');
const KEYS_IN_LOOP = 40;
const PAUSE_MS = 2; // between two pairs of the loop: a bounded load
const LIMIT_MS = 3000; // for a call of the loop
const LAST_READ_MS = 15000; // in which every key of the loop must be readable after it

const key = (name) => `js-${RUN}-${name}`;
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const show = (value) => String(Buffer.isBuffer(value) ? value.toString('latin1') : JSON.stringify(value)).slice(0, 80);

function same(what, got, expected) {
  const equal = Buffer.isBuffer(got) && Buffer.isBuffer(expected)
    ? got.equals(expected) : JSON.stringify(got) === JSON.stringify(expected);
  if (!equal) throw new Error(`${what}: got ${show(got)}, expected ${show(expected)}`);
}

// The call is refused, by an error or by `false`, and the client goes on with the next ones.
async function refused(c, call) {
  let stored;
  try {
    stored = await call();
  } catch (error) {
    console.log(`# refused: ${String(error).slice(0, 100)}`);
    stored = false;
  }
  same('set', Boolean(stored), false);
  for (let turn = 0; turn < 3; turn++) {
    same('set afterwards', await c.set(key('after'), '1'), true);
    same('get afterwards', await c.get(key('after')), '1');
  }
}

// A check, and the methods of an adapter that it needs. Adapters take and return strings; `getBytes` returns bytes.
const CHECKS = {
  set_get: [[], async (c) => {
    same('set', await c.set(key('a'), 'value'), true);
    same('get', await c.get(key('a')), 'value');
    same('set again', await c.set(key('a'), 'other'), true);
    same('get again', await c.get(key('a')), 'other');
  }],
  missing: [[], async (c) => same('get', await c.get(key('nobody')), null)],
  empty_value: [['empty'], async (c) => {
    same('set', await c.set(key('empty'), ''), true);
    same('get', await c.get(key('empty')), '');
  }],
  add: [['add'], async (c) => {
    same('add', await c.add(key('add'), '1'), true);
    same('add again', await c.add(key('add'), '2'), false);
    same('get', await c.get(key('add')), '1');
  }],
  replace: [['replace'], async (c) => {
    same('replace what is not there', await c.replace(key('replace'), '1'), false);
    await c.set(key('replace'), '1');
    same('replace', await c.replace(key('replace'), '2'), true);
    same('get', await c.get(key('replace')), '2');
  }],
  append: [['append'], async (c) => {
    same('append to nothing', await c.append(key('append'), '1'), false);
    await c.set(key('append'), 'ab');
    same('append', await c.append(key('append'), 'c'), true);
    same('get', await c.get(key('append')), 'abc');
  }],
  prepend: [['prepend'], async (c) => {
    same('prepend to nothing', await c.prepend(key('prepend'), '1'), false);
    await c.set(key('prepend'), 'bc');
    same('prepend', await c.prepend(key('prepend'), 'a'), true);
    same('get', await c.get(key('prepend')), 'abc');
  }],
  cas: [['gets', 'cas'], async (c) => {
    await c.set(key('cas'), '1');
    const unique = await c.gets(key('cas'));
    same('cas', await c.cas(key('cas'), '2', unique), true);
    await c.set(key('cas'), '3');
    same('cas with an old unique', await c.cas(key('cas'), '4', unique), false);
    same('get', await c.get(key('cas')), '3');
  }],
  incr: [['incr'], async (c) => {
    same('incr of nothing', await c.incr(key('uncounted'), 1), c.creates ? 0 : null);
    await c.set(key('incr'), '10');
    same('incr', await c.incr(key('incr'), 5), 15);
    same('incr far', await c.incr(key('incr'), 2 ** 31), 2 ** 31 + 15);
  }],
  decr: [['decr'], async (c) => {
    await c.set(key('decr'), '10');
    same('decr', await c.decr(key('decr'), 3), 7);
    same('decr below zero', await c.decr(key('decr'), 100), 0);
  }],
  touch: [['touch'], async (c) => {
    same('touch nothing', await c.touch(key('nobody'), 100), false);
    await c.set(key('touch'), '1', 2);
    same('touch', await c.touch(key('touch'), 100), true);
  }],
  delete: [['delete'], async (c) => {
    await c.set(key('delete'), '1');
    same('delete', await c.delete(key('delete')), true);
    same('delete again', await c.delete(key('delete')), false);
    same('get', await c.get(key('delete')), null);
  }],
  multi_get: [['getMany'], async (c) => {
    const keys = Array.from({ length: 60 }, (_, n) => key(`many${n}`));
    for (const [n, name] of keys.entries()) await c.set(name, `v${n}`);
    const got = await c.getMany([...keys, key('nobody')]);
    same('get_many', keys.map((name) => got[name]), keys.map((_, n) => `v${n}`));
    same('keys found', Object.values(got).filter((value) => value != null).length, 60);
  }],
  large: [[], async (c) => {
    const value = crypto.randomBytes(450000).toString('hex');
    same('set', await c.set(key('large'), value), true);
    same('get', (await c.get(key('large'))) === value, true);
  }],
  too_large: [[], (c) => refused(c, () => c.set(key('too_large'), 'x'.repeat(2000000)))],
  binary_value: [['setBytes'], async (c) => {
    const all = Buffer.from(Array.from({ length: 1024 }, (_, n) => n & 255));
    const value = Buffer.concat([all, Buffer.from('\r\nEND\r\nVALUE x 0 3\r\nabc\r\n')]);
    await c.setBytes(key('binary'), value);
    same('get', await c.getBytes(key('binary')), value);
  }],
  unicode_value: [[], async (c) => {
    await c.set(key('unicode'), 'naïve — 日本語 🎉');
    same('get', await c.get(key('unicode')), 'naïve — 日本語 🎉');
  }],
  unicode_key: [['unicodeKeys'], async (c) => {
    await c.set(key('ключ-日本'), '1');
    same('get', await c.get(key('ключ-日本')), '1');
  }],
  long_key: [[], async (c) => {
    const name = key('k'.repeat(250)).slice(0, 250);
    same('set', await c.set(name, '1'), true);
    same('get', await c.get(name), '1');
  }],
  key_too_long: [['refusesKeys'], (c) => refused(c, () => c.set('k'.repeat(251), '1'))],
  every_server: [[], async (c, make) => {
    const clients = await Promise.all(c.servers.map((server) => make([server])));
    for (const [n, client] of clients.entries()) {
      await client.set(key('across'), `${n}`);
      for (const other of clients) same(`written by ${n}, read`, await other.get(key('across')), `${n}`);
    }
  }],
  concurrent: [[], async (c) => {
    await Promise.all(Array.from({ length: 100 }, async (_, n) => {
      await c.set(key(`task${n}`), `${n}`);
      same(`get ${n}`, await c.get(key(`task${n}`)), `${n}`);
    }));
  }],
  expiry: [[], async (c) => {
    await c.set(key('short'), '1', 2);
    same('get', await c.get(key('short')), '1');
    await sleep(3200);
    same('get after its time', await c.get(key('short')), null);
    if (c.touch) same('get of what was touched', await c.get(key('touch')), '1');
  }],
  stats: [['version'], async (c) => same('version', /^\d/.test(await c.version()), true)],
  flush: [['flush'], async (c) => {
    await c.set(key('flush'), '1');
    await c.flush();
    same('get', await c.get(key('flush')), null);
  }],
};

async function runChecks(make, servers) {
  const client = await make(servers);
  client.servers = servers;
  for (const [name, [needs, check]] of Object.entries({ ...CHECKS, ...client.more })) {
    if (!needs.every((need) => client[need])) continue;
    try {
      await check(client, make);
      console.log(`ok\t${name}`);
    } catch (error) {
      console.log(`no\t${name}\t${String(error).replace(/\s+/g, ' ').slice(0, 200)}`);
    }
  }
}

// The end of a call, or an error: memjs and memcached forget a call whose connection ends before the answer, so their
// users put a limit of their own around each.
async function limited(call) {
  let timer;
  const late = new Promise((_, reject) => { timer = setTimeout(() => reject(new Error('no end')), LIMIT_MS); });
  try {
    return await Promise.race([call, late]);
  } finally {
    clearTimeout(timer);
  }
}

// Pairs of a set and the get of a key that was set half a round before, and what each key may hold.
class Loop {
  constructor(client) {
    Object.assign(this, { client, pairs: 0, wrong: 0, failed: 0, gap: 0, lastGood: Date.now() });
    this.stored = new Map();
    this.attempted = new Map(); // values whose set failed: it may have been executed, or be so later
  }

  async run(seconds) {
    const deadline = Date.now() + 1000 * seconds;
    for (; Date.now() < deadline; this.pairs++) {
      const name = (n) => key(`loop${n % KEYS_IN_LOOP}`);
      const good = await this.pair(name(this.pairs), `${RUN}-${this.pairs}`, name(this.pairs + KEYS_IN_LOOP / 2));
      await sleep(good ? PAUSE_MS : 10 * PAUSE_MS);
    }
    this.gap = Math.max(this.gap, Date.now() - this.lastGood);
    await this.readAll();
    console.log(`loop\t${this.pairs}\t${this.wrong}\t${this.failed}\t${this.gap}`);
  }

  async pair(name, value, earlier) {
    try {
      if (!(await limited(this.client.set(name, value)))) throw new Error('not stored');
      this.stored.set(name, value);
    } catch (error) {
      this.fail('set', error);
      this.attempted.set(name, [...(this.attempted.get(name) || []), value]);
    }
    if (this.stored.has(earlier)) name = earlier;
    let got;
    try {
      got = await limited(this.client.get(name));
    } catch (error) {
      return this.fail('get', error);
    }
    if (got === null && (this.client.silent || !this.stored.has(name))) return this.fail('get', 'nothing');
    if (!this.allowed(name, got)) return false;
    this.gap = Math.max(this.gap, Date.now() - this.lastGood);
    this.lastGood = Date.now();
    return true;
  }

  allowed(name, got) {
    if (got === this.stored.get(name) || (this.attempted.get(name) || []).includes(got)) return true;
    this.wrong++;
    console.log(`# wrong: ${name} is ${show(got)}, stored ${this.stored.get(name)}`);
    return false;
  }

  fail(call, error) {
    if (++this.failed <= 5) console.log(`# ${call}: ${String(error).slice(0, 120)}`);
    return false;
  }

  async readAll() {
    const deadline = Date.now() + LAST_READ_MS;
    for (const name of this.stored.keys()) {
      let got = null;
      while (got === null) {
        got = await limited(this.client.get(name)).catch(() => null);
        if (got === null && Date.now() > deadline) break;
        if (got === null) await sleep(100);
      }
      this.allowed(name, got);
    }
  }
}

async function main(libraries) {
  const [name, action, ...rest] = process.argv.slice(2);
  const { make, version } = libraries[name];
  const servers = rest.at(-1).split(',');
  console.log(`version\t${version}`);
  if (action === 'checks') await runChecks(make, servers);
  else await new Loop(await make(servers)).run(Number(rest[0]));
  process.exit(0); // open connections keep Node alive
}

module.exports = { main, key, same };
