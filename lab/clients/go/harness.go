// What every Go library of table.toml has to do; lab/clients/python/harness.py tells the command line and the output.
package main

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	keysInLoop = 40
	pause      = 2 * time.Millisecond // between two pairs of the loop: a bounded load
	lastRead   = 15 * time.Second     // in which every key of the loop must be readable after it
)

var run = func() string {
	random := make([]byte, 4)
	rand.Read(random)
	return fmt.Sprintf("%x", random)
}()

// library is an adapter: a check whose function an adapter leaves out is not made. A call tells whether it had an
// effect; an error is one of the library that says something else than "not there" or "not stored".
type library struct {
	set      func(key string, value []byte, seconds int32) (bool, error)
	get      func(key string) ([]byte, error) // nil: not there
	add      func(key string, value []byte) (bool, error)
	replace  func(key string, value []byte) (bool, error)
	append   func(key string, value []byte) (bool, error)
	prepend  func(key string, value []byte) (bool, error)
	incr     func(key string, delta uint64) (uint64, bool, error)
	decr     func(key string, delta uint64) (uint64, bool, error)
	touch    func(key string, seconds int32) (bool, error)
	gat      func(key string, seconds int32) ([]byte, error)
	delete   func(key string) (bool, error)
	getMany  func(keys []string) (map[string][]byte, error)
	gets     func(key string) (any, error)
	cas      func(item any, value []byte) (bool, error)
	ping     func() error
	flush    func() error
	servers  []string
	making   func(servers []string) *library
	silently bool // a read of the loop that finds nothing may be a failed call
}

// checking has the first thing that was not as it should be.
type checking struct{ why string }

func (c *checking) same(what string, got any, err error, expected any) {
	if c.why != "" {
		return
	}
	if err != nil {
		c.why = fmt.Sprintf("%s: %v", what, err)
	} else if a, b := fmt.Sprintf("%q", got), fmt.Sprintf("%q", expected); a != b {
		c.why = fmt.Sprintf("%s: got %.80s, expected %.80s", what, a, b)
	}
}

func key(name string) string { return "go-" + run + "-" + name }

func text(value []byte) string {
	if value == nil {
		return "(nothing)"
	}
	return string(value)
}

func (c *checking) holds(l *library, name, expected string) {
	value, err := l.get(key(name))
	c.same("get", text(value), err, expected)
}

func (c *checking) stores(l *library, name, value string) {
	stored, err := l.set(key(name), []byte(value), 0)
	c.same("set", stored, err, true)
}

type check struct {
	name    string
	offered bool
	run     func(c *checking)
}

func checks(l *library) []check {
	return append(plainChecks(l), append(conditionalChecks(l), sizeChecks(l)...)...)
}

func plainChecks(l *library) []check {
	return []check{
		{"set_get", true, func(c *checking) {
			c.stores(l, "a", "value")
			c.holds(l, "a", "value")
			c.stores(l, "a", "other")
			c.holds(l, "a", "other")
		}},
		{"missing", true, func(c *checking) { c.holds(l, "nobody", "(nothing)") }},
		{"empty_value", true, func(c *checking) {
			c.stores(l, "empty", "")
			c.holds(l, "empty", "")
		}},
		{"incr", l.incr != nil, func(c *checking) {
			_, found, err := l.incr(key("nobody"), 1)
			c.same("incr of nothing", found, err, false)
			c.stores(l, "incr", "10")
			value, _, err := l.incr(key("incr"), 1<<40)
			c.same("incr", value, err, uint64(1<<40+10))
		}},
		{"decr", l.decr != nil, func(c *checking) {
			c.stores(l, "decr", "10")
			value, _, err := l.decr(key("decr"), 3)
			c.same("decr", value, err, uint64(7))
			value, _, err = l.decr(key("decr"), 100)
			c.same("decr below zero", value, err, uint64(0))
		}},
		{"touch", l.touch != nil, func(c *checking) {
			found, err := l.touch(key("nobody"), 100)
			c.same("touch nothing", found, err, false)
			l.set(key("touch"), []byte("1"), 2)
			found, err = l.touch(key("touch"), 100)
			c.same("touch", found, err, true)
		}},
		{"gat", l.gat != nil, func(c *checking) {
			l.set(key("gat"), []byte("1"), 2)
			value, err := l.gat(key("gat"), 100)
			c.same("gat", text(value), err, "1")
			value, err = l.gat(key("nobody"), 100)
			c.same("gat of nothing", text(value), err, "(nothing)")
		}},
		{"delete", true, func(c *checking) {
			c.stores(l, "delete", "1")
			found, err := l.delete(key("delete"))
			c.same("delete", found, err, true)
			found, err = l.delete(key("delete"))
			c.same("delete again", found, err, false)
			c.holds(l, "delete", "(nothing)")
		}},
		{"multi_get", l.getMany != nil, func(c *checking) {
			expected, keys := map[string][]byte{}, []string{key("nobody")}
			for n := 0; n < 60; n++ {
				name := fmt.Sprintf("many%d", n)
				c.stores(l, name, strconv.Itoa(n))
				keys, expected[key(name)] = append(keys, key(name)), []byte(strconv.Itoa(n))
			}
			found, err := l.getMany(keys)
			c.same("get of many", found, err, expected)
		}},
	}
}

