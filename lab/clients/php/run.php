<?php
// Runs PHP's client libraries of table.toml; lab/clients/python/harness.py tells the command line and the output.
// Each is used as its documentation shows, with all servers of a group.

const KEYS_IN_LOOP = 40;
const PAUSE_US = 2000;   // between two pairs of the loop: a bounded load
const LAST_READ_S = 15;  // in which every key of the loop must be readable after it
define('RUN', bin2hex(random_bytes(4)));

function named(string $name): string
{
    return 'php-' . RUN . "-$name";
}

// Beside PHP's own output: a session must begin before that.
function say(...$parts): void
{
    fwrite(STDOUT, implode('', $parts));
}

function same(string $what, $got, $expected): void
{
    if ($got !== $expected) {
        $show = fn ($value) => substr(var_export($value, true), 0, 60);
        throw new Exception("$what: got {$show($got)}, expected {$show($expected)}");
    }
}

// ext-memcached, which is libmemcached.
class WithMemcached
{
    public const EXTENSION = 'memcached';
    public const BINARY = false;
    public Memcached $client;

    public function __construct(array $servers)
    {
        $this->client = new Memcached();
        $this->client->setOptions([
            Memcached::OPT_BINARY_PROTOCOL => static::BINARY,
            Memcached::OPT_LIBKETAMA_COMPATIBLE => true,
            Memcached::OPT_CONNECT_TIMEOUT => 1000,
            Memcached::OPT_POLL_TIMEOUT => 3000,
            Memcached::OPT_RECV_TIMEOUT => 3000000,
            Memcached::OPT_SERVER_FAILURE_LIMIT => 1,
            Memcached::OPT_REMOVE_FAILED_SERVERS => true,
            Memcached::OPT_DEAD_TIMEOUT => 6, // without it the keys of a dead server fail for ever
            Memcached::OPT_RETRY_TIMEOUT => 1,
            Memcached::OPT_TCP_NODELAY => true,
        ]);
        foreach ($servers as $server) {
            [$host, $port] = explode(':', $server);
            $this->client->addServer($host, (int) $port);
        }
    }

    public function set($key, $value, $ttl = 0): bool
    {
        return $this->client->set($key, $value, $ttl);
    }

    public function get($key)
    {
        $value = $this->client->get($key);
        $code = $this->client->getResultCode();
        if ($code !== Memcached::RES_SUCCESS && $code !== Memcached::RES_NOTFOUND) {
            throw new Exception($this->client->getResultMessage());
        }
        return $code === Memcached::RES_SUCCESS ? $value : null;
    }

    public function getMany(array $keys): array
    {
        return $this->client->getMulti($keys);
    }

    public function setMany(array $values): bool
    {
        return $this->client->setMulti($values);
    }

    public function gets($key): array
    {
        $found = $this->client->get($key, null, Memcached::GET_EXTENDED);
        return [$found['value'], $found['cas']];
    }

    public function cas($key, $value, $unique): bool
    {
        return $this->client->cas($unique, $key, $value);
    }

    public function version(): string
    {
        return array_values($this->client->getVersion())[0];
    }

    public function delayed(array $keys): array
    {
        $this->client->getDelayed($keys);
        return array_column($this->client->fetchAll(), 'value', 'key');
    }

    public function keys(): array
    {
        return $this->client->getAllKeys() ?: [];
    }

    public function __call($method, $arguments)
    {
        return $this->client->$method(...$arguments);
    }

    // With compression of text, libmemcached's append is refused by the extension.
    public function extend(string $how, $key, $value): bool
    {
        $this->client->setOption(Memcached::OPT_COMPRESSION, false);
        return $this->client->$how($key, $value);
    }
}

class WithMemcachedBinary extends WithMemcached
{
    public const BINARY = true;
}

// ext-memcache, an older one with a protocol reader of its own.
class WithMemcache
{
    public const EXTENSION = 'memcache';
    public Memcache $client;
    public bool $silent = true; // false is a value that is not there, and a failed call

    public function __construct(array $servers)
    {
        $this->client = new Memcache();
        foreach ($servers as $server) {
            [$host, $port] = explode(':', $server);
            $this->client->addServer($host, (int) $port, false, 1, 3, 2);
        }
        $this->client->setCompressThreshold(10000000);
    }

    public function set($key, $value, $ttl = 0): bool
    {
        return $this->client->set($key, $value, 0, $ttl);
    }

    public function get($key)
    {
        $value = $this->client->get($key);
        return $value === false ? null : $value;
    }

    public function getMany(array $keys): array
    {
        return $this->client->get($keys);
    }

    public function version(): string
    {
        return $this->client->getVersion();
    }

    public function __call($method, $arguments)
    {
        return $this->client->$method(...$arguments);
    }

