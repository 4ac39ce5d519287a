// Adapters for Node's libraries: each is used as its documentation shows, with all servers of a group.
'use strict';

const path = require('path');
const { promisify } = require('util');
const { main, key, same } = require('./harness');

const MODULES = path.join(__dirname, '../../../target/clients/node/node_modules');
const load = (name) => require(path.join(MODULES, name));
const versionOf = (name) => require(path.join(MODULES, name, 'package.json')).version;

// memcached: consistent hashing; `remove` leaves a failed server out.
function memcached(servers) {
  const Memcached = load('memcached');
  const options = { timeout: 3000, retries: 0, failures: 0, retry: 1000, reconnect: 2000, remove: true };
  const client = new Memcached(servers, { ...options, poolSize: 100 });
  client.on('failure', () => {});
  const call = (method, ...more) => promisify(client[method]).call(client, ...more);
  const missing = (error) => { if (/not stored/i.test(String(error))) return false; throw error; };
  const numeric = (value) => (value === false ? null : value);
  const get = async (name) => (await call('get', name)) ?? null;
  return {
    client,
    empty: true,
    unicodeKeys: true,
    set: (name, value, ttl = 0) => call('set', name, value, ttl),
    get,
    setBytes: (name, value) => call('set', name, value, 0),
    getBytes: get,
    add: (name, value) => call('add', name, value, 0).catch(missing),
    replace: (name, value) => call('replace', name, value, 0).catch(missing),
    append: (name, value) => call('append', name, value).catch(missing),
    prepend: (name, value) => call('prepend', name, value).catch(missing),
    gets: async (name) => (await call('gets', name)).cas,
    cas: (name, value, unique) => call('cas', name, value, unique, 0),
    incr: async (name, delta) => numeric(await call('incr', name, delta)),
    decr: async (name, delta) => numeric(await call('decr', name, delta)),
    touch: (name, ttl) => call('touch', name, ttl),
    delete: (name) => call('del', name),
    getMany: (names) => call('getMulti', names),
    version: async () => (await call('version'))[0].version,
    flush: () => call('flush'),
  };
}

// memcache-client: goes on with the servers that are left.
function memcacheClient(servers) {
  const { MemcacheClient } = load('memcache-client');
  const config = { retryFailedServerInterval: 1000, failedServerOutTime: 6000, keepLastServer: true };
  const server = { servers: servers.map((one) => ({ server: one, maxConnections: 3 })), config };
  const client = new MemcacheClient({ server, cmdTimeout: 3000, ignoreNotStored: true });
  const stored = (reply) => ['STORED', 'DELETED', 'TOUCHED'].includes(reply[0]);
  const no = (error) => { if (/NOT_FOUND|NOT_STORED|EXISTS/.test(error.message)) return [error.message]; throw error; };
  const number = (reply) => (/^\d+/.test(reply) ? Number(reply) : null);
  const get = async (name) => (await client.get(name))?.value ?? null;
  return {
    empty: true,
    refusesKeys: true,
    unicodeKeys: true,
    set: async (name, value, ttl = 0) => stored(await client.set(name, value, { lifetime: ttl })),
    get,
    setBytes: (name, value) => client.set(name, value),
    getBytes: get,
    add: async (name, value) => stored(await client.add(name, value).catch(no)),
    replace: async (name, value) => stored(await client.replace(name, value).catch(no)),
    append: async (name, value) => stored(await client.append(name, value).catch(no)),
    prepend: async (name, value) => stored(await client.prepend(name, value).catch(no)),
    gets: async (name) => (await client.gets(name)).casUniq,
    cas: async (name, value, unique) => stored(await client.cas(name, value, { casUniq: unique }).catch(no)),
    incr: async (name, delta) => number(await client.incr(name, delta).catch(no)),
    decr: async (name, delta) => number(await client.decr(name, delta).catch(no)),
    touch: async (name, ttl) => stored(await client.touch(name, ttl).catch(no)),
    delete: async (name) => stored(await client.delete(name).catch(no)),
    getMany: async (names) => {
      const found = await client.get(names);
      return Object.fromEntries(Object.entries(found).map(([name, item]) => [name, item.value]));
    },
    version: async () => (await client.version())[1],
  };
}