func conditionalChecks(l *library) []check {
	return []check{
		{"add", l.add != nil, func(c *checking) {
			stored, err := l.add(key("add"), []byte("1"))
			c.same("add", stored, err, true)
			stored, err = l.add(key("add"), []byte("2"))
			c.same("add again", stored, err, false)
			c.holds(l, "add", "1")
		}},
		{"replace", l.replace != nil, func(c *checking) {
			stored, err := l.replace(key("replace"), []byte("1"))
			c.same("replace what is not there", stored, err, false)
			c.stores(l, "replace", "1")
			stored, err = l.replace(key("replace"), []byte("2"))
			c.same("replace", stored, err, true)
			c.holds(l, "replace", "2")
		}},
		{"append", l.append != nil, func(c *checking) {
			stored, err := l.append(key("append"), []byte("1"))
			c.same("append to nothing", stored, err, false)
			c.stores(l, "append", "ab")
			stored, err = l.append(key("append"), []byte("c"))
			c.same("append", stored, err, true)
			c.holds(l, "append", "abc")
		}},
		{"prepend", l.prepend != nil, func(c *checking) {
			stored, err := l.prepend(key("prepend"), []byte("1"))
			c.same("prepend to nothing", stored, err, false)
			c.stores(l, "prepend", "bc")
			stored, err = l.prepend(key("prepend"), []byte("a"))
			c.same("prepend", stored, err, true)
			c.holds(l, "prepend", "abc")
		}},
		{"cas", l.cas != nil, func(c *checking) {
			c.stores(l, "cas", "1")
			old, err := l.gets(key("cas"))
			c.same("gets", err == nil, err, true)
			stored, err := l.cas(old, []byte("2"))
			c.same("cas", stored, err, true)
			c.stores(l, "cas", "3")
			stored, err = l.cas(old, []byte("4"))
			c.same("cas with an old unique", stored, err, false)
			c.holds(l, "cas", "3")
		}},
	}
}

func sizeChecks(l *library) []check {
	large := bytes.Repeat([]byte("0123456789abcdef\r\n"), 50_000)
	all := make([]byte, 1024)
	for n := range all {
		all[n] = byte(n)
	}
	binary := string(all) + "\r\nEND\r\nVALUE x 0 3\r\nabc\r\n"
	return []check{
		{"large", true, func(c *checking) {
			stored, err := l.set(key("large"), large, 0)
			c.same("set", stored, err, true)
			value, err := l.get(key("large"))
			c.same("get", bytes.Equal(value, large), err, true)
		}},
		{"too_large", true, func(c *checking) {
			stored, _ := l.set(key("too_large"), make([]byte, 2_000_000), 0)
			c.same("set of 2 MB", stored, nil, false)
			for n := 0; n < 3; n++ {
				c.stores(l, "after", "1")
				c.holds(l, "after", "1")
			}
		}},
		{"binary_value", true, func(c *checking) {
			c.stores(l, "binary", binary)
			c.holds(l, "binary", binary)
		}},
		{"unicode_value", true, func(c *checking) {
			c.stores(l, "unicode", "naïve — 日本語 🎉")
			c.holds(l, "unicode", "naïve — 日本語 🎉")
		}},
		{"unicode_key", true, func(c *checking) {
			c.stores(l, "ключ-日本", "1")
			c.holds(l, "ключ-日本", "1")
		}},
		{"long_key", true, func(c *checking) {
			name := strings.Repeat("k", 250-len(key("")))
			c.stores(l, name, "1")
			c.holds(l, name, "1")
		}},
		{"key_too_long", true, func(c *checking) {
			stored, _ := l.set(strings.Repeat("k", 251), []byte("1"), 0)
			c.same("set", stored, nil, false)
			c.stores(l, "after", "1")
		}},
		{"every_server", true, func(c *checking) { everyServer(c, l) }},
		{"concurrent", true, func(c *checking) { concurrent(c, l) }},
		{"expiry", true, func(c *checking) {
			l.set(key("short"), []byte("1"), 2)
			c.holds(l, "short", "1")
			time.Sleep(3200 * time.Millisecond)
			c.holds(l, "short", "(nothing)")
			if l.touch != nil {
				c.holds(l, "touch", "1")
			}
		}},
		{"ping", l.ping != nil, func(c *checking) { c.same("ping", true, l.ping(), true) }},
		{"flush", true, func(c *checking) {
			c.stores(l, "flush", "1")
			c.same("flush", true, l.flush(), true)
			c.holds(l, "flush", "(nothing)")
		}},
	}
}