    public function extend(string $how, $key, $value): bool
    {
        return $this->client->$how($key, $value);
    }
}

// PHP's sessions by the handler of ext-memcached, with its default settings but for failover and waiting for a lock.
class WithSessions
{
    public const EXTENSION = 'memcached';
    public const BINARY = '1';
    public bool $silent = true; // a session that could not be read is empty

    public function __construct(array $servers)
    {
        ini_set('session.save_handler', 'memcached');
        ini_set('session.save_path', implode(',', $servers));
        ini_set('session.use_cookies', '0');
        ini_set('session.use_strict_mode', '0');
        ini_set('session.cache_limiter', '');
        ini_set('memcached.sess_binary_protocol', static::BINARY);
        ini_set('memcached.sess_lock_retries', '200');
        ini_set('memcached.sess_remove_failed_servers', '1');
        ini_set('memcached.sess_server_failure_limit', '1');
        ini_set('memcached.sess_connect_timeout', '1000');
    }

    private function with($key, callable $do)
    {
        session_id(md5($key));
        if (!@session_start()) {
            throw new Exception('session_start: ' . (error_get_last()['message'] ?? ''));
        }
        $result = $do();
        if (!@session_write_close()) {
            throw new Exception('session_write_close: ' . (error_get_last()['message'] ?? ''));
        }
        return $result;
    }

    public function set($key, $value): bool
    {
        return $this->with($key, function () use ($value) {
            $_SESSION['value'] = $value;
            return true;
        });
    }

    public function get($key)
    {
        return $this->with($key, fn () => $_SESSION['value'] ?? null);
    }

    public function delete($key): bool
    {
        session_id(md5($key));
        session_start();
        return session_destroy();
    }
}

class WithTextSessions extends WithSessions
{
    public const BINARY = '0';
}

function keeps($c, string $name, $value): void
{
    same('set', $c->set(named($name), $value), true);
    same('get', $c->get(named($name)), $value);
}

function conditional($c, string $how, string $before, string $after, bool $wantsValue): void
{
    $call = fn ($name) => in_array($how, ['append', 'prepend'])
        ? $c->extend($how, named($name), '1') : $c->$how(named($name), '1');
    same("$how of what is not there", $call("$how-first"), !$wantsValue);
    $c->set(named($how), $before);
    same("$how of what is there", $call($how), $wantsValue);
    same('get', $c->get(named($how)), $after);
}

function numbered(int $count): array
{
    $values = [];
    for ($n = 0; $n < $count; $n++) {
        $values[named("many$n")] = "v$n";
    }
    return $values;
}

// Checks of all libraries, then those of caches, by name.
function checks(): array
{
    $all = implode('', array_map('chr', array_map(fn ($n) => $n % 256, range(0, 1023)))) . "\r\nEND\r\n";
    return [
        'set_get' => function ($c) {
            keeps($c, 'a', 'value');
            keeps($c, 'a', 'other');
        },
        'missing' => fn ($c) => same('get', $c->get(named('nobody')), null),
        'empty_value' => fn ($c) => keeps($c, 'empty', ''),
        'structure' => fn ($c) => keeps($c, 'structure', ['list' => [1, 2.5, null, true], 'text' => '日本']),
        'large' => fn ($c) => keeps($c, 'large', bin2hex(random_bytes(450000))),
        'binary_value' => fn ($c) => keeps($c, 'binary', $all),
        'unicode_value' => fn ($c) => keeps($c, 'unicode', 'naïve — 日本語 🎉'),
        'every_server' => function ($c, $servers) {
            $clients = array_map(fn ($server) => fn () => new (get_class($c))([$server]), $servers);
            foreach ($clients as $n => $client) {
                $client()->set(named('across'), "$n");
                foreach ($clients as $other) {
                    same("written by $n, read", $other()->get(named('across')), "$n");
                }
            }
            new (get_class($c))($servers);
        },
        'concurrent' => 'concurrent',
        'delete' => function ($c) {
            keeps($c, 'delete', '1');
            same('delete', $c->delete(named('delete')), true);
            same('get', $c->get(named('delete')), null);
        },
    ];
}

