# Runs Perl's client libraries of table.toml; lab/clients/python/harness.py tells the command line and the output.
# Each is used as its documentation shows, with all servers of a group.
use strict;
use warnings;
use utf8;
use Encode qw(encode_utf8);
use POSIX ();
use Time::HiRes qw(sleep time);

$| = 1;
my $RUN = sprintf('%x-%x', $$, int(time()));
my $KEYS_IN_LOOP = 40;
my $PAUSE = 0.002;    # seconds between two pairs of the loop: a bounded load
my $LAST_READ = 15;   # seconds in which every key of the loop must be readable after it

sub key { return "pl-$RUN-$_[0]" }

sub same {
    my ($what, $got, $expected) = @_;
    my ($a, $b) = map { defined $_ ? $_ : '(nothing)' } ($got, $expected);
    die sprintf("%s: got %.60s, expected %.60s\n", $what, $a, $b) if $a ne $b;
}

sub yes { return $_[0] ? 'yes' : 'no' }

sub open_fast {
    my @servers = @_;
    require Cache::Memcached::Fast;
    return Cache::Memcached::Fast->new({
        servers => \@servers, connect_timeout => 3, io_timeout => 3, max_failures => 1, failure_timeout => 1,
        ketama_points => 150,
    });
}

sub open_plain {
    my @servers = @_;
    require Cache::Memcached;
    return Cache::Memcached->new({ servers => \@servers, connect_timeout => 3, select_timeout => 3 });
}

sub keeps {
    my ($c, $name, $value) = @_;
    same('set', yes($c->set(key($name), $value)), 'yes');
    same('get', $c->get(key($name)), $value);
}

# A change that depends on the key: what it does where there is nothing, and where there is a value.
sub conditional {
    my ($c, $how, $before, $after, $wants_value) = @_;
    my $first = yes($c->$how(key("$how-first"), '1'));
    same("$how of what is not there", $first, yes(!$wants_value));
    $c->set(key($how), $before);
    same("$how of what is there", yes($c->$how(key($how), '1')), yes($wants_value));
    same('get', $c->get(key($how)), $after);
}

sub cas {
    my ($c) = @_;
    $c->set(key('cas'), '1');
    my $old = $c->gets(key('cas'));
    same('gets', $old->[1], '1');
    same('cas', yes($c->cas(key('cas'), $old->[0], '2')), 'yes');
    same('cas with an old unique', yes($c->cas(key('cas'), $old->[0], '4')), 'no');
    same('get', $c->get(key('cas')), '2');
}

sub multi_get {
    my ($c) = @_;
    my %values = map { (key("many$_"), "v$_") } 0 .. 59;
    $c->set($_, $values{$_}) for keys %values;
    my $found = $c->get_multi(keys(%values), key('nobody'));
    same('keys found', scalar(keys %$found), 60);
    same("get $_", $found->{$_}, $values{$_}) for keys %values;
}

sub multi_set {
    my ($c) = @_;
    $c->set_multi(map { [key("together$_"), "v$_"] } 0 .. 59);
    same("get $_", $c->get(key("together$_")), "v$_") for 0 .. 59;
}

sub too_large {
    my ($c) = @_;
    my $stored = eval { $c->set(key('too_large'), join('', map { chr(rand(256)) } 1 .. 2_000_000)) };
    same('set of 2 MB', yes($stored), 'no');
    keeps($c, 'after', $_) for 1 .. 3;
}

sub every_server {
    my ($c, $open, @servers) = @_;
    my @clients = map { $open->($_) } @servers;
    for my $n (0 .. $#clients) {
        $clients[$n]->set(key('across'), $n);
        same("written by $n, read", $_->get(key('across')), $n) for @clients;
    }
}

sub concurrent {
    my ($c, $open, @servers) = @_;
    my @children;
    for my $n (1 .. 4) {
        my $child = fork();
        if (!$child) {
            $c->disconnect_all;    # the parent's connections are not the child's
            my $own = $open->(@servers);
            for my $turn (1 .. 60) { eval { keeps($own, "process$n", $turn); 1 } or POSIX::_exit(1) }
            POSIX::_exit(0);
        }
        push @children, $child;
    }
    for my $child (@children) { waitpid($child, 0); same('exit code', $?, 0) }
}

sub expiry {
    my ($c) = @_;
    same('set', yes($c->set(key('short'), '1', 2)), 'yes');
    same('get', $c->get(key('short')), '1');
    my $touches = $c->can('touch');
    $c->set(key('touch'), '1', 2);
    if ($touches) {
        same('touch', yes($c->touch(key('touch'), 100)), 'yes');
        same('touch nothing', yes($c->touch(key('nobody'), 100)), 'no');
    }
    sleep 3.2;
    same('get after its time', $c->get(key('short')), undef);
    same('get of what was touched', $c->get(key('touch')), '1') if $touches;
}

sub counters {
    my ($c, $how, $by, $expected) = @_;
    same("$how of nothing", yes($c->$how(key('uncounted'), 1)), 'no');
    $c->set(key($how), '10');
    same($how, $c->$how(key($how), $by), $expected);
}