func everyServer(c *checking, l *library) {
	var clients []*library
	for _, server := range l.servers {
		clients = append(clients, l.making([]string{server}))
	}
	for n, client := range clients {
		c.stores(client, "across", strconv.Itoa(n))
		for _, other := range clients {
			c.holds(other, "across", strconv.Itoa(n))
		}
	}
}

func concurrent(c *checking, l *library) {
	var all sync.WaitGroup
	found := make([]checking, 16)
	for n := range found {
		all.Add(1)
		go func(c *checking, name string) {
			defer all.Done()
			for turn := 0; turn < 40; turn++ {
				c.stores(l, name, strconv.Itoa(turn))
				c.holds(l, name, strconv.Itoa(turn))
			}
		}(&found[n], fmt.Sprintf("task%d", n))
	}
	all.Wait()
	for n := range found {
		c.same("a goroutine", found[n].why, nil, "")
	}
}

// loop makes pairs of a set and the get of a key that was set half a round before, and knows what each key may hold.
type loop struct {
	library              *library
	stored               map[string]string
	attempted            map[string]map[string]bool // their set failed: it may have been executed, or be so later
	pairs, wrong, failed int
	gap                  time.Duration
	lastGood             time.Time
}

func (l *loop) run(seconds float64) {
	l.lastGood = time.Now()
	deadline := time.Now().Add(time.Duration(seconds * float64(time.Second)))
	for ; time.Now().Before(deadline); l.pairs++ {
		name := key(fmt.Sprintf("loop%d", l.pairs%keysInLoop))
		earlier := key(fmt.Sprintf("loop%d", (l.pairs+keysInLoop/2)%keysInLoop))
		if l.pair(name, fmt.Sprintf("%s-%d", run, l.pairs), earlier) {
			time.Sleep(pause)
		} else {
			time.Sleep(10 * pause)
		}
	}
	l.gap = max(l.gap, time.Since(l.lastGood))
	l.readAll()
	fmt.Printf("loop\t%d\t%d\t%d\t%d\n", l.pairs, l.wrong, l.failed, l.gap.Milliseconds())
}

func (l *loop) pair(name, value, earlier string) bool {
	if stored, err := l.library.set(name, []byte(value), 0); err == nil && stored {
		l.stored[name] = value
	} else {
		l.fail("set", err)
		if l.attempted[name] == nil {
			l.attempted[name] = map[string]bool{}
		}
		l.attempted[name][value] = true
	}
	if l.stored[earlier] != "" {
		name = earlier
	}
	got, err := l.library.get(name)
	if err != nil || got == nil && (l.library.silently || l.stored[name] == "") {
		l.fail("get", err)
		return false
	}
	if !l.allowed(name, text(got)) {
		return false
	}
	l.gap = max(l.gap, time.Since(l.lastGood))
	l.lastGood = time.Now()
	return true
}

func (l *loop) allowed(name, got string) bool {
	if got == l.stored[name] || l.attempted[name][got] {
		return true
	}
	l.wrong++
	fmt.Printf("# wrong: %s is %.60q, stored %q\n", name, got, l.stored[name])
	return false
}

func (l *loop) fail(call string, err error) {
	if l.failed++; l.failed <= 5 {
		fmt.Printf("# %s: %.120v\n", call, err)
	}
}

func (l *loop) readAll() {
	deadline := time.Now().Add(lastRead)
	for name := range l.stored {
		got, err := l.library.get(name)
		for (err != nil || got == nil) && time.Now().Before(deadline) {
			time.Sleep(100 * time.Millisecond)
			got, err = l.library.get(name)
		}
		l.allowed(name, text(got))
	}
}

func harness(libraries map[string]func(servers []string) *library, versions map[string]string) {
	name, action, rest := os.Args[1], os.Args[2], os.Args[3:]
	servers := strings.Split(rest[len(rest)-1], ",")
	fmt.Printf("version\t%s\n", versions[name])
	client := libraries[name](servers)
	client.servers, client.making = servers, libraries[name]
	if action == "loop" {
		seconds, _ := strconv.ParseFloat(rest[0], 64)
		pairs := loop{library: client, stored: map[string]string{}, attempted: map[string]map[string]bool{}}
		pairs.run(seconds)
		return
	}
	for _, one := range checks(client) {
		if !one.offered {
			continue
		}
		var c checking
		if one.run(&c); c.why == "" {
			fmt.Printf("ok\t%s\n", one.name)
		} else {
			fmt.Printf("no\t%s\t%.200s\n", one.name, strings.Join(strings.Fields(c.why), " "))
		}
	}
}