function cacheChecks(): array
{
    return [
        'add' => fn ($c) => conditional($c, 'add', 'x', 'x', false),
        'replace' => fn ($c) => conditional($c, 'replace', 'x', '1', true),
        'append' => fn ($c) => conditional($c, 'append', 'ab', 'ab1', true),
        'prepend' => fn ($c) => conditional($c, 'prepend', 'ab', '1ab', true),
        'incr' => function ($c) {
            same('increment of nothing', $c->increment(named('uncounted'), 1), false);
            $c->set(named('incr'), 10);
            same('increment', $c->increment(named('incr'), 2 ** 31), 2 ** 31 + 10);
        },
        'decr' => function ($c) {
            $c->set(named('decr'), 10);
            same('decrement', $c->decrement(named('decr'), 3), 7);
            same('decrement below zero', $c->decrement(named('decr'), 100), 0);
        },
        'multi_get' => function ($c) {
            $values = numbered(60);
            array_walk($values, fn ($value, $key) => $c->set($key, $value));
            $found = $c->getMany([...array_keys($values), named('nobody')]);
            ksort($found);
            ksort($values);
            same('get of many', $found, $values);
        },
        'too_large' => function ($c) {
            same('set of 2 MB', @$c->set(named('too_large'), random_bytes(2000000)), false);
            keeps($c, 'after', '1');
            keeps($c, 'after', '2');
        },
        'long_key' => fn ($c) => keeps($c, str_repeat('k', 250 - strlen(named(''))), '1'),
        'expiry' => function ($c) {
            same('set', $c->set(named('short'), '1', 2), true);
            same('get', $c->get(named('short')), '1');
            usleep(3200000);
            same('get after its time', $c->get(named('short')), null);
        },
        'stats' => fn ($c) => same('version', ctype_digit($c->version()[0]), true),
        'flush' => function ($c) {
            keeps($c, 'flush', '1');
            $c->flush();
            same('get', $c->get(named('flush')), null);
        },
    ];
}

// Calls that ext-memcached alone has.
function extendedChecks(): array
{
    return [
        'multi_set' => function ($c) {
            $values = numbered(60);
            same('setMulti', $c->setMany($values), true);
            same('get', array_map(fn ($key) => $c->get($key), array_keys($values)), array_values($values));
        },
        'get_delayed' => function ($c) {
            $values = numbered(60);
            $c->setMany($values);
            $found = $c->delayed(array_keys($values));
            ksort($found);
            ksort($values);
            same('getDelayed', $found, $values);
        },
        'cas' => function ($c) {
            $c->set(named('cas'), '1');
            [$value, $unique] = $c->gets(named('cas'));
            same('gets', $value, '1');
            same('cas', $c->cas(named('cas'), '2', $unique), true);
            same('cas with an old unique', $c->cas(named('cas'), '4', $unique), false);
            same('get', $c->get(named('cas')), '2');
        },
        'touch' => function ($c) {
            same('touch nothing', $c->touch(named('nobody'), 100), false);
            $c->set(named('touch'), '1', 2);
            same('touch', $c->touch(named('touch'), 100), true);
            usleep(3200000);
            same('get', $c->get(named('touch')), '1');
        },
        'keys' => function ($c) {
            $c->set(named('listed'), '1');
            for ($turn = 0; !in_array(named('listed'), $c->keys()); $turn++) { // stock lists an item some moments later
                same('listed in time', $turn < 30, true);
                usleep(200000);
            }
        },
        'delete_again' => fn ($c) => same('delete', $c->delete(named('nobody')), false),
        'buffered_writes' => function ($c) {
            $c->setOption(Memcached::OPT_BUFFER_WRITES, true);
            for ($n = 0; $n < 300; $n++) {
                $c->set(named("buffered$n"), "$n");
            }
            // A changed option closes the connections, with what is still on its way; so it stays on until all is read.
            for ($n = 0; $n < 300; $n++) {
                same("get $n", $c->get(named("buffered$n")), "$n");
            }
            $c->setOption(Memcached::OPT_BUFFER_WRITES, false);
        },
        'noreply' => function ($c) {
            $c->setOption(Memcached::OPT_NOREPLY, true);
            for ($n = 0; $n < 300; $n++) {
                $c->set(named('noreply'), "$n");
            }
            same('get', $c->get(named('noreply')), '299');
            $c->setOption(Memcached::OPT_NOREPLY, false);
        },
    ];
}

// Pages that are asked for at once: each process reads and writes one session, which its lock keeps whole.
function sessionChecks(): array
{
    return ['lock' => function ($c, $servers) {
        global $argv;
        $command = [PHP_BINARY, __FILE__, $argv[1], 'count', named('counter'), end($argv)];
        $children = [];
        for ($n = 0; $n < 4; $n++) {
            $children[] = proc_open($command, [], $pipes);
        }
        array_walk($children, fn ($child) => same('exit code', proc_close($child), 0));
        same('pages counted', $c->get(named('counter')), 40);
    }];
}

function concurrent($c, array $servers): void
{
    global $argv;
    $children = [];
    for ($n = 0; $n < 4; $n++) {
        $command = [PHP_BINARY, __FILE__, $argv[1], 'keep', named("p$n"), end($argv)];
        $children[] = proc_open($command, [], $pipes);
    }
    array_walk($children, fn ($child) => same('exit code', proc_close($child), 0));
}

