//! The settings of the group (`group_settings.rs`): an operator's command becomes a request of the service, whose reply
//! answers it; and once after its start, a replica says where its configuration has other values than the group.

use super::core::Core;
use crate::admin::{GroupSettings, SettingChange};
use crate::admin_server::Call;
use crate::clients::Reply;
use crate::group_settings::{GroupSetting, NAME_BYTES, SettingsReply, VALUE_BYTES, differing};
use crate::limits;
use crate::ordered::{self, Control};
use crate::pipeline_settings::{of_pipeline, pipeline_at_founding, pipeline_change, reads};
use crate::service::Service;
use crate::settings::{Reads, Settings};
use crate::world::World;

const BUSY: &str = "this replica has no room for another request now; try again";
const NOT_ORDERED: &str = "the command was not ordered: the group or its leader changed meanwhile; try again";
const NO_REPLY: &str = "this replica has no correct reply to the command, which may have taken effect; ask for the \
    settings at another replica";

/// What this replica has to do about the settings by itself.
#[derive(Debug, Default)]
pub(super) struct OwnSettings {
    /// It founds the group, with its configuration.
    founds: bool,
    /// When it last ordered a value of the founding, in microseconds.
    founded_us: Option<u64>,
    check: ConfigurationCheck,
}

impl OwnSettings {
    /// The replica is in its group: it has founded it with the others, or has not.
    pub(super) fn begin(&mut self, founds: bool) {
        self.founds = founds;
        self.check = if founds { ConfigurationCheck::Over } else { ConfigurationCheck::Due };
    }
}

/// Whether this replica's configuration has been compared with what the group has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ConfigurationCheck {
    /// It is the configuration that the group is founded with, or the comparison is over.
    #[default]
    Over,
    /// It is to be compared as soon as this replica serves.
    Due,
    /// The request with this ticket, and this checksum, lists what the group has.
    Asked(u64, u32),
}

impl<S: Service, W: World> Core<S, W> {
    fn say_what_differs(&self, group: Vec<GroupSetting>) {
        let settings = &self.env.settings;
        let file: Vec<_> = settings.founding.iter().cloned().chain(pipeline_at_founding(settings)).collect();
        for line in differing(&file, &group) {
            self.env.world.say(format_args!("{line}"));
        }
    }

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
        let request = match request_of(&self.env.settings, &*execution.service, change) {
            Ok(request) => request,
            Err(why) => {
                let of_pipeline = self.pipeline_settings();
                // The service may have none.
                let refused = Some(why).filter(|_| change.is_some() || of_pipeline.is_empty());
                return call.reply(&GroupSettings { replica: me + 1, refused, settings: of_pipeline });
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
            match self.own_settings.check {
                ConfigurationCheck::Asked(own, checksum) if own == ticket => {
                    self.own_settings.check = ConfigurationCheck::Due;
                    let reply = reply.and_then(|reply| read(&reply, checksum));
                    if let Some(SettingsReply { mut settings, .. }) = reply {
                        self.own_settings.check = ConfigurationCheck::Over;
                        settings.extend(self.pipeline_settings());
                        self.say_what_differs(settings);
                    }
                }
                _ => self.answer_operator(ticket, reply),
            }
        }
    }

    fn answer_operator(&mut self, ticket: u64, reply: Option<Reply>) {
        let Some((call, checksum)) = self.calls.take(ticket) else { return };
        let Some(reply) = reply else { return call.refuse(NOT_ORDERED) };
        let Some(SettingsReply { refused, mut settings }) = read(&reply, checksum) else {
            return call.refuse(NO_REPLY);
        };
        settings.extend(self.pipeline_settings());
        call.reply(&GroupSettings { replica: self.env.settings.me + 1, refused, settings });
    }

    fn pipeline_settings(&self) -> Vec<GroupSetting> {
        of_pipeline(&self.env.settings, &self.order.orderer.state().settings)
    }

    /// This replica has founded the group: a value of its configuration that is not the usual one is ordered, until the
    /// group has it. All founders have the same, and it counts once.
    pub(super) fn order_founding(&mut self) {
        let (now_us, settings) = (self.env.world.now_us(), &self.env.settings);
        let is_usual = settings.reads == Reads::default() || !settings.group_reads_locally();
        let is_there = self.order.orderer.state().settings.contains_key(&reads::NUMBER);
        if !self.own_settings.founds || is_usual || is_there {
            return;
        }
        let patience_us = limits::TIMER_PATIENCE.as_micros() as u64;
        let is_asked = self.own_settings.founded_us.is_some_and(|at_us| now_us < at_us + patience_us);
        if !is_asked && self.executor.running.is_some() && self.order.orderer.can_accept() {
            self.own_settings.founded_us = Some(now_us);
            let (number, value) = (reads::NUMBER, settings.reads as u8);
            self.order.submit_control(&Control::Set { number, value, founds: true });
        }
    }

    /// This replica serves: it asks what the group has, if it is to compare that with its configuration.
    pub(super) fn compare_configuration(&mut self) {
        if self.own_settings.check != ConfigurationCheck::Due || !self.clients.are_served() {
            return;
        }
        self.own_settings.check = ConfigurationCheck::Over;
        let Some(execution) = &self.executor.running else { return };
        let request = request_of(&self.env.settings, &*execution.service, None).ok();
        let Some(request) = request.filter(|_| !self.env.settings.founding.is_empty()) else {
            return self.say_what_differs(self.pipeline_settings());
        };
        let (ticket, checksum) = (self.calls.ticket(self.env.settings.me), request.checksum);
        self.own_settings.check = match self.order.submit_for_operator(request, ticket) {
            true => ConfigurationCheck::Asked(ticket, checksum),
            false => ConfigurationCheck::Due,
        };
    }
}

/// The ordered request that lists the settings, or changes one first.
///
/// # Errors
/// Why there is none.
fn request_of<S: Service>(
    own: &Settings,
    service: &S,
    change: Option<&SettingChange>,
) -> Result<order::Request, String> {
    if change.is_some_and(|change| change.name.len() > NAME_BYTES || change.value.len() > VALUE_BYTES) {
        return Err(format!(
            "the name of a setting has at most {NAME_BYTES} bytes, and its value {VALUE_BYTES}"
        ));
    }
    let change = change.map(|SettingChange { name, value }| (name.as_str(), value.as_str()));
    if let Some(of_pipeline) = change.and_then(|(name, value)| pipeline_change(own, name, value)) {
        let (number, value) = of_pipeline?;
        return Ok(ordered::summed(Control::Set { number, value, founds: false }.encode()));
    }
    let request = service.settings_request(change).map_err(|why| match own.group_reads_locally() {
        true => format!("{why} (of its service; and {})", reads::NAME),
        false => why,
    })?;
    Ok(ordered::summed(service.encode(&request).into()))
}

/// The reply, if it is one to the request with this checksum, and its bytes are those that were voted on. A request of
/// the pipeline itself has an empty one, once it has taken effect.
fn read(reply: &Reply, request_checksum: u32) -> Option<SettingsReply> {
    let Reply { request_checksum: of, bytes, voted } = reply;
    let is_voted = voted.is_none_or(|voted| vote::digest::reply(*of, bytes) == voted);
    match *of == request_checksum && is_voted {
        true if bytes.is_empty() => Some(SettingsReply { refused: None, settings: Vec::new() }),
        true => SettingsReply::read(bytes),
        false => None,
    }
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
