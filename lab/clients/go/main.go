// Adapters for Go's libraries: each is used as its documentation shows, with all servers of a group.
package main

import (
	"errors"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"

	gomemcache "github.com/bradfitz/gomemcache/memcache"
	rainycape "github.com/rainycape/memcache"
)

// next has one client per server, and goes on with the next one when a call fails: neither library leaves a dead
// server out of its hash, so its users do this where every server has all data.
type next[C any] struct {
	clients []C
	current atomic.Int64
}

// call tells whether the call had an effect; the errors in `no` say that it had none.
func (n *next[C]) call(do func(client C) error, no ...error) (bool, error) {
	var err error
	for range n.clients {
		at := n.current.Load()
		if err = do(n.clients[at%int64(len(n.clients))]); err == nil {
			return true, nil
		}
		for _, one := range no {
			if errors.Is(err, one) {
				return false, nil
			}
		}
		if errors.Is(err, gomemcache.ErrServerError) || errors.Is(err, gomemcache.ErrMalformedKey) {
			return false, err
		}
		n.current.CompareAndSwap(at, at+1)
	}
	return false, err
}

func openGomemcache(servers []string) *library {
	clients := &next[*gomemcache.Client]{}
	for _, server := range servers {
		client := gomemcache.New(server)
		client.Timeout = 3 * time.Second
		client.MaxIdleConns = 16
		clients.clients = append(clients.clients, client)
	}
	clients.current.Store(1) // the server that is killed under the loop
	type client = *gomemcache.Client
	no := []error{gomemcache.ErrCacheMiss, gomemcache.ErrNotStored, gomemcache.ErrCASConflict}
	item := func(key string, value []byte) *gomemcache.Item { return &gomemcache.Item{Key: key, Value: value} }
	store := func(how func(c client, item *gomemcache.Item) error) func(string, []byte) (bool, error) {
		return func(key string, value []byte) (bool, error) {
			return clients.call(func(c client) error { return how(c, item(key, value)) }, no...)
		}
	}
	read := func(how func(c client) (*gomemcache.Item, error)) (value []byte, err error) {
		_, err = clients.call(func(c client) error {
			found, err := how(c)
			if err == nil {
				value = append([]byte{}, found.Value...)
			}
			return err
		}, no...)
		return value, err
	}
	type counting = func(c client, key string, delta uint64) (uint64, error)
	count := func(how counting) func(string, uint64) (uint64, bool, error) {
		return func(key string, delta uint64) (value uint64, found bool, err error) {
			found, err = clients.call(func(c client) (err error) { value, err = how(c, key, delta); return err }, no...)
			return value, found, err
		}
	}
	l := &library{
		set: func(key string, value []byte, seconds int32) (bool, error) {
			one := gomemcache.Item{Key: key, Value: value, Expiration: seconds}
			return clients.call(func(c client) error { return c.Set(&one) }, no...)
		},
		get: func(key string) ([]byte, error) {
			return read(func(c client) (*gomemcache.Item, error) { return c.Get(key) })
		},
		gat: func(key string, seconds int32) ([]byte, error) {
			return read(func(c client) (*gomemcache.Item, error) { return c.GetAndTouch(key, seconds) })
		},
		add:     store(client.Add),
		replace: store(client.Replace),
		append:  store(client.Append),
		prepend: store(client.Prepend),
		incr:    count(client.Increment),
		decr:    count(client.Decrement),
		touch: func(key string, seconds int32) (bool, error) {
			return clients.call(func(c client) error { return c.Touch(key, seconds) }, no...)
		},
		delete: func(key string) (bool, error) {
			return clients.call(func(c client) error { return c.Delete(key) }, no...)
		},
		gets: func(key string) (any, error) { return clients.clients[0].Get(key) },
		cas: func(old any, value []byte) (bool, error) {
			changed := *old.(*gomemcache.Item)
			changed.Value = value
			return clients.call(func(c client) error { return c.CompareAndSwap(&changed) }, no...)
		},
		ping:  clients.clients[0].Ping,
		flush: clients.clients[0].FlushAll,
	}
	l.getMany = func(keys []string) (map[string][]byte, error) {
		found, err := clients.clients[0].GetMulti(keys)
		values := map[string][]byte{}
		for key, item := range found {
			values[key] = item.Value
		}
		return values, err
	}
	return l
}

func openRainycape(servers []string) *library {
	clients := &next[*rainycape.Client]{}
	for _, server := range servers {
		client, err := rainycape.New(server)
		if err != nil {
			panic(err)
		}
		client.SetTimeout(3 * time.Second)
		clients.clients = append(clients.clients, client)
	}
	clients.current.Store(1) // the server that is killed under the loop
	type client = *rainycape.Client
	no := []error{rainycape.ErrCacheMiss, rainycape.ErrNotStored, rainycape.ErrCASConflict}
	l := &library{
		set: func(key string, value []byte, seconds int32) (bool, error) {
			one := rainycape.Item{Key: key, Value: value, Expiration: seconds}
			return clients.call(func(c client) error { return c.Set(&one) }, no...)
		},
		get: func(key string) (value []byte, err error) {
			_, err = clients.call(func(c client) error {
				found, err := c.Get(key)
				if err == nil {
					value = append([]byte{}, found.Value...)
				}
				return err
			}, no...)
			return value, err
		},
		add: func(key string, value []byte) (bool, error) {
			return clients.call(func(c client) error { return c.Add(&rainycape.Item{Key: key, Value: value}) }, no...)
		},
		incr: func(key string, delta uint64) (value uint64, found bool, err error) {
			found, err = clients.call(func(c client) (err error) { value, err = c.Increment(key, delta); return err }, no...)
			return value, found, err
		},
		decr: func(key string, delta uint64) (value uint64, found bool, err error) {
			found, err = clients.call(func(c client) (err error) { value, err = c.Decrement(key, delta); return err }, no...)
			return value, found, err
		},
		delete: func(key string) (bool, error) {
			return clients.call(func(c client) error { return c.Delete(key) }, no...)
		},
		gets: func(key string) (any, error) { return clients.clients[0].Get(key) },
		cas: func(old any, value []byte) (bool, error) {
			changed := *old.(*rainycape.Item)
			changed.Value = value
			return clients.call(func(c client) error { return c.CompareAndSwap(&changed) }, no...)
		},
		flush: func() error { return clients.clients[0].Flush(0) },
	}
	l.getMany = func(keys []string) (map[string][]byte, error) {
		found, err := clients.clients[0].GetMulti(keys)
		values := map[string][]byte{}
		for key, item := range found {
			values[key] = item.Value
		}
		return values, err
	}
	return l
}

// version is that of a module of go.mod; both have no numbers, so it is a date.
func version(module string) string {
	info, _ := debug.ReadBuildInfo()
	for _, one := range info.Deps {
		if one.Path == module {
			return strings.Split(one.Version, "-")[1][:8]
		}
	}
	return ""
}

func main() {
	harness(map[string]func(servers []string) *library{
		"gomemcache": openGomemcache,
		"rainycape":  openRainycape,
	}, map[string]string{
		"gomemcache": version("github.com/bradfitz/gomemcache"),
		"rainycape":  version("github.com/rainycape/memcache"),
	})
}
