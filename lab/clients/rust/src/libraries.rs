//! Adapters: each library is used as its documentation shows, with one client per server. None of them leaves a dead
//! server out, so their users go on with the next client where every server has all data.

use crate::{Library, Make, Said};
use async_memcached::{AsciiProtocol, Error, MetaProtocol, Status};
use memcache::{CommandError, MemcacheError};
use std::collections::HashMap;
use std::time::Duration;
use tokio::runtime::Runtime;

/// The version of a library, and how its adapter is made.
pub fn find(name: &str) -> (&'static str, Make) {
    match name {
        "memcache" => ("0.21.0", |servers| Box::new(Memcache::new(servers, "&protocol=ascii", false))),
        "memcache-binary" => ("0.21.0", |servers| Box::new(Memcache::new(servers, "", true))),
        "async-memcached" => ("0.9.0", |servers| Box::new(AsyncMemcached::new(servers, false))),
        "async-memcached-meta" => ("0.9.0", |servers| Box::new(AsyncMemcached::new(servers, true))),
        _ => panic!("no library is called {name}"),
    }
}

/// The second server, the one that is killed under the loop.
fn first(servers: &[String]) -> usize {
    1 % servers.len()
}

struct Memcache {
    urls: Vec<String>,
    clients: Vec<Option<memcache::Client>>,
    current: usize,
    binary: bool,
}

impl Memcache {
    fn new(servers: &[String], protocol: &str, binary: bool) -> Memcache {
        let urls: Vec<_> = servers
            .iter()
            .map(|server| format!("memcache://{server}?timeout=3&tcp_nodelay=true{protocol}"))
            .collect();
        Memcache { clients: urls.iter().map(|_| None).collect(), current: first(servers), urls, binary }
    }

    /// What `call` says on the first client that answers; `nothing` where the key was not there or not stored.
    fn call<T>(
        &mut self,
        nothing: T,
        call: impl Fn(&memcache::Client) -> Result<T, MemcacheError>,
    ) -> Said<T> {
        let mut last = String::new();
        for _ in 0..self.urls.len() {
            let said = self.client().and_then(&call);
            match said {
                Ok(said) => return Ok(said),
                Err(MemcacheError::CommandError(CommandError::KeyNotFound | CommandError::KeyExists)) => {
                    return Ok(nothing);
                }
                Err(MemcacheError::CommandError(CommandError::Unknown(5))) => return Ok(nothing), // not stored
                Err(error @ (MemcacheError::CommandError(_) | MemcacheError::ClientError(_))) => {
                    return Err(error.to_string());
                }
                Err(error) => last = error.to_string(),
            }
            self.clients[self.current] = None;
            self.current = (self.current + 1) % self.urls.len();
        }
        Err(last)
    }

    fn client(&mut self) -> Result<&memcache::Client, MemcacheError> {
        if self.clients[self.current].is_none() {
            let builder = memcache::Client::builder().add_server(self.urls[self.current].as_str())?;
            let client = builder.with_connection_timeout(Duration::from_secs(1)).build()?;
            self.clients[self.current] = Some(client);
        }
        Ok(self.clients[self.current].as_ref().expect("it was just made"))
    }
}

impl Library for Memcache {
    fn set(&mut self, key: &str, value: &[u8], seconds: u32) -> Said<bool> {
        self.call(false, |client| client.set(key, value, seconds).map(|()| true))
    }

    fn get(&mut self, key: &str) -> Said<Option<Vec<u8>>> {
        self.call(None, |client| client.get(key))
    }

    fn get_many(&mut self, keys: &[&str]) -> Said<Vec<(String, Vec<u8>)>> {
        let found: HashMap<String, Vec<u8>> = self.call(HashMap::new(), |client| client.gets(keys))?;
        Ok(found.into_iter().collect())
    }

    fn delete(&mut self, key: &str) -> Said<bool> {
        self.call(false, |client| client.delete(key))
    }

    fn count(&mut self, key: &str, delta: i64) -> Said<Option<u64>> {
        let by = delta.unsigned_abs();
        self.call(None, |client| {
            if delta < 0 { client.decrement(key, by) } else { client.increment(key, by) }.map(Some)
        })
    }

