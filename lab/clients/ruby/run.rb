# Runs Ruby's client libraries of table.toml; lab/clients/python/harness.py tells the command line and the output.
# Dalli is used as its documentation shows, with all servers of a group; Debian's speaks the binary protocol.
require 'dalli'
require 'securerandom'

RUN = SecureRandom.hex(4)
KEYS_IN_LOOP = 40
PAUSE = 0.002 # seconds between two pairs of the loop: a bounded load
LAST_READ = 15 # seconds in which every key of the loop must be readable after it
$stdout.sync = true

def key(name)
  "rb-#{RUN}-#{name}"
end

def same(what, got, expected)
  return if got == expected

  raise "#{what}: got #{got.inspect[0, 60]}, expected #{expected.inspect[0, 60]}"
end

def open_client(servers)
  Dalli.logger.level = Logger::FATAL
  Dalli::Client.new(servers, socket_timeout: 3, socket_failure_delay: 0.01, socket_max_failures: 1,
                             down_retry_delay: 6, failover: true, threadsafe: true)
end

def keeps(client, name, value, **options)
  same('set', client.set(key(name), value, nil, options) ? true : false, true)
  same('get', client.get(key(name), options), value)
end

def raw(client, name, value, ttl = nil)
  client.set(key(name), value, ttl, raw: true)
end

def refused(what)
  stored = begin
    yield
  rescue Dalli::DalliError, ArgumentError
    false
  end
  same(what, stored ? true : false, false)
end

# Dalli says 0 for a replace of what is not there, which Ruby takes for true.
def done?(reply)
  reply && reply != 0 ? true : false
end

# A change that depends on the key: what it does where there is nothing, and where there is a value.
def conditional(client, how, before, after, wants_value)
  options = %i[append prepend].include?(how) ? [] : [nil, { raw: true }]
  first = client.send(how, key("#{how}-first"), '1', *options)
  same("#{how} of what is not there", done?(first), !wants_value)
  raw(client, how, before)
  second = client.send(how, key(how), '1', *options)
  same("#{how} of what is there", done?(second), wants_value)
  same('get', client.get(key(how), raw: true), after)
end

CHECKS = {
  set_get: lambda { |c, _|
    keeps(c, 'a', 'value')
    keeps(c, 'a', 'other')
  },
  missing: ->(c, _) { same('get', c.get(key('nobody')), nil) },
  empty_value: ->(c, _) { keeps(c, 'empty', '', raw: true) },
  structure: ->(c, _) { keeps(c, 'structure', { 'list' => [1, 2.5, nil], 'text' => '日本' }) },
  add: ->(c, _) { conditional(c, :add, 'x', 'x', false) },
  replace: ->(c, _) { conditional(c, :replace, 'x', '1', true) },
  append: ->(c, _) { conditional(c, :append, 'ab', 'ab1', true) },
  prepend: ->(c, _) { conditional(c, :prepend, 'ab', '1ab', true) },
  cas: lambda { |c, _|
    same('cas of nothing', c.cas(key('nobody')) { 'x' }, nil)
    c.set(key('cas'), 1)
    same('cas', c.cas(key('cas')) { |value| value + 1 } ? true : false, true)
    overtaken = c.cas(key('cas')) do |value|
      c.set(key('cas'), 7)
      value + 1
    end
    same('cas of a changed value', overtaken, false)
    same('get', c.get(key('cas')), 7)
  },
  incr: lambda { |c, _|
    same('incr of nothing', c.incr(key('uncounted'), 1), nil)
    same('incr with a default', c.incr(key('counted'), 1, nil, 5), 5)
    raw(c, 'incr', '10')
    same('incr', c.incr(key('incr'), 2**40), 2**40 + 10)
  },
  decr: lambda { |c, _|
    raw(c, 'decr', '10')
    same('decr', c.decr(key('decr'), 3), 7)
    same('decr below zero', c.decr(key('decr'), 100), 0)
  },
  touch: lambda { |c, _|
    same('touch nothing', c.touch(key('nobody'), 100) ? true : false, false)
    c.set(key('touch'), '1', 2)
    same('touch', c.touch(key('touch'), 100) ? true : false, true)
  },
  gat: lambda { |c, _|
    c.set(key('gat'), '1', 2)
    same('gat', c.gat(key('gat'), 100), '1')
  },
  delete: lambda { |c, _|
    keeps(c, 'delete', '1')
    same('delete', c.delete(key('delete')) ? true : false, true)
    same('delete again', c.delete(key('delete')) ? true : false, false)
    same('get', c.get(key('delete')), nil)
  },
  multi_get: lambda { |c, _|
    values = (0...60).to_h { |n| [key("many#{n}"), "v#{n}"] }
    values.each { |name, value| c.set(name, value) }
    same('get of many', c.get_multi(*values.keys, key('nobody')), values)
  },
  multi_set: lambda { |c, _|
    c.multi { 60.times { |n| c.set(key("quiet#{n}"), "v#{n}") } }
    60.times { |n| same("get #{n}", c.get(key("quiet#{n}")), "v#{n}") }
  },
  fetch: lambda { |c, _|
    same('fetch', c.fetch(key('fetch')) { 'made' }, 'made')
    same('fetch again', c.fetch(key('fetch')) { 'again' }, 'made')
  },
  large: ->(c, _) { keeps(c, 'large', SecureRandom.hex(450_000), raw: true) },
  too_large: lambda { |c, _|
    refused('set of 2 MB') { raw(c, 'too_large', SecureRandom.bytes(2_000_000)) }
    3.times { keeps(c, 'after', '1') }
  },
  binary_value: lambda { |c, _|
    keeps(c, 'binary', ((0..255).to_a * 4).pack('C*') + "\r\nEND\r\nVALUE x 0 3\r\nabc\r\n".b, raw: true)
  },
  unicode_value: ->(c, _) { keeps(c, 'unicode', 'naïve — 日本語 🎉') },
  unicode_key: ->(c, _) { keeps(c, 'ключ-日本', '1') },
  long_key: ->(c, _) { keeps(c, 'k' * (250 - key('').length), '1') },
  longer_key: ->(c, _) { keeps(c, 'k' * 400, '1') },
  every_server: lambda { |_, servers|
    clients = servers.map { |server| open_client([server]) }
    clients.each_with_index do |client, n|
      client.set(key('across'), n)
      clients.each { |other| same("written by #{n}, read", other.get(key('across')), n) }
    end
  },
  concurrent: lambda { |c, _|
    threads = (0...6).map do |n|
      Thread.new { 60.times { |turn| keeps(c, "thread#{n}", turn) } }
    end
    threads.each(&:join)
  },
  expiry: lambda { |c, _|
    c.set(key('short'), '1', 2)
    same('get', c.get(key('short')), '1')
    sleep 3.2
    same('get after its time', c.get(key('short')), nil)
    same('get of what was touched', c.get(key('touch')), '1')
  },
  stats: ->(c, _) { same('version', c.stats.values.first['version'].match?(/^\d/), true) },
  flush: lambda { |c, _|
    keeps(c, 'flush', '1')
    c.flush
    same('get', c.get(key('flush')), nil)
  }
}.freeze