function runChecks($client, array $servers): void
{
    $checks = checks();
    if (!($client instanceof WithSessions)) {
        $checks += $client instanceof WithMemcached ? extendedChecks() + cacheChecks() : cacheChecks();
    } else {
        $checks += sessionChecks();
    }
    if ($client instanceof WithMemcachedBinary) {
        unset($checks['keys']); // the extension lists keys in the text protocol only
    }
    foreach ($checks as $name => $check) {
        try {
            $check($client, $servers);
            say("ok\t$name\n");
        } catch (Throwable $error) {
            say("no\t$name\t", substr(preg_replace('/\s+/', ' ', $error->getMessage()), 0, 200), "\n");
        }
    }
}

// Pairs of a set and the get of a key that was set half a round before, and what each key may hold.
class Loop
{
    private array $stored = [];
    private array $attempted = []; // values whose set failed: it may have been executed, or be so later
    private int $pairs = 0;
    private int $wrong = 0;
    private int $failed = 0;
    private float $gap = 0;
    private float $lastGood;

    public function __construct(private $client)
    {
        $this->lastGood = microtime(true);
    }

    public function run(float $seconds): void
    {
        $deadline = microtime(true) + $seconds;
        for (; microtime(true) < $deadline; $this->pairs++) {
            $name = fn ($n) => named('loop' . $n % KEYS_IN_LOOP);
            $earlier = $name($this->pairs + KEYS_IN_LOOP / 2);
            $good = $this->pair($name($this->pairs), RUN . "-$this->pairs", $earlier);
            usleep($good ? PAUSE_US : 10 * PAUSE_US);
        }
        $this->gap = max($this->gap, microtime(true) - $this->lastGood);
        $this->readAll();
        $gap = round(1000 * $this->gap);
        say("loop\t$this->pairs\t$this->wrong\t$this->failed\t$gap\n");
    }

    private function pair(string $name, string $value, string $earlier): bool
    {
        try {
            if (!@$this->client->set($name, $value)) {
                throw new Exception('not stored');
            }
            $this->stored[$name] = $value;
        } catch (Throwable $error) {
            $this->fail('set', $error->getMessage());
            $this->attempted[$name][] = $value;
        }
        $name = isset($this->stored[$earlier]) ? $earlier : $name;
        try {
            $got = @$this->client->get($name);
        } catch (Throwable $error) {
            return $this->fail('get', $error->getMessage());
        }
        if ($got === null && (isset($this->client->silent) || !isset($this->stored[$name]))) {
            return $this->fail('get', 'nothing');
        }
        if (!$this->allowed($name, $got)) {
            return false;
        }
        $this->gap = max($this->gap, microtime(true) - $this->lastGood);
        $this->lastGood = microtime(true);
        return true;
    }

    private function allowed(string $name, $got): bool
    {
        $may = [$this->stored[$name] ?? null, ...($this->attempted[$name] ?? [])];
        if ($got !== null && in_array($got, $may, true)) {
            return true;
        }
        $this->wrong++;
        say("# wrong: $name is ", var_export($got, true), ", stored $may[0]\n");
        return false;
    }

    private function fail(string $call, string $why): bool
    {
        if (++$this->failed <= 5) {
            say("# $call: $why\n");
        }
        return false;
    }

    private function readAll(): void
    {
        $deadline = microtime(true) + LAST_READ_S;
        foreach (array_keys($this->stored) as $name) {
            do {
                try {
                    $got = @$this->client->get($name);
                } catch (Throwable) {
                    $got = null;
                }
            } while ($got === null && microtime(true) < $deadline && usleep(100000) === null);
            $this->allowed($name, $got);
        }
    }
}

[, $name, $action] = $argv;
$servers = explode(',', end($argv));
$libraries = [
    'memcached' => 'WithMemcached', 'memcached-binary' => 'WithMemcachedBinary', 'memcache' => 'WithMemcache',
    'sessions' => 'WithTextSessions', 'sessions-binary' => 'WithSessions',
];
$client = new $libraries[$name]($servers);
if ($action === 'keep') {
    for ($turn = 0; $turn < 40; $turn++) {
        if (!$client->set($argv[3], "$turn") || $client->get($argv[3]) !== "$turn") {
            exit(1);
        }
    }
    exit(0);
}
if ($action === 'count') {
    for ($turn = 0; $turn < 10; $turn++) {
        session_id(md5($argv[3]));
        session_start();
        $_SESSION['value'] = ($_SESSION['value'] ?? 0) + 1;
        session_write_close();
    }
    exit(0);
}
say("version\t", phpversion($client::EXTENSION), "\n");
$action === 'checks' ? runChecks($client, $servers) : (new Loop($client))->run((float) $argv[3]);