    fn store(&mut self, how: &str, key: &str, value: &[u8]) -> Option<Said<bool>> {
        Some(self.call(false, |client| {
            match how {
                "add" => client.add(key, value, 0),
                "replace" => client.replace(key, value, 0),
                "append" => client.append(key, value),
                _ => client.prepend(key, value),
            }
            .map(|()| true)
        }))
    }

    fn touch(&mut self, key: &str, seconds: u32) -> Option<Said<bool>> {
        Some(self.call(false, |client| client.touch(key, seconds)))
    }

    fn gets(&mut self, key: &str) -> Option<Said<u64>> {
        let found = self.call(HashMap::new(), |client| client.gets::<(Vec<u8>, u32, Option<u64>)>(&[key]));
        Some(found.and_then(|found| found.get(key).and_then(|item| item.2).ok_or("no unique".to_owned())))
    }

    fn cas(&mut self, key: &str, value: &[u8], unique: u64) -> Said<bool> {
        self.call(false, |client| client.cas(key, value, 0, unique))
    }

    fn version(&mut self) -> Said<String> {
        self.call(String::new(), |client| client.version().map(|all| all[0].1.clone()))
    }

    fn flush(&mut self) -> Said<()> {
        self.call((), memcache::Client::flush)
    }

    /// The binary protocol makes a counter that is not there.
    fn new_counter(&self) -> Option<u64> {
        self.binary.then_some(0)
    }

    /// In the text protocol it takes NOT_STORED for success.
    fn distinguishes(&self) -> bool {
        self.binary
    }
}

struct AsyncMemcached {
    runtime: Runtime,
    servers: Vec<String>,
    client: Option<async_memcached::Client>,
    current: usize,
    meta: bool,
}

/// The same call on a client, as a future; on a broken connection the next client makes it again.
macro_rules! call {
    ($self:ident, $client:ident => $call:expr) => {{
        let mut last = String::new();
        let mut said = None;
        for _ in 0..$self.servers.len() {
            let result = $self.runtime.block_on(async {
                let limit = Duration::from_secs(3);
                if $self.client.is_none() {
                    let dsn = format!("tcp://{}", $self.servers[$self.current]);
                    let client = tokio::time::timeout(limit, async_memcached::Client::new(dsn)).await;
                    $self.client = Some(client.map_err(|late| Error::Io(late.into()))??);
                }
                let $client = $self.client.as_mut().expect("it was just made");
                tokio::time::timeout(limit, $call).await.map_err(|late| Error::Io(late.into()))?
            });
            match result {
                Err(error @ (Error::Connect(_) | Error::ConnectionClosed | Error::Io(_))) => {
                    last = error.to_string()
                }
                result => {
                    said = Some(result);
                    break;
                }
            }
            $self.client = None;
            $self.current = ($self.current + 1) % $self.servers.len();
        }
        said.ok_or(last)?
    }};
}

/// `nothing` where an error says that the key was not there or not stored.
fn reported<T>(said: Result<T, Error>, nothing: T) -> Said<T> {
    match said {
        Ok(said) => Ok(said),
        Err(Error::Protocol(Status::NotFound | Status::NotStored | Status::Exists)) => Ok(nothing),
        Err(error) => Err(error.to_string()),
    }
}

impl AsyncMemcached {
    fn new(servers: &[String], meta: bool) -> AsyncMemcached {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        AsyncMemcached { runtime, servers: servers.to_vec(), client: None, current: first(servers), meta }
    }

    /// Stores by the meta command, whose mode says how.
    fn meta_store(&mut self, key: &str, value: &[u8], flags: &[&str]) -> Said<bool> {
        let said = call!(self, client => client.meta_set(key, value, false, None, Some(flags)));
        reported(said.map(|_| true), false)
    }
}

impl Library for AsyncMemcached {
    fn set(&mut self, key: &str, value: &[u8], seconds: u32) -> Said<bool> {
        if self.meta {
            return self.meta_store(key, value, &[&format!("T{seconds}")]);
        }
        let ttl = Some(i64::from(seconds));
        reported(call!(self, client => client.set(key, value, ttl, None)).map(|()| true), false)
    }