def run_checks(client, servers)
  CHECKS.each do |name, check|
    check.call(client, servers)
    puts "ok\t#{name}"
  rescue StandardError => e
    puts "no\t#{name}\t#{e.message.gsub(/\s+/, ' ')[0, 200]}"
  end
end

# Pairs of a set and the get of a key that was set half a round before, and what each key may hold.
class Loop
  def initialize(client)
    @client = client
    @stored = {}
    @attempted = Hash.new { |all, name| all[name] = [] } # their set failed: it may have been executed, or be so later
    @pairs = @wrong = @failed = 0
    @gap = 0.0
    @last_good = now
  end

  def run(seconds)
    deadline = now + seconds
    while now < deadline
      name, earlier = [@pairs, @pairs + KEYS_IN_LOOP / 2].map { |n| key("loop#{n % KEYS_IN_LOOP}") }
      good = pair(name, "#{RUN}-#{@pairs}", earlier)
      @pairs += 1
      sleep(good ? PAUSE : 10 * PAUSE)
    end
    @gap = [@gap, now - @last_good].max
    read_all
    puts "loop\t#{@pairs}\t#{@wrong}\t#{@failed}\t#{(@gap * 1000).round}"
  end

  private

  def now
    Process.clock_gettime(Process::CLOCK_MONOTONIC)
  end

  def pair(name, value, earlier)
    begin
      raise Dalli::DalliError, 'not stored' unless @client.set(name, value)

      @stored[name] = value
    rescue Dalli::DalliError => e
      failed('set', e)
      @attempted[name] << value
    end
    name = earlier if @stored.key?(earlier)
    begin
      got = @client.get(name)
    rescue Dalli::DalliError => e
      return failed('get', e)
    end
    return failed('get', 'nothing') if got.nil? && !@stored.key?(name)
    return false unless allowed(name, got)

    @gap = [@gap, now - @last_good].max
    @last_good = now
    true
  end

  def allowed(name, got)
    return true if !got.nil? && (got == @stored[name] || @attempted[name].include?(got))

    @wrong += 1
    puts "# wrong: #{name} is #{got.inspect}, stored #{@stored[name]}"
    false
  end

  def failed(call, why)
    @failed += 1
    puts "# #{call}: #{why.inspect[0, 120]}" if @failed <= 5
    false
  end

  def read_all
    deadline = now + LAST_READ
    @stored.each_key do |name|
      got = nil
      loop do
        got = begin
          @client.get(name)
        rescue Dalli::DalliError
          nil
        end
        break if !got.nil? || now > deadline

        sleep 0.1
      end
      allowed(name, got)
    end
  end
end

_, action, *rest = ARGV
servers = rest.last.split(',')
puts "version\t#{Dalli::VERSION}"
if action == 'checks'
  run_checks(open_client(servers), servers)
else
  Loop.new(open_client(servers)).run(rest.first.to_f)
end
