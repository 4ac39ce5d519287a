//! What a replica does for a backup: it has a copy of the state ordered, and gives it as to a replica that joins.

use super::core::Core;
use crate::admin::{AdminCommand, BackupGroup, BackupOf, HexBytes, Transferred};
use crate::admin_server::Call;
use crate::ordered::Control;
use crate::peers;
use crate::service::Service;
use crate::transfer::Message;
use crate::world::World;

impl<S: Service, W: World> Core<S, W> {
    /// A command of a backup.
    pub(super) fn on_backup(&mut self, call: Call) {
        if self.env.settings.is_witness() {
            return call.refuse("a witness has no state");
        }
        if !self.env.settings.mode.has_common_state() {
            return call.refuse(&format!(
                "in mode {} no state is common to all replicas, so nobody could vouch for a backup; use mode RDGX",
                self.env.settings.mode
            ));
        }
        if self.env.settings.mode.verified {
            // There the leader does not learn of a wanted copy by an ordered request, and no group begins with one.
            return call.refuse("groups in verified mode have no backups yet; use mode RDGX");
        }
        if self.executor.running.is_none() {
            return call.refuse("this replica has no state yet; try again");
        }
        match &call.command {
            AdminCommand::Backup { orders } => {
                if *orders {
                    self.order.submit_control(&Control::CopyWanted);
                }
                let logged = self.order.orderer.engine_status().last_index;
                let replica = self.env.settings.me + 1;
                call.reply(&BackupOf { replica, logged, group: self.backup_group() });
            }
            AdminCommand::Transfer { receiver, message } => {
                let message = Message::decode(message.0.clone());
                let answer = message
                    .and_then(|message| self.transfer.on_other_receiver(*receiver, &message, &mut self.env));
                match answer {
                    Some(answer) => call.reply(&Transferred { message: HexBytes(answer.encode()) }),
                    None => call.refuse("not a message of a receiver of a state"),
                }
            }
            _ => {}
        }
    }

    fn backup_group(&self) -> BackupGroup {
        let settings = &self.env.settings;
        let key = settings.group_key.as_ref();
        BackupGroup {
            cluster: key.map_or_else(String::new, |key| key.cluster.clone()),
            replicas: settings.peers.len() as u8,
            release: env!("CARGO_PKG_VERSION").to_owned(),
            settings: peers::in_common(settings),
        }
    }
}
