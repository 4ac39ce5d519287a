//! The table: bytes of a client, and the answer; and that of stock memcached 1.6.18 where it differs.

/// One row of the table.
pub struct Case {
    input: &'static str,
    expected: &'static str,
    /// Number of the reason in DIFFERENCES.md, and the answer of stock memcached.
    pub difference: Option<(&'static str, &'static str)>,
}

impl Case {
    /// The bytes of the client.
    pub fn input(&self) -> Vec<u8> {
        expand(self.input)
    }

    /// The answer of this service.
    pub fn ours(&self) -> &'static str {
        self.expected
    }

    /// The answer of stock memcached.
    pub fn stock(&self) -> &'static str {
        self.difference.map_or(self.expected, |(_, answer)| answer)
    }
}

const fn same(input: &'static str, expected: &'static str) -> Case {
    Case { input, expected, difference: None }
}

const fn differs(
    input: &'static str,
    expected: &'static str,
    number: &'static str,
    stock: &'static str,
) -> Case {
    Case { input, expected, difference: Some((number, stock)) }
}

/// Writes `{x*3}` out as `xxx`.
fn expand(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = text;
    while let Some((before, (what, count, after))) = rest.split_once('{').and_then(|(before, after)| {
        let (inside, after) = after.split_once('}')?;
        let (what, count) = inside.split_once('*')?;
        Some((before, (what, count.parse::<usize>().ok()?, after)))
    }) {
        out.extend_from_slice(before.as_bytes());
        out.extend_from_slice(what.repeat(count).as_bytes());
        rest = after;
    }
    out.extend_from_slice(rest.as_bytes());
    out
}

/// Whether `output` matches `expected`; `{n}` stands for any number.
pub fn matches(expected: &[u8], output: &[u8]) -> bool {
    let text = String::from_utf8_lossy(expected);
    let mut output = output;
    for (index, part) in text.split("{n}").enumerate() {
        if index > 0 {
            let digits = output.iter().take_while(|byte| byte.is_ascii_digit()).count();
            if digits == 0 {
                return false;
            }
            output = &output[digits..];
        }
        match output.strip_prefix(&expand(part)[..]) {
            Some(rest) => output = rest,
            None => return false,
        }
    }
    output.is_empty()
}

