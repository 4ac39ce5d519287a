//! Locks with waiters: `LOCK name` is answered when the client has the lock; `UNLOCK name` passes it on, and so does
//! the end of the connection of the client that has it. `redis-cli` talks to it.

use std::collections::VecDeque;

use crosscheck::short::{Answer, Ctx, Ended, Map, Resp, handlers, service};
use crosscheck::{ConnectionId, Owed};

/// Locks that end with the connections of their clients.
#[service(port = 6379, protocol = Resp, name = "locks")]
pub struct LockService {
    /// Who waits for each lock, and for which reply; the first one has it.
    queues: Map<String, VecDeque<(ConnectionId, Owed)>>,
}

#[handlers]
impl LockService {
    /// The lock, as soon as those before have let go.
    fn lock(&mut self, cx: &Ctx<'_, LockService>, #[key] name: String, client: ConnectionId) -> Answer {
        let mut queue = self.queues.remove(&name).unwrap_or_default();
        let (owed, answer) =
            if queue.is_empty() { (Owed::NOTHING, Answer::Done) } else { (cx.owe_reply(), Answer::Later) };
        queue.push_back((client, owed));
        self.queues.insert(name, queue);
        answer
    }

    /// Lets go of a lock; 0 if the client does not have it.
    fn unlock(&mut self, cx: &Ctx<'_, LockService>, #[key] name: String, client: ConnectionId) -> Answer {
        let has_it = self.queues.get(&name).is_some_and(|queue| queue[0].0 == client);
        if has_it {
            self.leave(&name, |one| one == client, cx);
        }
        has_it.into()
    }

    #[closed]
    fn gone(&mut self, cx: &Ctx<'_, LockService>, ended: Ended) {
        let names: Vec<String> = self.queues.iter().map(|(name, _)| name.clone()).collect();
        names.iter().for_each(|name| self.leave(name, |one| ended.contains(one), cx));
    }

    /// Clients leave a queue. Who is the first one now, and was not, has the lock.
    fn leave(&mut self, name: &String, leaves: impl Fn(ConnectionId) -> bool, cx: &Ctx<'_, LockService>) {
        let Some(mut queue) = self.queues.remove(name) else { return };
        let holder = queue[0].0;
        queue.retain(|(one, _)| !leaves(*one));
        let Some((first, owed)) = queue.front() else { return };
        if *first != holder {
            cx.answer(*owed, ());
        }
        self.queues.insert(name.clone(), queue);
    }
}

fn main() -> std::process::ExitCode {
    node::short::main::<LockService>()
}
