//! The synchronisation primitives; under `cfg(loom)` those of loom, so that the model checks the shipped code.

#[cfg(not(loom))]
pub(crate) use parking_lot::{Condvar, Mutex};
#[cfg(not(loom))]
pub(crate) use std::hint::spin_loop;
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

#[cfg(loom)]
pub(crate) use loom::{
    hint::spin_loop,
    sync::atomic::{AtomicBool, AtomicU64, Ordering, fence},
};
#[cfg(loom)]
pub(crate) use model::{Condvar, Mutex};

/// Sleeps until another thread leaves a token; a token left before is not lost.
pub(crate) struct Parker {
    token: Mutex<bool>,
    arrived: Condvar,
}

impl Parker {
    pub fn new() -> Self {
        Parker { token: Mutex::new(false), arrived: Condvar::new() }
    }

    /// Takes the token, sleeping until there is one.
    pub fn park(&self) {
        let mut token = self.token.lock();
        while !*token {
            self.arrived.wait(&mut token);
        }
        *token = false;
    }

    /// Leaves the token and wakes the sleeper.
    pub fn unpark(&self) {
        *self.token.lock() = true;
        self.arrived.notify_one();
    }
}

/// loom's mutex and condition variable with the interface of `parking_lot`'s.
#[cfg(loom)]
mod model {
    use std::ops::{Deref, DerefMut};

    pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);
    pub(crate) struct Guard<'a, T>(Option<loom::sync::MutexGuard<'a, T>>);
    pub(crate) struct Condvar(loom::sync::Condvar);

    impl<T> Mutex<T> {
        pub fn new(value: T) -> Self {
            Mutex(loom::sync::Mutex::new(value))
        }

        pub fn lock(&self) -> Guard<'_, T> {
            Guard(Some(self.0.lock().unwrap()))
        }
    }

    impl Condvar {
        pub fn new() -> Self {
            Condvar(loom::sync::Condvar::new())
        }

        pub fn wait<T>(&self, guard: &mut Guard<'_, T>) {
            guard.0 = guard.0.take().map(|inner| self.0.wait(inner).unwrap());
        }

        pub fn notify_one(&self) {
            self.0.notify_one();
        }
    }

    impl<T> Deref for Guard<'_, T> {
        type Target = T;
        fn deref(&self) -> &T {
            self.0.as_ref().unwrap()
        }
    }

    impl<T> DerefMut for Guard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            self.0.as_mut().unwrap()
        }
    }
}