/// Every case, in groups.
#[rustfmt::skip]
pub const CASES: &[Case] = &[
    // Storage.
    same("set a 0 0 1\r\nx\r\nget a\r\n", "STORED\r\nVALUE a 0 1\r\nx\r\nEND\r\n"),
    same("set a 0 0 0\r\n\r\nget a\r\n", "STORED\r\nVALUE a 0 0\r\n\r\nEND\r\n"),
    same("set a 0 0 4\r\n\r\n\r\n\r\nget a\r\n", "STORED\r\nVALUE a 0 4\r\n\r\n\r\n\r\nEND\r\n"),
    same("set a 0 0 1\nx\r\nget a\n", "STORED\r\nVALUE a 0 1\r\nx\r\nEND\r\n"),
    same("set  a  0  0  1 \r\nx\r\n get a \r\n", "STORED\r\nVALUE a 0 1\r\nx\r\nEND\r\n"),
    same("set a 4294967295 0 1\r\nx\r\nget a\r\n", "STORED\r\nVALUE a 4294967295 1\r\nx\r\nEND\r\n"),
    differs("set a 4294967296 0 1\r\nx\r\nget a\r\n", "CLIENT_ERROR bad command line format\r\nERROR\r\nEND\r\n", "D1", "STORED\r\nVALUE a 0 1\r\nx\r\nEND\r\n"),
    same("set a -1 0 1\r\nx\r\nget a\r\n", "CLIENT_ERROR bad command line format\r\nERROR\r\nEND\r\n"),
    same("set a +5 0 01\r\nx\r\nget a\r\n", "STORED\r\nVALUE a 5 1\r\nx\r\nEND\r\n"),
    same("set a 5x 0 1\r\nx\r\n", "CLIENT_ERROR bad command line format\r\nERROR\r\n"),
    same("set a 0 x 1\r\nx\r\n", "CLIENT_ERROR bad command line format\r\nERROR\r\n"),
    same("set a 0 0 x\r\n", "CLIENT_ERROR bad command line format\r\n"),
    same("set a 0 0 -1\r\nget a\r\n", "CLIENT_ERROR bad command line format\r\nEND\r\n"),
    same("set a 0 0 2147483646\r\n", "CLIENT_ERROR bad command line format\r\n"),
    differs("set a 0 0 4294967297\r\nx\r\n", "CLIENT_ERROR bad command line format\r\nERROR\r\n", "D1", "STORED\r\n"),
    same("set a 0 0 1 foo\r\nx\r\n", "STORED\r\n"),
    same("set a 0 0\r\nx\r\n", "ERROR\r\nERROR\r\n"),
    same("set a 0 0 1 noreply x\r\nx\r\n", "ERROR\r\nERROR\r\n"),
    same("set noreply 0 0 1\r\nx\r\nget noreply\r\n", "STORED\r\nVALUE noreply 0 1\r\nx\r\nEND\r\n"),
    same("set a 0 0 3\r\nabcd\r\nget a\r\n", "CLIENT_ERROR bad data chunk\r\nERROR\r\nEND\r\n"),
    same("set a 0 0 3\r\nab\r\nget a\r\n", "CLIENT_ERROR bad data chunk\r\nERROR\r\n"),
    same("set a 0 0 3 noreply\r\nabcde\r\nget a\r\n", "ERROR\r\nEND\r\n"),
    same("set a x 0 3 noreply\r\nabc\r\nget a\r\n", "ERROR\r\nEND\r\n"),
    same("set a 0 0 1 noreply\r\nx\r\nget a\r\n", "VALUE a 0 1\r\nx\r\nEND\r\n"),
    same("add a 0 0 1\r\nx\r\nadd a 0 0 1\r\ny\r\nget a\r\n", "STORED\r\nNOT_STORED\r\nVALUE a 0 1\r\nx\r\nEND\r\n"),
    same("replace a 0 0 1\r\nx\r\nset a 0 0 1\r\nx\r\nreplace a 1 0 1\r\ny\r\nget a\r\n", "NOT_STORED\r\nSTORED\r\nSTORED\r\nVALUE a 1 1\r\ny\r\nEND\r\n"),
    same("append a 0 0 1\r\nx\r\nprepend a 0 0 1\r\nx\r\n", "NOT_STORED\r\nNOT_STORED\r\n"),
    same("set a 5 0 1\r\nx\r\nappend a 7 0 1\r\ny\r\nprepend a 9 0 1\r\nz\r\nget a\r\n", "STORED\r\nSTORED\r\nSTORED\r\nVALUE a 5 3\r\nzxy\r\nEND\r\n"),
    same("set a 5 100 3\r\nabc\r\nappend a 0 0 1\r\nd\r\nmg a v t\r\n", "STORED\r\nSTORED\r\nVA 4 t100\r\nabcd\r\n"),
    same("cas a 0 0 1\r\nx\r\n", "ERROR\r\nERROR\r\n"),
    same("cas a 0 0 1 x\r\nx\r\n", "CLIENT_ERROR bad command line format\r\nERROR\r\n"),
    same("cas a 0 0 1 18446744073709551616\r\nx\r\n", "CLIENT_ERROR bad command line format\r\nERROR\r\n"),
    same("cas a 0 0 1 5\r\nx\r\n", "NOT_FOUND\r\n"),
    same("cas a 0 0 1 5 noreply\r\nx\r\n", ""),
    same("cas a 0 0 1 5 foo\r\nx\r\n", "NOT_FOUND\r\n"),
    same("set a 0 0 1\r\nx\r\ncas a 0 0 1 0\r\ny\r\n", "STORED\r\nEXISTS\r\n"),
    same("set a 0 0 1\r\nx\r\ncas a 0 0 1 18446744073709551615\r\ny\r\nget a\r\n", "STORED\r\nEXISTS\r\nVALUE a 0 1\r\nx\r\nEND\r\n"),
    // Expiry.
    same("set a 1 -1 1\r\nx\r\nget a\r\n", "STORED\r\nEND\r\n"),
    same("set a 0 -1 1\r\nx\r\nadd a 0 0 1\r\ny\r\nget a\r\n", "STORED\r\nSTORED\r\nVALUE a 0 1\r\ny\r\nEND\r\n"),
    same("set a 0 2592000 1\r\nx\r\nmg a t\r\n", "STORED\r\nHD t2592000\r\n"),
    same("set a 0 2592001 1\r\nx\r\nget a\r\n", "STORED\r\nEND\r\n"),
    differs("set a 0 2147483648 1\r\nx\r\nget a\r\n", "STORED\r\nVALUE a 0 1\r\nx\r\nEND\r\n", "D2", "STORED\r\nEND\r\n"),
    same("set a 0 100 1\r\nx\r\ntouch a 50\r\nmg a t\r\ntouch a 0\r\nmg a t\r\ntouch a -1\r\nget a\r\n", "STORED\r\nTOUCHED\r\nHD t50\r\nTOUCHED\r\nHD t-1\r\nTOUCHED\r\nEND\r\n"),
    same("touch a\r\ntouch a x\r\ntouch a 1\r\ntouch a 1 foo\r\ntouch a 1 noreply\r\ntouch a x noreply\r\ntouch a 1 2 3\r\n", "ERROR\r\nCLIENT_ERROR invalid exptime argument\r\nNOT_FOUND\r\nNOT_FOUND\r\nERROR\r\n"),
    same("gat\r\ngat 1\r\ngat x a\r\ngat 1 a\r\n", "ERROR\r\nEND\r\nCLIENT_ERROR invalid exptime argument\r\nEND\r\n"),
    same("set a 0 0 1\r\nx\r\ngats 10 a b\r\nmg a t\r\ngat 0 b a\r\nmg a t\r\n", "STORED\r\nVALUE a 0 1 {n}\r\nx\r\nEND\r\nHD t10\r\nVALUE a 0 1\r\nx\r\nEND\r\nHD t-1\r\n"),
    // Retrieval.
    same("get\r\nget \r\ngets\r\n", "ERROR\r\nERROR\r\nERROR\r\n"),
    same("get a\r\ngets a\r\nbget a\r\n", "END\r\nEND\r\nEND\r\n"),
    same("set a 1 0 1\r\nx\r\nset b 2 0 2\r\nyz\r\nget a b c a\r\n", "STORED\r\nSTORED\r\nVALUE a 1 1\r\nx\r\nVALUE b 2 2\r\nyz\r\nVALUE a 1 1\r\nx\r\nEND\r\n"),
    same("set a 0 0 1\r\nx\r\ngets a\r\n", "STORED\r\nVALUE a 0 1 {n}\r\nx\r\nEND\r\n"),
    same("get {a *3000}\r\n", "END\r\n"),
    same("get noreply\r\n", "END\r\n"),
    same("get {k*250}\r\n", "END\r\n"),
    same("get {k*251}\r\n", "CLIENT_ERROR bad command line format\r\n"),
    same("get a {k*251}\r\n", "CLIENT_ERROR bad command line format\r\n"),
    same("set {k*251} 0 0 1\r\nx\r\n", "CLIENT_ERROR bad command line format\r\nERROR\r\n"),
    same("set {k*250} 0 0 1\r\nx\r\nget {k*250}\r\n", "STORED\r\nVALUE {k*250} 0 1\r\nx\r\nEND\r\n"),
    same("set a\tb 0 0 1\r\nx\r\nget a\tb\r\n", "STORED\r\nVALUE a\tb 0 1\r\nx\r\nEND\r\n"),
    same("set \x10\x1fk\x7f 0 0 1\r\nx\r\nget \x10\x1fk\x7f\r\n", "STORED\r\nVALUE \x10\x1fk\x7f 0 1\r\nx\r\nEND\r\n"),
    same("get a\r\r\n", "END\r\n"),
    differs("get a\0b\r\n", "CLIENT_ERROR bad command line format\r\n", "D3", "END\r\n"),
    same("set é 0 0 1\r\nx\r\nget é\r\n", "STORED\r\nVALUE é 0 1\r\nx\r\nEND\r\n"),
    // Size limits.
    same("set big 0 0 1048514\r\n{x*1048514}\r\nmg big s\r\n", "STORED\r\nHD s1048514\r\n"),
    same("set big 0 0 1048515\r\n{x*1048515}\r\nmg big s\r\n", "SERVER_ERROR object too large for cache\r\nEN\r\n"),
    same("set big 1 0 1048510\r\n{x*1048510}\r\nmg big s\r\n", "STORED\r\nHD s1048510\r\n"),
    same("set big 1 0 1048511\r\n{x*1048511}\r\nmg big s\r\n", "SERVER_ERROR object too large for cache\r\nEN\r\n"),
    same("set a 0 0 1\r\nx\r\nset a 0 0 1048577 noreply\r\n{x*1048577}\r\nget a\r\n", "STORED\r\nEND\r\n"),
    same("set a 0 0 1\r\nx\r\nadd a 0 0 1048577\r\n{x*1048577}\r\nget a\r\n", "STORED\r\nSERVER_ERROR object too large for cache\r\nVALUE a 0 1\r\nx\r\nEND\r\n"),
    same("set big 0 0 1000000\r\n{x*1000000}\r\nappend big 0 0 100000\r\n{x*100000}\r\nmg big s\r\n", "STORED\r\nNOT_STORED\r\nHD s1000000\r\n"),
    same("set a 0 0 1\r\nx\r\nms a 2000000 k O1\r\n{x*2000000}\r\nget a\r\n", "STORED\r\nSERVER_ERROR object too large for cache\r\nEND\r\n"),
    same("set a 0 0 9000\r\n{x*9000}\r\nappend a 0 0 9000\r\n{y*9000}\r\nget a\r\n", "STORED\r\nSTORED\r\nVALUE a 0 18000\r\n{x*9000}{y*9000}\r\nEND\r\n"),
    // Counters.
    same("incr a\r\nincr a x\r\nincr a -1\r\nincr a 1\r\nincr a 18446744073709551616\r\nincr a b c d\r\n", "ERROR\r\nCLIENT_ERROR invalid numeric delta argument\r\nCLIENT_ERROR invalid numeric delta argument\r\nNOT_FOUND\r\nCLIENT_ERROR invalid numeric delta argument\r\nERROR\r\n"),
    same("incr a 1 noreply\r\nincr a x noreply\r\ndecr a x\r\n", "CLIENT_ERROR invalid numeric delta argument\r\n"),
    same("set a 0 0 2\r\n99\r\nincr a 1\r\ndecr a 1\r\nget a\r\ndecr a 200\r\nget a\r\nincr a 5\r\nget a\r\n", "STORED\r\n100\r\n99\r\nVALUE a 0 3\r\n99 \r\nEND\r\n0\r\nVALUE a 0 3\r\n0  \r\nEND\r\n5\r\nVALUE a 0 3\r\n5  \r\nEND\r\n"),
    same("set a 0 0 20\r\n18446744073709551615\r\nincr a 2\r\nget a\r\n", "STORED\r\n1\r\nVALUE a 0 20\r\n1                   \r\nEND\r\n"),
    same("set a 0 0 1\r\n0\r\nincr a 18446744073709551615\r\nincr a 1\r\n", "STORED\r\n18446744073709551615\r\n0\r\n"),
    same("set a 0 0 3\r\nabc\r\nincr a 1\r\nget a\r\n", "STORED\r\nCLIENT_ERROR cannot increment or decrement non-numeric value\r\nVALUE a 0 3\r\nabc\r\nEND\r\n"),
    same("set a 0 0 2\r\n-5\r\nincr a 1\r\nget a\r\n", "STORED\r\nCLIENT_ERROR cannot increment or decrement non-numeric value\r\nVALUE a 0 2\r\n-5\r\nEND\r\n"),
    same("set a 0 0 3\r\n12a\r\nincr a 1\r\nget a\r\n", "STORED\r\nCLIENT_ERROR cannot increment or decrement non-numeric value\r\nVALUE a 0 3\r\n12a\r\nEND\r\n"),
    same("set a 0 0 0\r\n\r\nincr a 1\r\nget a\r\n", "STORED\r\nCLIENT_ERROR cannot increment or decrement non-numeric value\r\nVALUE a 0 0\r\n\r\nEND\r\n"),
    same("set a 0 0 3\r\n 12\r\nincr a 1\r\nget a\r\n", "STORED\r\n13\r\nVALUE a 0 3\r\n13 \r\nEND\r\n"),
    same("set a 0 0 4\r\n12 x\r\nincr a 1\r\nget a\r\n", "STORED\r\n13\r\nVALUE a 0 4\r\n13  \r\nEND\r\n"),
    same("set a 0 0 2\r\n-0\r\nincr a 1\r\nget a\r\n", "STORED\r\n1\r\nVALUE a 0 2\r\n1 \r\nEND\r\n"),
    same("set a 0 0 22\r\n0000000000000000000012\r\nincr a 1\r\nget a\r\n", "STORED\r\n13\r\nVALUE a 0 22\r\n13                    \r\nEND\r\n"),
    same("set a 7 100 1\r\n9\r\nincr a 1\r\nmg a f t v\r\n", "STORED\r\n10\r\nVA 2 f7 t100\r\n10\r\n"),
    // Deletion and flushing.
    same("delete\r\ndelete a\r\ndelete a 0\r\ndelete a 0 0\r\ndelete a 1\r\n", "ERROR\r\nNOT_FOUND\r\nNOT_FOUND\r\nCLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]\r\nCLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]\r\n"),
    same("delete a b c\r\ndelete a b c d\r\ndelete a 0 noreply\r\ndelete a noreply\r\ndelete a b noreply\r\n", "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]\r\nERROR\r\n"),
    same("set a 0 0 1\r\nx\r\ndelete a\r\nget a\r\ndelete a\r\n", "STORED\r\nDELETED\r\nEND\r\nNOT_FOUND\r\n"),
    same("set noreply 0 0 1\r\nx\r\ndelete noreply\r\n", "STORED\r\nDELETED\r\n"),
    same("flush_all x\r\nflush_all 0\r\nflush_all noreply\r\nflush_all 0 noreply\r\nflush_all a b c\r\nflush_all -1\r\nflush_all x noreply\r\nflush_all noreply 3\r\n", "CLIENT_ERROR invalid exptime argument\r\nOK\r\nERROR\r\nOK\r\nCLIENT_ERROR invalid exptime argument\r\n"),
    same("set a 0 0 1\r\nx\r\nflush_all\r\nget a\r\nadd a 0 0 1\r\ny\r\nget a\r\n", "STORED\r\nOK\r\nEND\r\nSTORED\r\nVALUE a 0 1\r\ny\r\nEND\r\n"),
    same("set a 0 0 1\r\nx\r\nflush_all 100\r\nget a\r\nflush_all\r\nset a 0 0 1\r\ny\r\nget a\r\n", "STORED\r\nOK\r\nVALUE a 0 1\r\nx\r\nEND\r\nOK\r\nSTORED\r\nVALUE a 0 1\r\ny\r\nEND\r\n"),
    // Answered at once.
    differs("version\r\n", concat!("VERSION 1.6.18-crosscheck-", env!("CARGO_PKG_VERSION"), "\r\n"), "D4", "VERSION 1.6.18\r\n"),
    same("verbosity\r\nverbosity 1\r\nverbosity x\r\nverbosity 1 noreply\r\nverbosity x noreply\r\nverbosity 1 x\r\nverbosity 1 2 3\r\n", "ERROR\r\nOK\r\nCLIENT_ERROR bad command line format\r\nOK\r\nERROR\r\n"),
    same("quit\r\nversion\r\n", ""),
    same("quit x\r\n", ""),
    same("GET / HTTP/1.0\r\nset a 0 0 1\r\nx\r\n", ""),
    same("POST /x HTTP/1.1\r\nHost: x\r\n\r\nset a 0 0 1\r\nx\r\n", ""),
    same("get / HTTP/1.1\r\n", "END\r\n"),
    same("nonsense HTTP\r\n", "ERROR\r\n"),
    differs("host: 127.0.0.1\r\nversion\r\n", "", "D11", "ERROR\r\nVERSION 1.6.18\r\n"),
    differs("Post\r\nversion\r\n", "", "D11", "ERROR\r\nVERSION 1.6.18\r\n"),
    same("\r\n\n \r\ng\r\nmx\r\nGET a\r\nmisbehave\r\nno_such\r\n", "ERROR\r\nERROR\r\nERROR\r\nERROR\r\nERROR\r\nERROR\r\nERROR\r\nERROR\r\n"),
    same("mn\r\nmn x\r\n", "MN\r\nMN\r\n"),
    same("shutdown\r\n", "ERROR: shutdown not enabled\r\n"),
    same("stats foo\r\nstats reset\r\n", "ERROR\r\nRESET\r\n"),
    differs("set a 0 0 3\r\nabc\r\nstats sizes\r\n", "STORED\r\nSTAT 64 1\r\nEND\r\n", "D18", "STORED\r\nSTAT sizes_status disabled\r\nEND\r\n"),
    same("stats cachedump 2 0\r\nstats cachedump 64 0\r\nstats cachedump 1\r\nstats cachedump x 1\r\n", "END\r\nCLIENT_ERROR Illegal slab id\r\nCLIENT_ERROR bad command line\r\nCLIENT_ERROR bad command line format\r\n"),
    differs("set a 0 0 3\r\nabc\r\nstats cachedump 1 0\r\n", "STORED\r\nITEM a [3 b; 0 s]\r\nEND\r\n", "D19", "STORED\r\nEND\r\n"),
    same("cache_memlimit\r\ncache_memlimit x\r\ncache_memlimit 1100000000\r\n", "ERROR\r\nERROR\r\nMEMLIMIT_ADJUST_FAILED input value is megabytes not bytes\r\n"),
    differs("stats detail on\r\nstats detail off\r\n", "ERROR\r\nERROR\r\n", "D5", "OK\r\nOK\r\n"),
    same("slabs automove x\r\nslabs automove 1x\r\nslabs automove -1\r\n", "CLIENT_ERROR bad command line format\r\nCLIENT_ERROR bad command line format\r\nCLIENT_ERROR bad command line format\r\n"),
    same("slabs automove\r\nslabs\r\nslabs automove 3\r\nslabs no_such 1\r\n", "ERROR\r\nERROR\r\nERROR\r\nERROR\r\n"),
    same("slabs automove 0\r\nslabs automove 2\r\nslabs automove 1 2\r\nslabs automove 1\r\n", "OK\r\nOK\r\nOK\r\nOK\r\n"),
    same("slabs automove x noreply\r\nslabs automove 1 noreply\r\nslabs automove noreply\r\n", ""),
    differs("slabs reassign 1 1\r\n", "ERROR\r\n", "D5", "SAME src and dst class are identical\r\n"),
    same("cache_memlimit 1024\r\n", "OK\r\n"),
    same("{x*2048}\r\n", "ERROR\r\n"),
    differs("{x*2049}\r\nversion\r\n", "CLIENT_ERROR line too long\r\n", "D6", "ERROR\r\nVERSION 1.6.18\r\n"),
    // Meta: looking.
    same("mg\r\nmg a\r\nmg a q\r\nmg a k O123\r\nmg a k s v t f O1\r\n", "ERROR\r\nEN\r\nEN ka O123\r\nEN ka O1\r\n"),
    same("set a 5 100 3\r\nabc\r\nmg a\r\nmg a v\r\nmg a q\r\nmg a v q\r\nmg b v q\r\n", "STORED\r\nHD\r\nVA 3\r\nabc\r\nHD\r\nVA 3\r\nabc\r\n"),
    same("set a 5 100 3\r\nabc\r\nmg a s t f c k q Oabc h l v\r\n", "STORED\r\nVA 3 s3 t100 f5 c{n} ka Oabc h0 l0\r\nabc\r\n"),
    same("set a 5 100 3\r\nabc\r\nmg a k Oabc v h t l\r\nmg a h t l u\r\nmg a h\r\n", "STORED\r\nVA 3 ka Oabc h0 t100 l0\r\nabc\r\nHD h1 t100 l0\r\nHD h1\r\n"),
    same("set a 5 100 3\r\nabc\r\nmg a u h\r\nmg a u h\r\nget a\r\nmg a u h\r\n", "STORED\r\nHD h0\r\nHD h0\r\nVALUE a 5 3\r\nabc\r\nEND\r\nHD h1\r\n"),
    same("set a 5 100 3\r\nabc\r\nmg a c1 s2 v9 t7 kfoo\r\n", "STORED\r\nVA 3 c{n} s3 t100 ka\r\nabc\r\n"),
    same("set a 5 100 3\r\nabc\r\nmg a P1 L2\r\nmg a MS\r\nmg a D5 J6 C7 F8 I\r\n", "STORED\r\nHD\r\nHD\r\nHD\r\n"),
    same("mg a k k\r\nmg a z\r\nmg a x\r\nmg a N\r\nmg a Nx\r\nmg a T\r\nmg a R\r\nmg a C\r\nmg a T1x\r\nmg a Fx\r\nmg a Jx\r\nmg a Dx\r\nmg a M\r\n", "CLIENT_ERROR duplicate flag\r\nCLIENT_ERROR invalid flag\r\nCLIENT_ERROR invalid flag\r\nCLIENT_ERROR bad token in command line format\r\nCLIENT_ERROR bad token in command line format\r\nCLIENT_ERROR bad token in command line format\r\nCLIENT_ERROR bad token in command line format\r\nCLIENT_ERROR bad token in command line format\r\nCLIENT_ERROR bad token in command line format\r\nCLIENT_ERROR bad command line format\r\nCLIENT_ERROR invalid numeric initial value\r\nCLIENT_ERROR invalid numeric delta value\r\nCLIENT_ERROR incorrect length for M token\r\n"),
    differs("mg a E5\r\n", "EN\r\n", "D7", "CLIENT_ERROR invalid flag\r\n"),
    same("mg a \x7f\r\n", "CLIENT_ERROR duplicate flag\r\n"),
    same("mg a\tb k\r\n", "EN ka\tb\r\n"),
    same("mg a O{o*31}\r\nmg a O{o*32}\r\nmg a O\r\n", "EN O{o*31}\r\nCLIENT_ERROR opaque token too long\r\nEN O\r\n"),
    same("mg {k*251}\r\nmg {k*250} k\r\n", "CLIENT_ERROR bad command line format\r\nEN k{k*250}\r\n"),
    same("mg a k t s v c f h l O1 u q N1 T1 R1 x y z w e r\r\nmg a k t s v c f h l O1 u q N1 T1 R1 F1 C1 I D1\r\n", "CLIENT_ERROR options flags are too long\r\nCLIENT_ERROR options flags are too long\r\n"),
    same("mg a k t s v c f h l O1 u q R1 F1 C1 I D1\r\n", ""),
    same("set a 5 100 3\r\nabc\r\nmg YQ== b k v\r\n", "STORED\r\nVA 3 ka\r\nabc\r\n"),
    same("mg YQ== b k\r\nmg YWJj b3 k\r\nmg YR== b k\r\nmg YQ= b\r\nmg YQ b\r\nmg !! b\r\nmg Y b\r\n", "EN kYQ== b\r\nEN kYWJj b\r\nEN kYQ== b\r\nCLIENT_ERROR error decoding key\r\nCLIENT_ERROR error decoding key\r\nCLIENT_ERROR error decoding key\r\nCLIENT_ERROR error decoding key\r\n"),
    differs("mg YQ==YQ== b k\r\n", "CLIENT_ERROR error decoding key\r\n", "D8", "EN kYQ== b\r\n"),
    same("mg a N30 t c v\r\nmg a N30 t v\r\nmg a t v s\r\nget a\r\n", "VA 0 t30 c{n} W\r\n\r\nVA 0 t30 Z\r\n\r\nVA 0 t30 s0 Z\r\n\r\nVALUE a 0 0\r\n\r\nEND\r\n"),
    same("mg a N30 k v\r\nms a 1\r\nx\r\nmg a v\r\n", "VA 0 ka W\r\n\r\nHD\r\nVA 1\r\nx\r\n"),
    same("mg a N30 T60 t\r\nmg a t\r\nmg b T60 N30 t\r\n", "HD t60 W\r\nHD t60 Z\r\nHD t30 W\r\n"),
    differs("mg YWJj b N30 k\r\nmg YWJj b k\r\n", "HD kYWJj b W\r\nHD kYWJj b Z\r\n", "D9", "HD kabc W\r\nHD kabc Z\r\n"),
    same("set a 5 100 3\r\nabc\r\nmg a T30 t\r\nmg a t T60\r\nmg a t\r\nmg a T0 t\r\nmg a t\r\n", "STORED\r\nHD t30\r\nHD t30\r\nHD t60\r\nHD t-1\r\nHD t-1\r\n"),
    differs("set a 5 100 3\r\nabc\r\nmg a T-1 t\r\nmg a t\r\n", "STORED\r\nHD t0\r\nEN\r\n", "D10", "STORED\r\nHD t{n}\r\nEN\r\n"),
    same("set a 5 100 3\r\nabc\r\nmg a R200 t\r\nmg a R200 t\r\nmg a R30\r\nmg b R30\r\n", "STORED\r\nHD t100 W\r\nHD t100 Z\r\nHD Z\r\nEN\r\n"),
    same("set a 0 0 1\r\nx\r\nmg a R30\r\n", "STORED\r\nHD\r\n"),
    // Meta: storing.
    same("ms\r\nms a\r\nms a x\r\nms a -1\r\n", "ERROR\r\nCLIENT_ERROR bad command line format\r\nCLIENT_ERROR bad command line format\r\nCLIENT_ERROR bad command line format\r\n"),
    same("ms a S1\r\nx\r\nms a 1x\r\nx\r\n", "CLIENT_ERROR bad command line format\r\nERROR\r\nCLIENT_ERROR bad command line format\r\nERROR\r\n"),
    same("ms a 1\r\nx\r\nms a 1 q\r\ny\r\nmg a v\r\n", "HD\r\nVA 1\r\ny\r\n"),
    same("ms a 2\r\nxyz\r\nms a 2 q\r\nxyz\r\n", "CLIENT_ERROR bad data chunk\r\nERROR\r\nCLIENT_ERROR bad data chunk\r\nERROR\r\n"),
    same("ms a 1 k Oabc c\r\nx\r\nms a 1 s v t h l\r\nx\r\n", "HD ka Oabc c{n}\r\nHD\r\n"),
    same("ms a 1 T30 F7\r\nx\r\nmg a t f v\r\n", "HD\r\nVA 1 t30 f7\r\nx\r\n"),
    same("ms a 1 b\r\nx\r\nms a 1 Tx\r\nx\r\nms a 1 Fx\r\nx\r\nms a 1 z\r\nx\r\nms a 1 Mx\r\nx\r\nms a 1 Ma\r\nx\r\nms a 1 M\r\nx\r\nms a 1 k k\r\nx\r\nms a 1 S100\r\nx\r\nms a 1 O{o*32}\r\nx\r\n", "CLIENT_ERROR error decoding key\r\nCLIENT_ERROR bad token in command line format\r\nCLIENT_ERROR bad command line format\r\nCLIENT_ERROR invalid flag\r\nCLIENT_ERROR invalid mode for ms M token\r\nCLIENT_ERROR invalid mode for ms M token\r\nCLIENT_ERROR incorrect length for M token\r\nCLIENT_ERROR duplicate flag\r\nCLIENT_ERROR invalid flag\r\nCLIENT_ERROR opaque token too long\r\n"),
    same("ms YWJj 1 b k\r\nx\r\nmg YWJj b k v\r\nmg abc k v\r\nme abc\r\nget abc\r\n", "HD kYWJj b\r\nVA 1 kYWJj b\r\nx\r\nVA 1 kYWJj b\r\nx\r\nME YWJj exp=-1 la=0 cas={n} fetch=yes cls=1 size=63\r\nVALUE abc 0 1\r\nx\r\nEND\r\n"),
    same("ms a 1 ME\r\nx\r\nms a 1 ME\r\ny\r\nms a 1 ME q\r\ny\r\nmg a v\r\n", "HD\r\nNS\r\nNS\r\nVA 1\r\nx\r\n"),
    same("ms a 1 MA\r\nx\r\nms a 1 MP\r\nx\r\nms a 1 MR\r\nx\r\nms a 1 MS\r\nx\r\nms a 1 MA\r\ny\r\nms a 1 MP\r\nz\r\nms b 1 MA N30\r\nx\r\nmg a v\r\n", "NS\r\nNS\r\nNS\r\nHD\r\nHD\r\nHD\r\nNS\r\nVA 3\r\nzxy\r\n"),
    same("ms a 1 C5\r\nx\r\nms a 1 ME C5\r\nx\r\n", "NF\r\nHD\r\n"),
    same("set a 5 100 3\r\nabc\r\nms a 1 C18446744073709551615\r\nx\r\nms a 1 C0\r\nx\r\nms a 1 MR C18446744073709551615\r\nx\r\nms a 1 ME C5\r\nx\r\nms a 1 MA C18446744073709551615 c k\r\nx\r\nms b 1 MA C5\r\nx\r\n", "STORED\r\nEX\r\nEX\r\nEX\r\nNS\r\nEX c0 ka\r\nNS\r\n"),
    same("set a 0 0 1\r\nw\r\nset a 0 0 1\r\nw\r\nset a 5 100 3\r\nabc\r\nms a 1 C1 I\r\nx\r\nmg a v t\r\nmg a v t\r\nms a 1 C1 I\r\ny\r\nmg a v t\r\n", "STORED\r\nSTORED\r\nSTORED\r\nHD\r\nVA 1 t100 X W\r\nx\r\nVA 1 t100 Z X\r\nx\r\nHD\r\nVA 1 t100 Z X\r\ny\r\n"),
    same("ms a 1 I\r\nx\r\nmg a\r\n", "HD\r\nHD\r\n"),
    differs("ms a 1 E99 c\r\nx\r\n", "HD c99\r\n", "D7", "CLIENT_ERROR invalid flag\r\n"),
    // Meta: deleting.
    same("md\r\nmd a\r\nmd a q\r\n", "ERROR\r\nNF\r\nNF\r\n"),
    same("set a 5 100 3\r\nabc\r\nmd a\r\nmg a\r\nset a 5 100 3\r\nabc\r\nmd a q\r\nmg a\r\n", "STORED\r\nHD\r\nEN\r\nSTORED\r\nEN\r\n"),
    same("set a 5 100 3\r\nabc\r\nmd a C18446744073709551615\r\nmd a C18446744073709551615 q k\r\nmd a k Ox\r\nmd a k Ox\r\n", "STORED\r\nEX\r\nEX ka\r\nHD ka Ox\r\nNF ka Ox\r\n"),
    same("set a 5 100 3\r\nabc\r\nmd a I\r\nmg a v t\r\nmg a v t\r\nms a 1\r\ny\r\nmg a v t\r\n", "STORED\r\nHD\r\nVA 3 t100 X W\r\nabc\r\nVA 3 t100 Z X\r\nabc\r\nHD\r\nVA 1 t-1\r\ny\r\n"),
    same("set a 5 100 3\r\nabc\r\nmd a I T30\r\nmg a s v t\r\nmd a I\r\nmg a\r\n", "STORED\r\nHD\r\nVA 3 s3 t30 X W\r\nabc\r\nHD\r\nHD X W\r\n"),
    same("set a 5 100 3\r\nabc\r\nmd a T30\r\nmg a\r\n", "STORED\r\nHD\r\nEN\r\n"),
    same("md a z\r\nmd a I I\r\nmd a Tx\r\nmd !! b\r\nmd a O{o*32}\r\n", "CLIENT_ERROR invalid or duplicate flag\r\nCLIENT_ERROR invalid or duplicate flag\r\nCLIENT_ERROR invalid or duplicate flag\r\nCLIENT_ERROR invalid or duplicate flag\r\nCLIENT_ERROR opaque token too long\r\n"),
    same("set a 5 100 3\r\nabc\r\nmd a I\r\nadd a 0 0 1\r\nx\r\nget a\r\nappend a 0 0 1\r\nx\r\nmg a v\r\n", "STORED\r\nHD\r\nNOT_STORED\r\nVALUE a 5 3\r\nabc\r\nEND\r\nSTORED\r\nVA 4\r\nabcx\r\n"),
    // Meta: counting.
    same("ma\r\nma a\r\nma a q\r\n", "ERROR\r\nNF\r\nNF\r\n"),
    same("ma a N0 J5 v t c k O1\r\nma a v\r\nma a D5 v\r\nma a MD v\r\nma a M- D100 v\r\nma a q\r\nma a MI v t\r\n", "VA 1 t-1 c{n} ka O1\r\n5\r\nVA 1\r\n6\r\nVA 2\r\n11\r\nVA 2\r\n10\r\nVA 1\r\n0\r\nVA 1 t-1\r\n2\r\n"),
    same("ma a N30 v t\r\nma a T60 v t\r\nma a t T90\r\nmg a t\r\n", "VA 1 t30\r\n0\r\nVA 1 t60\r\n1\r\nHD t60\r\nHD t90\r\n"),
    same("ma a Mx\r\nma a Mi v\r\nma a M\r\nma a Dx\r\nma a Jx\r\nma a k k\r\n", "CLIENT_ERROR invalid mode for ma M token\r\nCLIENT_ERROR invalid mode for ma M token\r\nCLIENT_ERROR invalid or duplicate flag\r\nCLIENT_ERROR invalid or duplicate flag\r\nCLIENT_ERROR invalid or duplicate flag\r\nCLIENT_ERROR invalid or duplicate flag\r\n"),
    same("set a 5 100 3\r\nabc\r\nma a\r\nma a q\r\n", "STORED\r\nCLIENT_ERROR cannot increment or decrement non-numeric value\r\nCLIENT_ERROR cannot increment or decrement non-numeric value\r\n"),
    same("set a 0 0 1\r\n5\r\nma a C18446744073709551615 v\r\nma a C18446744073709551615 q k\r\n", "STORED\r\nEX\r\nEX ka\r\n"),
    same("set a 0 0 2\r\n10\r\nma a MD v s\r\nget a\r\n", "STORED\r\nVA 1\r\n9\r\nVALUE a 0 2\r\n9 \r\nEND\r\n"),
    same("ma YWJj b N0 k v\r\n", "VA 1 kYWJj b\r\n0\r\n"),
    same("ma a N0 J18446744073709551615 v\r\nma a v\r\n", "VA 20\r\n18446744073709551615\r\nVA 1\r\n0\r\n"),
    same("ma a N0 q\r\nma b N0 J7 v q\r\n", "HD\r\nVA 1\r\n7\r\n"),
    same("set a 0 0 1\r\n5\r\nmd a I\r\nincr a 1\r\nmg a v\r\nincr a 10\r\nmg a v\r\n", "STORED\r\nHD\r\n6\r\nVA 1 X W\r\n6\r\n16\r\nVA 2\r\n16\r\n"),
    // Meta: facts.
    same("me\r\nme a\r\nme a b\r\nme YQ== b\r\nme {k*251}\r\n", "CLIENT_ERROR bad command line format\r\nEN\r\nCLIENT_ERROR bad command line format\r\nEN\r\nCLIENT_ERROR bad command line format\r\n"),
    same("set a 5 100 3\r\nabc\r\nme a\r\nme YQ== b\r\nme a x\r\n", "STORED\r\nME a exp=-100 la=0 cas={n} fetch=no cls=1 size=67\r\nME a exp=-100 la=0 cas={n} fetch=no cls=1 size=67\r\nME a exp=-100 la=0 cas={n} fetch=no cls=1 size=67\r\n"),
    same("set a 0 0 1\r\nx\r\nget a\r\nget a\r\nme a\r\n", "STORED\r\nVALUE a 0 1\r\nx\r\nEND\r\nVALUE a 0 1\r\nx\r\nEND\r\nME a exp=-1 la=0 cas={n} fetch=yes cls=1 size=61\r\n"),
    same("set a 5 100 3\r\nabc\r\nget a\r\nappend a 0 0 1\r\nx\r\nmg a h\r\n", "STORED\r\nVALUE a 5 3\r\nabc\r\nEND\r\nSTORED\r\nHD h0\r\n"),
    same("set a 5 100 3\r\nabc\r\nget a\r\nset a 0 0 1\r\nx\r\nmg a h t\r\n", "STORED\r\nVALUE a 5 3\r\nabc\r\nEND\r\nSTORED\r\nHD h0 t-1\r\n"),
    same("set a 5 100 3\r\nabc\r\ntouch a 50\r\nmg a h t\r\nset a 5 100 3\r\nabc\r\ngat 50 a\r\nmg a h t\r\n", "STORED\r\nTOUCHED\r\nHD h1 t50\r\nSTORED\r\nVALUE a 5 3\r\nabc\r\nEND\r\nHD h1 t50\r\n"),
    same("set a 0 0 1\r\n5\r\nget a\r\nincr a 1\r\nmg a h\r\nincr a 10\r\nmg a h\r\n", "STORED\r\nVALUE a 0 1\r\n5\r\nEND\r\n6\r\nHD h1\r\n16\r\nHD h0\r\n"),
];
