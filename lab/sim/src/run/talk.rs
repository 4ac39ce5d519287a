//! Messages between clients and replicas: commands in, answers out.

use bytes::Bytes;
use crosscheck::stepped::ReplyTo;
use vote::Place;

use super::{Event, Run};
use crate::client::{PATIENCE_US, SentCommand};
use crate::node::ClientAnswer;
use crate::promises;
use crate::reference::read_place;
use crate::workload::Workload;

/// Time after the last fault after which every command is answered.
const CALM_US: u64 = 1_000_000;

impl<W: Workload> Run<W> {
    /// A pending event happens.
    pub(super) fn perform(&mut self, event: Event) {
        match event {
            Event::Client(client) => self.on_client(client),
            Event::Commands { client, session, numbers } => self.on_commands(client, session, &numbers),
            Event::Answered { client, session, number, reply } => {
                self.on_answered(client, session, number, &reply);
            }
            Event::Gone { client, session } => {
                if self.clients[client].session == Some(session) {
                    self.move_on(client);
                }
            }
            Event::Stroke(stroke) => self.strike(&stroke),
            Event::PowerOff { replica, incarnation } => {
                let slot = &self.slots[usize::from(replica)];
                if slot.incarnation == incarnation && slot.process.is_some() {
                    self.lose_power(replica);
                }
            }
            Event::Lost(stroke) => {
                self.lasting -= 1;
                self.lose_memory(&stroke);
            }
            Event::Watch { replica, incarnation } => self.watch(replica, incarnation),
            Event::Received(number) => self.receive_as_stranger(number),
            Event::Again { victim, inject } => self.again(victim, inject),
            Event::Storm { victim, more } => self.storm(victim, more),
            Event::SetReads { more } => self.set_reads(more),
            Event::Over(stroke) => self.end_stroke(&stroke),
            Event::Nothing => {}
        }
    }

    /// A client acts so much later. In chains, which take long, only the last such event counts: otherwise each answer
    /// that was waited for, and each move to another replica, would make it busier for ever.
    pub(super) fn act_in(&mut self, client: usize, after_us: u64) {
        self.clients[client].acts_us = self.now_us + after_us;
        self.at(after_us, Event::Client(client));
    }

    /// A client sends its next commands, connects first, or gives up on an answer.
    fn on_client(&mut self, number: usize) {
        let client = &mut self.clients[number];
        let is_last = self.now_us == client.acts_us || !client.waiting.is_empty();
        if self.options.chains && !is_last {
            return;
        }
        if !client.waiting.is_empty() {
            if self.now_us >= client.deadline_us {
                self.trace.record(self.now_us, format_args!("client {number} gives up"));
                self.judge_patience(number);
                self.hang_up(number);
                self.move_on(number);
            }
            return;
        }
        if client.is_done() {
            return;
        }
        if client.session.is_none() && !self.connect(number) {
            return;
        }
        let client = &mut self.clients[number];
        let Some(session) = client.session else { return };
        let (count, _) = client.burst();
        let commands: Vec<W::Command> =
            (0..count).map_while(|_| client.command()).take(count as usize).collect();
        let mut numbers = Vec::new();
        for command in commands {
            let (floor, named) = (self.facts.answered, self.facts.sent_commands.len());
            numbers.push(named);
            self.model.commands.push(command);
            let sent = SentCommand { client: number, command: named, floor, place: None, answered: false };
            self.facts.sent_commands.push(sent);
        }
        let client = &mut self.clients[number];
        client.waiting.extend(&numbers);
        client.deadline_us = self.now_us + PATIENCE_US;
        let delay = self.rng.within(20, 200);
        self.at(delay, Event::Commands { client: number, session, numbers });
        self.at(PATIENCE_US, Event::Client(number));
    }

    /// In verified mode: when all faults have been over for a while, every command is answered in time.
    fn judge_patience(&mut self, number: usize) {
        let sent_us = self.now_us.saturating_sub(PATIENCE_US);
        let is_calm = |slot: &super::ReplicaSlot<W>| {
            let last_us = slot.calm_us.max(slot.paused_us).max(slot.starts_us).max(slot.free_us);
            slot.process.is_some() && last_us + CALM_US <= sent_us
        };
        if self.options.verified && self.lasting == 0 && self.slots.iter().all(is_calm) {
            let how = format!("client {number} gets no answer although the faults are over");
            self.broken(promises::PROGRESS, how);
        }
    }

    /// Connects to the client's replica; if it does not serve, the client tries another one a moment later.
    fn connect(&mut self, number: usize) -> bool {
        let client = &mut self.clients[number];
        let slot = &mut self.slots[usize::from(client.replica)];
        let is_gone = self.facts.gone.contains(&client.replica);
        if let Some(process) = slot.process.as_mut().filter(|process| !is_gone && process.replica.serves()) {
            self.sessions += 1;
            process.open(number as u32, self.sessions);
            client.session = Some((slot.incarnation, self.sessions));
            return true;
        }
        client.move_on(self.options.replicas);
        let after = self.rng.within(1_000, 20_000);
        self.act_in(number, after);
        false
    }

