//! The settings of the group (`group_settings.rs`): an operator's command becomes a request of the service, whose reply
//! answers it; and once after its start, a replica says where its configuration has other values than the group.

use super::core::Core;
use crate::admin::{GroupSettings, SettingChange};
use crate::admin_server::Call;
use crate::clients::Reply;
use crate::group_settings::{NAME_BYTES, SettingsReply, VALUE_BYTES, differing};
use crate::ordered;
use crate::service::Service;
use crate::world::World;

const BUSY: &str = "this replica has no room for another request now; try again";
const NOT_ORDERED: &str = "the command was not ordered: the group or its leader changed meanwhile; try again";
const NO_REPLY: &str = "this replica has no correct reply to the command, which may have taken effect; ask for the \
    settings at another replica";

/// Whether this replica's configuration has been compared with what the group has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ConfigurationCheck {
    /// It is the configuration that the group is founded with, or the comparison is over.
    #[default]
    Over,
    /// It is to be compared as soon as this replica serves.
    Due,
    /// The request with this ticket, and this checksum, lists what the group has.
    Asked(u64, u32),
}

impl<S: Service, W: World> Core<S, W> {
    /// Orders what an operator asks of the settings.
    pub(super) fn on_settings(&mut self, call: Call, change: Option<&SettingChange>) {
        if self.env.settings.is_witness() {
            return call.refuse("a witness has no service: send the command to a replica");
        }
        let Some(execution) = &self.executor.running else {
            return call
                .refuse("this replica has no state yet; try again, or send the command to another one");
        };
        let (me, now_us) = (self.env.settings.me, self.env.world.now_us());
        let request = match request_of(&*execution.service, change) {
            Ok(request) => request,
            Err(why) => {
                let refused = Some(why);
                return call.reply(&GroupSettings { replica: me + 1, refused, settings: Vec::new() });
            }
        };
        let Some(ticket) = self.calls.wait_for_reply(me, now_us, request.checksum, call) else { return };
        if !self.order.submit_for_operator(request, ticket) {
            self.calls.refuse(ticket, BUSY);
        }
    }

    /// Hands over the replies that have come.
    pub(super) fn answer_operators(&mut self) {
        for (ticket, reply) in self.clients.take_for_operators() {
            match self.configuration_check {
                ConfigurationCheck::Asked(own, checksum) if own == ticket => {
                    self.configuration_check = ConfigurationCheck::Due;
                    let reply = reply.and_then(|reply| read(&reply, checksum));
                    if let Some(SettingsReply { settings, .. }) = reply {
                        self.configuration_check = ConfigurationCheck::Over;
                        for line in differing(&self.env.settings.founding, &settings) {
                            self.env.world.say(format_args!("{line}"));
                        }
                    }
                }
                _ => self.answer_operator(ticket, reply),
            }
        }
    }

    fn answer_operator(&mut self, ticket: u64, reply: Option<Reply>) {
        let Some((call, checksum)) = self.calls.take(ticket) else { return };
        let Some(reply) = reply else { return call.refuse(NOT_ORDERED) };
        match read(&reply, checksum) {
            Some(SettingsReply { refused, settings }) => {
                let replica = self.env.settings.me + 1;
                call.reply(&GroupSettings { replica, refused, settings });
            }
            None => call.refuse(NO_REPLY),
        }
    }

    /// This replica serves: it asks what the group has, if it is to compare that with its configuration.
    pub(super) fn compare_configuration(&mut self) {
        if self.configuration_check != ConfigurationCheck::Due || !self.clients.are_served() {
            return;
        }
        self.configuration_check = ConfigurationCheck::Over;
        let Some(execution) = &self.executor.running else { return };
        if self.env.settings.founding.is_empty() {
            return;
        }
        let Ok(request) = request_of(&*execution.service, None) else { return };
        let (ticket, checksum) = (self.calls.ticket(self.env.settings.me), request.checksum);
        self.configuration_check = match self.order.submit_for_operator(request, ticket) {
            true => ConfigurationCheck::Asked(ticket, checksum),
            false => ConfigurationCheck::Due,
        };
    }
}

/// The ordered request that lists the settings, or changes one first.
///
/// # Errors
/// Why there is none.
fn request_of<S: Service>(service: &S, change: Option<&SettingChange>) -> Result<order::Request, String> {
    if change.is_some_and(|change| change.name.len() > NAME_BYTES || change.value.len() > VALUE_BYTES) {
        return Err(format!(
            "the name of a setting has at most {NAME_BYTES} bytes, and its value {VALUE_BYTES}"
        ));
    }
    let change = change.map(|SettingChange { name, value }| (name.as_str(), value.as_str()));
    let request = service.settings_request(change)?;
    Ok(ordered::summed(service.encode(&request).into()))
}

/// The reply, if it is one to the request with this checksum, and its bytes are those that were voted on.
fn read(reply: &Reply, request_checksum: u32) -> Option<SettingsReply> {
    let Reply { request_checksum: of, bytes, voted } = reply;
    let is_voted = voted.is_none_or(|voted| vote::digest::reply(*of, bytes) == voted);
    (*of == request_checksum && is_voted).then(|| SettingsReply::read(bytes))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_to_another_request_or_with_other_bytes_answers_nothing() {
        let mut bytes = Vec::new();
        SettingsReply { refused: None, settings: Vec::new() }.write(&mut bytes);
        let voted = Some(vote::digest::reply(5, &bytes));
        let reply = Reply { request_checksum: 5, bytes: bytes.clone().into(), voted };
        assert!(read(&reply, 5).is_some() && read(&reply, 6).is_none());
        bytes.push(b' ');
        let changed = Reply { bytes: bytes.into(), ..reply };
        assert!(SettingsReply::read(&changed.bytes).is_some(), "it is well-formed all the same");
        assert!(read(&changed, 5).is_none());
    }
}
