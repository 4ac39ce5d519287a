//! Single key presses from a terminal, which is put back as it was when the command ends.

use std::io::{IsTerminal, Read};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

/// Keys as they are pressed.
#[derive(Debug)]
pub struct Keys {
    before: Option<Termios>,
    pressed: Receiver<u8>,
}

impl Keys {
    /// Listens on stdin; when that is no terminal, no key ever comes.
    ///
    /// # Errors
    /// The terminal cannot be set up.
    pub fn listen() -> std::io::Result<Self> {
        let (press, pressed) = mpsc::channel();
        if !std::io::stdin().is_terminal() {
            return Ok(Keys { before: None, pressed });
        }
        let before = tcgetattr(rustix::stdio::stdin())?;
        let mut now = before.clone();
        // Signals stay on: Ctrl-C goes the same way as everywhere.
        now.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
        tcsetattr(rustix::stdio::stdin(), OptionalActions::Now, &now)?;
        let keys = Keys { before: Some(before), pressed };
        std::thread::Builder::new().name("keys".into()).spawn(move || {
            let mut key = [0];
            while std::io::stdin().read(&mut key).is_ok_and(|read| read > 0) {
                if press.send(key[0]).is_err() {
                    break;
                }
            }
        })?;
        Ok(keys)
    }

    /// The next key, waiting at most `pause`.
    pub fn next(&self, pause: Duration) -> Option<u8> {
        match self.pressed.recv_timeout(pause) {
            Ok(key) => Some(key),
            Err(mpsc::RecvTimeoutError::Timeout) => None,
            // Nobody will ever press a key; still keep the pace.
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                std::thread::sleep(pause);
                None
            }
        }
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            let _ = tcsetattr(rustix::stdio::stdin(), OptionalActions::Now, before);
        }
    }
}
