//! The cause of an error of the kernel on a socket: this process, the other end, or one attempt.

use std::io;

use rustix::io::Errno;

/// Whether the kernel refused a call on a socket because of this process's arguments, not because of the other end or
/// the network: a buffer that is not its memory, a descriptor that is not open. A healthy process does not make such a
/// call. (EINVAL is no such sign on a connection: Linux returns it for a read or write when the route has become a
/// black hole.)
pub(crate) fn is_own_fault(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::FAULT | Errno::BADF | Errno::NOTSOCK))
}

/// The same for calls without another end: accepting, and registering a socket with the poll.
pub(crate) fn is_own_fault_without_peer(error: &io::Error) -> bool {
    is_own_fault(error) || Errno::from_io_error(error) == Some(Errno::INVAL)
}

/// Whether accepting failed because of an error of the next connection, or was interrupted: others may wait after it
/// (accept(2): "treat them like EAGAIN by retrying").
pub(crate) fn is_of_one_attempt(error: &io::Error) -> bool {
    let of_one = [
        Errno::INTR,
        Errno::CONNABORTED,
        Errno::NETDOWN,
        Errno::PROTO,
        Errno::NOPROTOOPT,
        Errno::HOSTDOWN,
        #[cfg(target_os = "linux")]
        Errno::NONET,
        Errno::HOSTUNREACH,
        Errno::NETUNREACH,
    ];
    Errno::from_io_error(error).is_some_and(|errno| of_one.contains(&errno))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn only_what_this_process_got_wrong_is_its_own_fault() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut stream = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        drop(listener.accept().unwrap());
        let lost = loop {
            if let Err(error) = stream.write(b"more").and_then(|_| stream.read(&mut [0; 8])) {
                break error;
            }
        };
        assert!(!is_own_fault(&lost), "{lost}");
        // The file is opened for reading only.
        let refused = std::fs::File::open("/dev/null").unwrap().write(b"more").unwrap_err();
        assert!(is_own_fault(&refused), "{refused}");
        // A connection over a route that has become a black hole returns this; a socket without another end does not.
        let invalid = Errno::INVAL.into();
        assert!(!is_own_fault(&invalid) && is_own_fault_without_peer(&invalid));
    }
}
