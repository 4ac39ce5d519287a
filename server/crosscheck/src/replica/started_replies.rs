//! Replies that come later, by requests that the service has started itself: timers, and what handlers spawn.
//!
//! Such a request has no place in a batch, so no vote compares its result. Where replicas compare, each says in the
//! order what its run has answered for clients of others, as a digest ([`Control::Answered`]). A reply leaves once f
//! others have said the same as this replica, whose bytes leave. A client whose reply no others confirm is closed: it
//! gets no wrong reply, and does not wait for ever.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::environment::Environment;
use super::order_stage::OrderStage;
use super::own_clients::OwnClients;
use crate::hooks::{Hooks, Rule};
use crate::ordered::Control;
use crate::world::World;
use crate::{later, limits};

/// The replies that wait for the word of others, and what this replica has to say of its own.
#[derive(Debug, Default)]
pub(super) struct StartedReplies {
    /// Replies for clients of this replica, by their digests, and when they were made.
    own: BTreeMap<u128, (Bytes, u64)>,
    /// The other replicas that have made a reply with this digest, a bit for each, and when the last one said so.
    said: BTreeMap<u128, (u16, u64)>,
    /// What this replica has to say.
    to_say: Vec<u128>,
}

impl StartedReplies {
    /// Another replica has made replies with these digests. A faulty one may say anything: what there is no room for
    /// is not kept.
    fn on_said(&mut self, origin: u8, digests: &[u128], now_us: u64) {
        for digest in digests {
            if self.said.len() >= limits::ANSWERED_KEPT && !self.said.contains_key(digest) {
                return;
            }
            let (by, at_us) = self.said.entry(*digest).or_default();
            *by |= 1_u16.checked_shl(u32::from(origin)).unwrap_or(0);
            *at_us = now_us;
        }
    }

    /// Takes the replies that this replica and enough others, `needed` in all, have made.
    fn take_agreed(&mut self, needed: usize) -> Vec<(u128, Bytes)> {
        let said = |digest: &u128| self.said.get(digest).map_or(0, |(by, _)| by.count_ones() as usize);
        let agreed: Vec<u128> =
            self.own.keys().copied().filter(|digest| said(digest) + 1 >= needed).collect();
        let take = |digest| {
            self.said.remove(&digest);
            self.own.remove(&digest).map(|(reply, _)| (digest, reply))
        };
        agreed.into_iter().filter_map(take).collect()
    }

    /// Forgets what is too old to be confirmed. Returns whether a client waits for some of it.
    fn forget_old(&mut self, now_us: u64) -> bool {
        let is_new = |at_us: u64| now_us < at_us + limits::REPLY_PATIENCE.as_micros() as u64;
        let before = self.own.len();
        self.own.retain(|_, (_, at_us)| is_new(*at_us));
        self.said.retain(|_, (_, at_us)| is_new(*at_us));
        self.own.len() < before
    }
}

/// What a started reply needs of its replica's other stages.
pub(super) struct Around<'a, W: World> {
    pub(super) clients: &'a mut OwnClients<W>,
    pub(super) order: &'a mut OrderStage,
    pub(super) env: &'a mut Environment<W>,
    /// Replicas that have to make the same reply.
    pub(super) needed: usize,
}

impl StartedReplies {
    /// A request that the service has started itself has made this reply, which has parts; it will not be rolled back.
    pub(super) fn on_made<W: World>(&mut self, reply: Bytes, digest: u128, around: Around<'_, W>) {
        let Environment { settings, hooks, .. } = &*around.env;
        let compares = settings.mode.crosschecked || settings.mode.verified;
        let is_compared = compares && hooks.keeps(Rule::ConfirmsStarted);
        if !is_compared {
            return around.clients.release_started(&reply, digest, around.env);
        }
        let Some(parts) = later::split(&reply, digest) else { return };
        let me = around.env.settings.me;
        if parts.later.iter().any(|(owed, _)| !owed.is_of(me)) {
            self.to_say.push(digest);
            self.say(around.order);
        }
        if parts.later.iter().any(|(owed, _)| owed.is_of(me)) {
            self.own.insert(digest, (reply, around.env.world.now_us()));
            self.release(around);
        }
    }

    /// A replica says in the order which replies such requests have made at it.
    pub(super) fn on_answered<W: World>(&mut self, origin: u8, digests: &[u128], around: Around<'_, W>) {
        if origin != around.env.settings.me && !digests.is_empty() {
            self.on_said(origin, digests, around.env.world.now_us());
            self.release(around);
        }
    }

    fn release<W: World>(&mut self, Around { clients, env, needed, .. }: Around<'_, W>) {
        for (digest, reply) in self.take_agreed(needed) {
            clients.release_started(&reply, digest, env);
        }
    }

    /// Says in the order what such requests have made here.
    fn say(&mut self, order: &mut OrderStage) {
        while !self.to_say.is_empty() && order.orderer.can_accept() {
            let digests = self.to_say.drain(..self.to_say.len().min(limits::ANSWERED_DIGESTS)).collect();
            order.submit_control(&Control::Answered { digests });
        }
    }

    /// Time has passed.
    pub(super) fn tick<W: World>(&mut self, Around { clients, order, env, .. }: Around<'_, W>) {
        self.say(order);
        if self.forget_old(env.world.now_us()) {
            clients.give_up_waiting();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(digests: &[u128]) -> StartedReplies {
        let own = digests.iter().map(|digest| (*digest, (Bytes::from_static(b"reply"), 5))).collect();
        StartedReplies { own, ..StartedReplies::default() }
    }

    fn agreed(replies: &mut StartedReplies, needed: usize) -> Vec<u128> {
        replies.take_agreed(needed).into_iter().map(|(digest, _)| digest).collect()
    }

    #[test]
    fn a_reply_leaves_once_enough_others_have_made_the_same_and_only_once() {
        let mut replies = made(&[7, 8]);
        assert_eq!(agreed(&mut replies, 2), []);
        replies.on_said(1, &[7, 9], 6);
        replies.on_said(1, &[7], 6);
        assert_eq!((agreed(&mut replies, 3), agreed(&mut replies, 2)), (vec![], vec![7]));
        replies.on_said(2, &[7], 6);
        assert_eq!(agreed(&mut replies, 2), []);
        assert_eq!(agreed(&mut replies, 1), [8], "a single replica");
    }

    #[test]
    fn what_is_never_confirmed_is_given_up_and_what_was_said_for_nothing_is_forgotten() {
        let late_us = 6 + limits::REPLY_PATIENCE.as_micros() as u64;
        let mut flooded = made(&[7]);
        flooded.on_said(1, &(100..100 + 2 * limits::ANSWERED_KEPT as u128).collect::<Vec<_>>(), 6);
        flooded.on_said(2, &[100], 6);
        assert_eq!((flooded.said.len(), flooded.said[&100].0), (limits::ANSWERED_KEPT, 0b110));
        let mut replies = made(&[7]);
        replies.on_said(1, &[9], 6);
        assert!(!replies.forget_old(6));
        assert!(replies.forget_old(late_us), "a client waits for it");
        assert!(replies.own.is_empty() && replies.said.is_empty());
        assert!(!replies.forget_old(late_us));
    }
}