    fn on_commands(&mut self, number: usize, session: (u64, u32), numbers: &[usize]) {
        let replica = self.clients[number].replica;
        if self.clients[number].session != Some(session) {
            return;
        }
        let slot = &mut self.slots[usize::from(replica)];
        if slot.paused_us > self.now_us {
            // The bytes wait in the kernel.
            let after = slot.paused_us - self.now_us + 1;
            return self.at(after, Event::Commands { client: number, session, numbers: numbers.to_vec() });
        }
        let there = slot.incarnation == session.0;
        let Some(process) =
            slot.process.as_mut().filter(|process| there && process.has(number as u32, session.1))
        else {
            return self.at(50, Event::Gone { client: number, session });
        };
        let mut wrong = None;
        for command in numbers {
            let text = self.workload.bytes(&self.model.commands[*command]);
            let cut =
                if self.rng.chance(200) { self.rng.modulo(text.len() as u64) as usize } else { text.len() };
            match process.receive(number as u32, *command, &text, cut) {
                Ok(Some(submitted)) => {
                    self.facts.record_sent(&submitted.request, submitted.number);
                    self.model.sent(&submitted.request);
                }
                Ok(None) => {}
                Err(why) => wrong = Some(why),
            }
        }
        slot.wake_us = slot.wake_us.min(self.now_us);
        if let Some(why) = wrong {
            self.broken(promises::PROGRESS, why);
        }
    }

    /// A reply passed the gate: its command has a position.
    pub(super) fn place(&mut self, replica: u8, to: ReplyTo, place: Place) {
        let process = self.slots[usize::from(replica)].process.as_ref();
        if let Some(number) = process.and_then(|process| process.command_of(to)) {
            self.facts.sent_commands[number].place = Some(place);
        }
    }

    /// A reply to a read leaves that took no batch: its command counts as the last one of the batch that it has seen.
    pub(super) fn place_read(&mut self, replica: u8, to: ReplyTo, batch: u64) {
        let process = self.slots[usize::from(replica)].process.as_ref();
        if let Some(number) = process.and_then(|process| process.command_of(to)) {
            self.facts.sent_commands[number].place = Some(read_place(batch));
            self.model.read(number, batch);
        }
    }

    /// An answer leaves its replica, which is this much later than the run.
    pub(super) fn leave(
        &mut self,
        incarnation: u64,
        late_us: u64,
        (client, generation): (u32, u32),
        answer: ClientAnswer,
    ) {
        if late_us >= super::watch::NEVER_US {
            // It would leave after a handler that never ends.
            return;
        }
        let (client, session) = (client as usize, (incarnation, generation));
        let after = late_us + self.rng.within(20, 200);
        match answer {
            ClientAnswer::Reply(number, reply) => {
                // Answers of one connection arrive in their order.
                let last = self.clients[client].next_us.max(self.now_us + after);
                self.clients[client].next_us = last + 1;
                self.at(last - self.now_us, Event::Answered { client, session, number, reply });
            }
            ClientAnswer::Closed => self.at(after, Event::Gone { client, session }),
        }
    }

    fn on_answered(&mut self, client: usize, session: (u64, u32), number: usize, reply: &Bytes) {
        if self.clients[client].session != Some(session) {
            return;
        }
        if self.clients[client].waiting.pop_front() != Some(number) {
            let how = format!("client {client} got the answer to command {number} out of turn");
            return self.broken(promises::PROGRESS, how);
        }
        self.trace.record(self.now_us, format_args!("client {client} is answered {number}"));
        self.facts.sent_commands[number].answered = true;
        self.summary.answered += 1;
        self.answer_in_chain(number, self.clients[client].replica);
        let sent = self.facts.sent_commands[number];
        let mut promises = std::mem::take(&mut self.promises);
        for promise in &mut promises {
            let broken = promise.answered(&sent, reply, &self.facts, &mut self.model);
            self.judge(promise.about(), broken);
        }
        self.promises = promises;
        self.facts.answered = self.facts.answered.max(sent.place);
        self.clients[client].learn(&self.model.commands[number], reply);
        if self.clients[client].waiting.is_empty() {
            let (_, thinks) = self.clients[client].burst();
            self.act_in(client, thinks);
        }
    }

    /// Every client reads all data.
    pub(super) fn read_all(&mut self) {
        for client in 0..self.clients.len() {
            self.clients[client].reading = self.workload.final_reads();
            self.act_in(client, 1);
        }
    }

    pub(super) fn hang_up(&mut self, number: usize) {
        let client = &self.clients[number];
        if let (Some(session), Some(process)) =
            (client.session, self.slots[usize::from(client.replica)].process.as_mut())
            && process.has(number as u32, session.1)
        {
            process.hang_up(number as u32);
        }
    }

    pub(super) fn move_on(&mut self, number: usize) {
        self.clients[number].move_on(self.options.replicas);
        let after = self.rng.within(1_000, 20_000);
        self.act_in(number, after);
    }

    /// Clients of a replica that is gone learn of it.
    pub(super) fn hang_up_clients(&mut self, replica: u8) {
        for client in 0..self.clients.len() {
            if self.clients[client].replica == replica
                && let Some(session) = self.clients[client].session
            {
                self.at(50, Event::Gone { client, session });
            }
        }
    }
}