// memcache: one server per key, no failover of its own; its calls fail while that server is away.
async function memcache(servers) {
  const { Memcache } = load('memcache');
  const client = new Memcache({ nodes: servers, timeout: 3000, retries: 1, retryDelay: 50 });
  client.on('error', () => {});
  return {
    empty: true,
    silent: true, // a failed call is an event, and looks like one of a key that is not there
    refusesKeys: true,
    set: (name, value, ttl = 0) => client.set(name, value, ttl),
    get: async (name) => (await client.get(name)) ?? null,
    add: (name, value) => client.add(name, value),
    replace: (name, value) => client.replace(name, value),
    append: (name, value) => client.append(name, value),
    prepend: (name, value) => client.prepend(name, value),
    incr: async (name, delta) => (await client.incr(name, delta)) ?? null,
    decr: async (name, delta) => (await client.decr(name, delta)) ?? null,
    touch: (name, ttl) => client.touch(name, ttl),
    delete: (name) => client.delete(name),
    getMany: async (names) => Object.fromEntries(await client.gets(names)),
    version: async () => [...(await client.version()).values()][0].replace('VERSION ', ''),
    flush: () => client.flush(),
  };
}

// memjs: the binary protocol; `failover` goes on with another server.
function memjs(servers) {
  const options = { failover: true, failoverTime: 6, timeout: 3, conntimeout: 3, retries: 1, logger: { log() {} } };
  const client = load('memjs').Client.create(servers.join(','), options);
  const missing = (error) => { if (/not stored/i.test(String(error))) return false; throw error; };
  const bytes = async (name) => (await client.get(name)).value;
  return {
    empty: true,
    unicodeKeys: true,
    set: (name, value, ttl = 0) => client.set(name, value, { expires: ttl }),
    get: async (name) => (await bytes(name))?.toString() ?? null,
    setBytes: (name, value) => client.set(name, value, {}),
    getBytes: bytes,
    add: (name, value) => client.add(name, value, {}),
    replace: (name, value) => client.replace(name, value, {}),
    append: (name, value) => client.append(name, value).catch(missing),
    prepend: (name, value) => client.prepend(name, value).catch(missing),
    creates: true, // a counter that is not there begins at `initial`
    incr: async (name, delta) => (await client.increment(name, delta, { initial: 0 })).value,
    decr: async (name, delta) => (await client.decrement(name, delta, { initial: 0 })).value,
    touch: (name, ttl) => client.touch(name, ttl),
    delete: (name) => client.delete(name),
    flush: () => client.flush(),
  };
}

// connect-memcached: sessions of express-session, over `memcached`.
function connectMemcached(servers) {
  const Store = load('connect-memcached')(load('express-session'));
  const under = memcached(servers);
  const store = new Store({ client: under.client, prefix: 'session-' });
  const call = (method, ...more) => promisify(store[method]).call(store, ...more);
  const session = (value, ttl) => ({ cookie: { maxAge: 1000 * (ttl || 1000) }, value });
  return {
    unicodeKeys: true,
    set: async (name, value, ttl) => { await call('set', name.slice(0, 240), session(value, ttl)); return true; },
    get: async (name) => (await call('get', name.slice(0, 240)))?.value ?? null,
    more: {
      session: [[], async () => {
        const id = key('session');
        await call('set', id, { ...session('x'), cart: [1, 2, { name: '日本' }] });
        same('get', (await call('get', id)).cart, [1, 2, { name: '日本' }]);
        await call('touch', id, session('x', 500));
        await call('destroy', id);
        same('get after destroy', await call('get', id), undefined);
      }],
    },
  };
}

main({
  memcached: { make: memcached, version: versionOf('memcached') },
  'memcache-client': { make: memcacheClient, version: versionOf('memcache-client') },
  memcache: { make: memcache, version: versionOf('memcache') },
  memjs: { make: memjs, version: versionOf('memjs') },
  'connect-memcached': { make: connectMemcached, version: versionOf('connect-memcached') },
});