# A check, the method that it needs, and what it does.
my @CHECKS = (
    [set_get => 'set', sub { keeps($_[0], 'a', 'value'); keeps($_[0], 'a', 'other') }],
    [missing => 'get', sub { same('get', $_[0]->get(key('nobody')), undef) }],
    [empty_value => 'set', sub { keeps($_[0], 'empty', '') }],
    [add => 'add', sub { conditional($_[0], 'add', 'x', 'x', 0) }],
    [replace => 'replace', sub { conditional($_[0], 'replace', 'x', '1', 1) }],
    [append => 'append', sub { conditional($_[0], 'append', 'ab', 'ab1', 1) }],
    [prepend => 'prepend', sub { conditional($_[0], 'prepend', 'ab', '1ab', 1) }],
    [cas => 'cas', \&cas],
    [incr => 'incr', sub { counters($_[0], 'incr', 10**12, 10**12 + 10) }],
    [decr => 'decr', sub { counters($_[0], 'decr', 3, 7); same('below zero', $_[0]->decr(key('decr'), 99) + 0, 0) }],
    [delete => 'delete', sub {
        keeps($_[0], 'delete', '1');
        same('delete', yes($_[0]->delete(key('delete'))), 'yes');
        same('delete again', yes($_[0]->delete(key('delete'))), 'no');
        same('get', $_[0]->get(key('delete')), undef);
    }],
    [multi_get => 'get_multi', \&multi_get],
    [multi_set => 'set_multi', \&multi_set],
    [large => 'set', sub { keeps($_[0], 'large', join('', map { chr($_ * 7 % 256) } 1 .. 900_000)) }],
    [too_large => 'set', \&too_large],
    [binary_value => 'set', sub { keeps($_[0], 'binary', join('', map { chr($_ % 256) } 0 .. 1023) . "\r\nEND\r\n") }],
    [unicode_value => 'set', sub { keeps($_[0], 'unicode', encode_utf8('naïve — 日本語 🎉')) }],
    [structure => 'set', sub {
        $_[0]->set(key('structure'), { list => [1, 2, 'x'] });
        same('get', $_[0]->get(key('structure'))->{list}[2], 'x');
    }],
    [long_key => 'set', sub { keeps($_[0], 'k' x (250 - length key('')), '1') }],
    [every_server => 'set', \&every_server],
    [noreply => 'set', sub {
        $_[0]->set(key('noreply'), $_) for 1 .. 300;    # in void context both libraries wait for no reply
        same('get', $_[0]->get(key('noreply')), 300);
    }],
    [concurrent => 'set', \&concurrent],
    [expiry => 'set', \&expiry],
    [stats => 'server_versions', sub { same('digit', yes((values %{ $_[0]->server_versions })[0] =~ /^\d/), 'yes') }],
    [flush => 'flush_all', sub { keeps($_[0], 'f', 1); $_[0]->flush_all; same('get', $_[0]->get(key('f')), undef) }],
);

sub run_checks {
    my ($open, @servers) = @_;
    my $client = $open->(@servers);
    for my $check (@CHECKS) {
        my ($name, $needs, $code) = @$check;
        next if !$client->can($needs);
        if (eval { $code->($client, $open, @servers); 1 }) { print "ok\t$name\n"; next }
        my $why = $@;
        $why =~ s/\s+/ /g;
        printf "no\t%s\t%.200s\n", $name, $why;
    }
}

# Pairs of a set and the get of a key that was set half a round before, and what each key may hold. Both libraries say
# nothing of why a call failed.
sub run_loop {
    my ($client, $seconds) = @_;
    my (%stored, %attempted);    # attempted: their set failed, it may have been executed or be so later
    my ($pairs, $wrong, $failed, $gap, $last) = (0, 0, 0, 0, time());
    my $allowed = sub {
        my ($name, $got) = @_;
        return 1 if defined $got && ($got eq ($stored{$name} // '') || $attempted{$name}{$got});
        $wrong++;
        print "# wrong: $name is ", $got // '(nothing)', ", stored ", $stored{$name} // '(nothing)', "\n";
        return 0;
    };
    for (my $end = time() + $seconds; time() < $end; $pairs++) {
        my ($name, $value) = (key('loop' . $pairs % $KEYS_IN_LOOP), "$RUN-$pairs");
        if (eval { $client->set($name, $value) }) { $stored{$name} = $value }
        else { $failed++; $attempted{$name}{$value} = 1 }
        my $earlier = key('loop' . ($pairs + $KEYS_IN_LOOP / 2) % $KEYS_IN_LOOP);
        $name = $earlier if defined $stored{$earlier};
        my $got = eval { $client->get($name) };
        if (!defined $got) { $failed++; sleep 10 * $PAUSE; next }
        if ($allowed->($name, $got)) {
            $gap = time() - $last if time() - $last > $gap;
            $last = time();
        }
        sleep $PAUSE;
    }
    $gap = time() - $last if time() - $last > $gap;
    my $end = time() + $LAST_READ;
    for my $name (keys %stored) {
        my $got = $client->get($name);
        while (!defined $got && time() < $end) { sleep 0.1; $got = $client->get($name) }
        $allowed->($name, $got);
    }
    printf "loop\t%d\t%d\t%d\t%d\n", $pairs, $wrong, $failed, 1000 * $gap;
}

my %LIBRARIES = (
    'Cache::Memcached::Fast' => \&open_fast,
    'Cache::Memcached' => \&open_plain,
);
my ($name, $action, @rest) = @ARGV;
my $open = $LIBRARIES{$name} or die "no library is called $name\n";
my @servers = split /,/, $rest[-1];
my $client = $open->(@servers);
print "version\t", $name->VERSION, "\n";
if ($action eq 'checks') { run_checks($open, @servers) }
else { run_loop($client, $rest[0]) }