    fn get(&mut self, key: &str) -> Said<Option<Vec<u8>>> {
        if self.meta {
            let found = reported(call!(self, client => client.meta_get(key, false, None, Some(&["v"]))), None)?;
            return Ok(found.map(|item| item.data.unwrap_or_default()));
        }
        let found = reported(call!(self, client => client.get(key)), None)?;
        Ok(found.map(|item| item.data.unwrap_or_default()))
    }

    fn get_many(&mut self, keys: &[&str]) -> Said<Vec<(String, Vec<u8>)>> {
        let pair = |key: Vec<u8>, data: Option<Vec<u8>>| {
            (String::from_utf8_lossy(&key).into_owned(), data.unwrap_or_default())
        };
        if self.meta {
            let found = reported(call!(self, client => client.meta_get_multi(keys, Some(&["v"]))), Vec::new())?;
            return Ok(found.into_iter().map(|item| pair(item.key.unwrap_or_default(), item.data)).collect());
        }
        let found = reported(call!(self, client => client.get_multi(keys)), Vec::new())?;
        Ok(found.into_iter().map(|item| pair(item.key, item.data)).collect())
    }

    fn delete(&mut self, key: &str) -> Said<bool> {
        if self.meta {
            let said = call!(self, client => client.meta_delete(key, false, None, None));
            return reported(said.map(|_| true), false);
        }
        reported(call!(self, client => client.delete(key)).map(|()| true), false)
    }

    fn count(&mut self, key: &str, delta: i64) -> Said<Option<u64>> {
        let by = delta.unsigned_abs();
        if self.meta {
            let item = if delta < 0 {
                call!(self, client => client.meta_decrement(key, false, None, Some(by), Some(&["v"])))
            } else {
                call!(self, client => client.meta_increment(key, false, None, Some(by), Some(&["v"])))
            };
            let data = reported(item, None)?.and_then(|item| item.data);
            return Ok(data.and_then(|data| String::from_utf8_lossy(&data).trim().parse().ok()));
        }
        let said = if delta < 0 {
            call!(self, client => client.decrement(key, by))
        } else {
            call!(self, client => client.increment(key, by))
        };
        reported(said.map(Some), None)
    }

    fn store(&mut self, how: &str, key: &str, value: &[u8]) -> Option<Said<bool>> {
        if self.meta {
            let mode = match how {
                "add" => "ME",
                "replace" => "MR",
                "append" => "MA",
                _ => "MP",
            };
            return Some(self.meta_store(key, value, &[mode]));
        }
        (how == "add")
            .then(|| reported(call!(self, client => client.add(key, value, None, None)).map(|()| true), false))
    }

    fn touch(&mut self, key: &str, seconds: u32) -> Option<Said<bool>> {
        let ttl = format!("T{seconds}");
        let touched = |library: &mut AsyncMemcached| {
            let flags = [ttl.as_str(), "v"];
            Ok(reported(call!(library, client => client.meta_get(key, false, None, Some(&flags))), None)?
                .is_some())
        };
        self.meta.then(|| touched(self))
    }

    fn gets(&mut self, key: &str) -> Option<Said<u64>> {
        let unique = |library: &mut AsyncMemcached| {
            let found = call!(library, client => client.meta_get(key, false, None, Some(&["v", "c"])));
            reported(found, None)?.and_then(|item| item.cas).ok_or("no unique".to_owned())
        };
        self.meta.then(|| unique(self))
    }

    fn cas(&mut self, key: &str, value: &[u8], unique: u64) -> Said<bool> {
        self.meta_store(key, value, &[&format!("C{unique}")])
    }

    fn version(&mut self) -> Said<String> {
        call!(self, client => client.version()).map_err(|error| error.to_string())
    }

    fn flush(&mut self) -> Said<()> {
        call!(self, client => client.flush_all()).map_err(|error| error.to_string())
    }

    /// Its reader of the text protocol takes ASCII only.
    fn has_unicode_keys(&self) -> bool {
        self.meta
    }
}
