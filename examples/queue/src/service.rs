//! The queue as a service: its locks, the footprint of each request, and the handlers.

use std::fmt;

use bytes::Bytes;
use crosscheck::object::{Members, ObjectId, Ref, RegionId, Shape, from_bytes, genesis, to_bytes};
use crosscheck::schedule::{DetGuard, DetMutex, Footprint, Locks, Retry};
use crosscheck::{ConnectionId, ConnectionsOfReplica, Cx, Malformed, Service};

use crate::job::{JobId, QueuedJob};
use crate::request::{QueueCommand, QueueRequest, Sender};
use crate::settings::Setting;
use crate::stats::Counts;
use crate::tube::Tube;
use crate::tubes::{Tubes, Wait};
use crate::{DEFAULT_TUBE, MAX_KICKED, REGIONS, hash_of, region_of_job, region_of_tube, regions_in};

/// What one timer, or the end of a connection, does at once in a region at most.
const DONE_AT_ONCE: usize = 256;
/// Clients that one request gives a job to at most.
const SERVED_AT_ONCE: usize = 16;
/// The end of a reservation during which its client is not made to wait.
const MARGIN_US: u64 = 1_000_000;
const NOT_FOUND: &str = "NOT_FOUND";

/// A reply without the end of its line.
type Text = Result<Vec<u8>, Retry>;

/// The queue's state, behind its locks, and its handlers.
#[derive(Locks)]
pub struct WorkQueue {
    regions: Vec<DetMutex<Tubes>>,
}

/// The regions that a request has entered so far. Each stays open to its end.
struct OpenRegions<'c> {
    queue: &'c WorkQueue,
    cx: &'c Cx<'c, WorkQueue>,
    regions: [Option<DetGuard<'c, Tubes>>; REGIONS as usize],
}

impl<'c> OpenRegions<'c> {
    fn at(&mut self, region: u32) -> Result<&mut Tubes, Retry> {
        let at = (region % REGIONS) as usize;
        if self.regions[at].is_none() {
            self.regions[at] = Some(self.cx.lock(&self.queue.regions[at])?);
        }
        match &mut self.regions[at] {
            Some(tubes) => Ok(tubes),
            None => unreachable!("it was opened above"),
        }
    }

    /// Those that are open.
    fn all(&self) -> Vec<u32> {
        (0..REGIONS).filter(|region| self.regions[*region as usize].is_some()).collect()
    }

    /// A client waits no more.
    fn end_wait(&mut self, place: u64, wait: &Wait) -> Result<(), Retry> {
        regions_in(wait.regions).try_for_each(|region| {
            self.at(region)?.end_wait(place);
            Ok(())
        })
    }

    /// Connections have ended, the first of which may be `from`: gives up some of what they have in these regions.
    /// Returns whether that was all.
    fn give_up(
        &mut self,
        regions: u16,
        from: ConnectionId,
        have_ended: impl Fn(ConnectionId) -> bool,
    ) -> Result<bool, Retry> {
        let mut is_all = true;
        for region in regions_in(regions) {
            let (waits, is_all_here) = self.at(region)?.give_up(from, &have_ended, DONE_AT_ONCE);
            waits.iter().try_for_each(|(place, wait)| self.end_wait(*place, wait))?;
            is_all &= is_all_here;
        }
        Ok(is_all)
    }

    /// When the margin of the first reservation begins that a connection has in these regions.
    fn margin(&mut self, connection: ConnectionId, holding: u16) -> Result<u64, Retry> {
        let mut first_us = u64::MAX;
        for region in regions_in(holding) {
            first_us = first_us.min(self.at(region)?.first_deadline(connection));
        }
        Ok(if first_us == u64::MAX { first_us } else { first_us - MARGIN_US })
    }

    fn of_tube(&mut self, name: &str) -> Result<&mut Tubes, Retry> {
        self.at(region_of_tube(name))
    }
}

impl WorkQueue {
    /// A queue without jobs.
    pub fn new() -> Self {
        let region = |region_id| DetMutex::new(region_id, genesis(region_id, || Tubes::new(region_id)));
        WorkQueue { regions: (0..REGIONS).map(region).collect() }
    }

    /// Does a command, and returns the reply without the end of its line.
    fn run(&self, cx: &Cx<'_, Self>, open: &mut OpenRegions<'_>, request: &QueueRequest) -> Text {
        let (sender, by) = (&request.sender, request.sender.connection);
        Ok(match &request.command {
            QueueCommand::Put { tube, pri, delay, ttr, body } => {
                let region = open.of_tube(tube)?;
                if region.settings().is_draining() {
                    return Ok(b"DRAINING".to_vec());
                }
                match region.put(cx.position(), tube, (*pri, *delay, *ttr), body, cx.now_us()) {
                    Some(id) => text(format_args!("INSERTED {id}")),
                    None => b"OUT_OF_MEMORY".to_vec(),
                }
            }
            QueueCommand::Reserve { tubes } => self.reserve(cx, open, sender, tubes, None)?,
            QueueCommand::ReserveWithTimeout { tubes, seconds } => {
                self.reserve(cx, open, sender, tubes, Some(*seconds))?
            }
            QueueCommand::Stats => self.stats(open)?,
            QueueCommand::ListTubes => {
                let mut names = Vec::new();
                for region in 0..REGIONS {
                    names.extend(open.at(region)?.names().map(str::to_owned));
                }
                ok(&list(&names))
            }
            QueueCommand::ListTubesWatched { tubes } => ok(&list(tubes)),
            QueueCommand::Quit => Vec::new(),
            QueueCommand::Closed { regions } => {
                if !open.give_up(*regions, by, |holder| holder == by)? {
                    cx.spawn(request.clone());
                }
                Vec::new()
            }
            QueueCommand::ReplicaClosed { connections } => {
                let from = connections.range().start;
                if !open.give_up(u16::MAX, from, |holder| connections.contains(holder))? {
                    cx.spawn(request.clone());
                }
                Vec::new()
            }
            QueueCommand::Tick { region, time_us } => {
                let waits = open.at(*region)?.tick(*time_us, cx.now_us(), DONE_AT_ONCE);
                self.serve(cx, open, *region)?;
                for (place, wait) in waits {
                    self.wait_on(cx, open, *region, (place, wait))?;
                }
                Vec::new()
            }
            QueueCommand::Settings { change } => self.settings(cx, open, *change)?,
            command => match command.job() {
                Some(id) => on_job(cx, open.at(region_of_job(id))?, id, by, command),
                None => on_tube(cx, open, by, command)?,
            },
        })
    }

    /// Reserves the most urgent job of these tubes.
    fn reserve(
        &self,
        cx: &Cx<'_, Self>,
        open: &mut OpenRegions<'_>,
        sender: &Sender,
        tubes: &[String],
        seconds: Option<u32>,
    ) -> Text {
        let (now_us, mut best) = (cx.now_us(), None);
        for name in tubes {
            let region = open.of_tube(name)?;
            let ready =
                region.tube(name).filter(|tube| tube.is_open(now_us)).and_then(|tube| tube.first_ready());
            best = best.into_iter().chain(ready).min_by_key(|(key, _)| *key);
        }
        if let Some(((_, id), job)) = best {
            let region = open.at(region_of_job(id))?;
            return Ok(with_body("RESERVED", region.reserve(job, sender.connection, now_us)));
        }
        let connection = sender.connection;
        let until_us = seconds.map_or(u64::MAX, |seconds| now_us + u64::from(seconds) * 1_000_000);
        let soon_us = open.margin(connection, sender.holding)?;
        if soon_us <= now_us {
            return Ok(b"DEADLINE_SOON".to_vec());
        }
        if until_us <= now_us {
            return Ok(b"TIMED_OUT".to_vec());
        }
        let regions = tubes.iter().fold(0, |regions, tube| regions | 1 << region_of_tube(tube));
        let wait = Wait::new(connection, cx.owe_reply(), until_us, (regions, sender.holding));
        for region in regions_in(regions) {
            open.at(region)?.wait(cx.position(), wait.clone(), tubes, until_us.min(soon_us));
        }
        Ok(Vec::new())
    }

    /// The timer of a client that waits has fired, if it has got no job since: it waits no more, or goes on, since a
    /// reservation of its lasts longer now.
    fn wait_on(
        &self,
        cx: &Cx<'_, Self>,
        open: &mut OpenRegions<'_>,
        region: u32,
        (place, wait): (u64, Wait),
    ) -> Result<(), Retry> {
        if !open.at(region)?.waits(place) {
            return Ok(());
        }
        let soon_us = open.margin(wait.connection, wait.holding)?;
        let reply: &[u8] = match cx.now_us() {
            now_us if soon_us <= now_us => b"DEADLINE_SOON\r\n",
            now_us if wait.until_us <= now_us => b"TIMED_OUT\r\n",
            _ => {
                open.at(region)?.set_timer(place, wait.until_us.min(soon_us));
                return Ok(());
            }
        };
        open.end_wait(place, &wait)?;
        cx.reply_to(wait.owed, reply);
        Ok(())
    }

    /// Gives jobs that are ready to clients that wait.
    fn serve(&self, cx: &Cx<'_, Self>, open: &mut OpenRegions<'_>, region: u32) -> Result<(), Retry> {
        for _ in 0..SERVED_AT_ONCE {
            let Some((place, wait, job)) = open.at(region)?.next_match(cx.now_us()) else { return Ok(()) };
            open.end_wait(place, &wait)?;
            let job = open.at(region)?.reserve(job, wait.connection, cx.now_us());
            cx.reply_to(wait.owed, &[with_body("RESERVED", job).as_slice(), b"\r\n"].concat());
        }
        cx.spawn(QueueCommand::Tick { region, time_us: 0 }.of_service());
        Ok(())
    }

    fn stats(&self, open: &mut OpenRegions<'_>) -> Text {
        let (mut counts, mut tubes) = (Counts::default(), 0);
        for region in 0..REGIONS {
            let region = open.at(region)?;
            counts.add(region.counts());
            tubes += region.tubes();
        }
        Ok(ok(&counts.text(tubes, open.at(0)?.settings().is_draining())))
    }

    fn settings(&self, cx: &Cx<'_, Self>, open: &mut OpenRegions<'_>, change: Option<Setting>) -> Text {
        for region in 0..REGIONS {
            let region = open.at(region)?;
            change.into_iter().for_each(|setting| region.set(setting, cx.entry_index()));
        }
        let mut reply = Vec::new();
        open.at(0)?.settings().list(&mut reply);
        Ok(reply)
    }
}

/// A reply of one line, without its end.
fn text(reply: fmt::Arguments<'_>) -> Vec<u8> {
    reply.to_string().into_bytes()
}

fn done(is_done: bool, reply: &str) -> Vec<u8> {
    if is_done { reply.into() } else { NOT_FOUND.into() }
}

/// A reply with data.
fn ok(data: &str) -> Vec<u8> {
    text(format_args!("OK {}\r\n{data}", data.len()))
}

/// A reply with a job, if there is one.
fn with_body(word: &str, job: Option<&QueuedJob>) -> Vec<u8> {
    let Some(job) = job else { return NOT_FOUND.into() };
    let (body, (_, id)) = (job.body(), job.key());
    [text(format_args!("{word} {id} {}\r\n", body.len())).as_slice(), body].concat()
}

fn list(names: &[String]) -> String {
    names.iter().fold("---\n".to_owned(), |list, name| list + "- " + name + "\n")
}

/// One job of a tube.
fn peek(
    open: &mut OpenRegions<'_>,
    name: &str,
    choose: impl FnOnce(&Tube) -> Option<Ref<QueuedJob>>,
) -> Text {
    let region = open.of_tube(name)?;
    Ok(with_body("FOUND", region.tube(name).and_then(choose).and_then(|job| region.job(job))))
}

/// A command that names a job, which is in this region if it is anywhere.
fn on_job(
    cx: &Cx<'_, WorkQueue>,
    region: &mut Tubes,
    id: JobId,
    by: ConnectionId,
    command: &QueueCommand,
) -> Vec<u8> {
    let (now_us, Some(job)) = (cx.now_us(), region.find_job(id)) else { return NOT_FOUND.into() };
    let (is_done, reply) = match *command {
        QueueCommand::Peek { .. } => return with_body("FOUND", region.job(job)),
        QueueCommand::ReserveJob { .. } => return with_body("RESERVED", region.reserve(job, by, now_us)),
        QueueCommand::StatsJob { .. } => {
            return region.stats_of(job, now_us).map_or_else(|| NOT_FOUND.into(), |stats| ok(&stats));
        }
        QueueCommand::Delete { .. } => (region.delete(job, by), "DELETED"),
        QueueCommand::KickJob { .. } => (region.kick(job), "KICKED"),
        _ if !region.is_reserved(job, by) => return NOT_FOUND.into(),
        QueueCommand::Release { pri, delay, .. } => (region.release(job, pri, delay, now_us), "RELEASED"),
        QueueCommand::Bury { pri, .. } => (region.bury(job, pri, cx.position()), "BURIED"),
        _ => (region.touch(job, by, now_us), "TOUCHED"),
    };
    done(is_done, reply)
}

/// A command that names a tube.
fn on_tube(
    cx: &Cx<'_, WorkQueue>,
    open: &mut OpenRegions<'_>,
    by: ConnectionId,
    command: &QueueCommand,
) -> Text {
    let now_us = cx.now_us();
    Ok(match command {
        QueueCommand::PeekReady { tube } => peek(open, tube, |tube| Some(tube.first_ready()?.1))?,
        QueueCommand::PeekDelayed { tube } => peek(open, tube, |tube| tube.first_delayed())?,
        QueueCommand::PeekBuried { tube } => peek(open, tube, |tube| tube.first_buried())?,
        QueueCommand::Kick { tube, bound } => {
            let region = open.of_tube(tube)?;
            let buried = region.tube(tube).is_some_and(|tube| tube.first_buried().is_some());
            let most = (*bound).min(MAX_KICKED);
            let kicked = (0..most).take_while(|_| region.kick_next(tube, buried)).count();
            text(format_args!("KICKED {kicked}"))
        }
        QueueCommand::Use { from, tube } => {
            if from != tube {
                open.of_tube(from)?.refer(by, from, false, false);
            }
            let is_used = open.of_tube(tube)?.refer(by, tube, false, true);
            referred(is_used, format_args!("USING {tube}"))
        }
        QueueCommand::Watch { tube, is_new, watched } => {
            let is_watched = !is_new || open.of_tube(tube)?.refer(by, tube, true, true);
            referred(is_watched, format_args!("WATCHING {watched}"))
        }
        QueueCommand::Ignore { watched: 0, .. } => b"NOT_IGNORED".to_vec(),
        QueueCommand::Ignore { tube, is_old, watched } => {
            if *is_old {
                open.of_tube(tube)?.refer(by, tube, true, false);
            }
            text(format_args!("WATCHING {watched}"))
        }
        QueueCommand::PauseTube { tube, seconds } => {
            done(open.of_tube(tube)?.pause(tube, *seconds, now_us), "PAUSED")
        }
        QueueCommand::ListTubeUsed { tube } => text(format_args!("USING {tube}")),
        QueueCommand::StatsTube { tube } => match open.of_tube(tube)?.tube(tube) {
            Some(tube) => ok(&tube.stats(now_us)),
            None => NOT_FOUND.into(),
        },
        _ => b"INTERNAL_ERROR".to_vec(),
    })
}

/// The reply to a command that needs a tube.
fn referred(has_room: bool, reply: fmt::Arguments<'_>) -> Vec<u8> {
    if has_room { text(reply) } else { b"OUT_OF_MEMORY".to_vec() }
}

impl Default for WorkQueue {
    fn default() -> Self {
        Self::new()
    }
}

impl Service for WorkQueue {
    type Request = QueueRequest;

    fn decode(&self, ordered: &Bytes) -> Result<QueueRequest, Malformed> {
        from_bytes(ordered)
    }

    fn encode(&self, request: &QueueRequest) -> Vec<u8> {
        to_bytes(request)
    }

    fn shape_of_requests(shape: &mut Shape) {
        shape.add::<QueueRequest>();
    }

    fn footprint(&self, request: &QueueRequest, footprint: &mut Footprint) {
        let command = &request.command;
        command.tubes().iter().for_each(|tube| footprint.write(region_of_tube(tube)));
        command.job().into_iter().for_each(|id| footprint.write(region_of_job(id)));
        match command {
            QueueCommand::Reserve { .. } | QueueCommand::ReserveWithTimeout { .. } => {
                regions_in(request.sender.holding).for_each(|region| footprint.write(region));
            }
            QueueCommand::Closed { regions } => {
                regions_in(*regions).for_each(|region| footprint.write(region))
            }
            QueueCommand::Tick { region, .. } => footprint.write(region % REGIONS),
            QueueCommand::Stats
            | QueueCommand::ListTubes
            | QueueCommand::Settings { .. }
            | QueueCommand::ReplicaClosed { .. } => {
                (0..REGIONS).for_each(|region| footprint.write(region));
            }
            _ => {}
        }
        if request.sender.news != 0 {
            footprint.write(region_of_tube(DEFAULT_TUBE));
        }
        // A job that becomes ready may be for a client that waits in other regions too.
        match command {
            QueueCommand::Put { tube, .. } | QueueCommand::Kick { tube, .. } => {
                footprint.predict(hash_of(tube))
            }
            QueueCommand::Release { id, .. } | QueueCommand::KickJob { id } => {
                footprint.predict(region_of_job(*id));
            }
            QueueCommand::Tick { region, .. } => footprint.predict(REGIONS + region),
            _ => {}
        }
    }

    fn execute(&self, cx: &Cx<'_, Self>, request: &QueueRequest, reply: &mut Vec<u8>) -> Result<(), Retry> {
        let mut open = OpenRegions { queue: self, cx, regions: Default::default() };
        if request.sender.news != 0 {
            open.of_tube(DEFAULT_TUBE)?.greet(&request.sender);
        }
        let kind = self.kind(request);
        if usize::from(kind) <= QueueCommand::OF_CLIENTS {
            let mut footprint = Footprint::new();
            self.footprint(request, &mut footprint);
            open.at(footprint.first().unwrap_or(0))?.count_command(kind);
        }
        let answer = self.run(cx, &mut open, request)?;
        for region in open.all() {
            self.serve(cx, &mut open, region)?;
        }
        for region in open.all() {
            if let Some(time_us) = open.at(region)?.next_timer(cx.now_us()) {
                cx.at(time_us, QueueCommand::Tick { region, time_us }.of_service());
            }
        }
        reply.extend(answer);
        if !reply.is_empty() && !matches!(request.command, QueueCommand::Settings { .. }) {
            reply.extend(b"\r\n");
        }
        Ok(())
    }

    fn settings_request(&self, change: Option<(&str, &str)>) -> Result<QueueRequest, String> {
        let change = change.map(|(name, value)| Setting::read(name, value)).transpose()?;
        Ok(QueueCommand::Settings { change }.of_service())
    }

    fn closed(&self, connections: ConnectionsOfReplica) -> Option<QueueRequest> {
        Some(QueueCommand::ReplicaClosed { connections }.of_service())
    }

    fn panicked(&self, _request: &QueueRequest, reply: &mut Vec<u8>) {
        reply.extend(b"INTERNAL_ERROR\r\n");
    }

    fn kind(&self, request: &QueueRequest) -> u16 {
        request.command.kind()
    }

    fn kind_name(kind: u16) -> Option<&'static str> {
        QueueCommand::kind_name(kind)
    }

    fn name_of(object: &Members<'_>) -> Option<String> {
        match object.class {
            "QueuedJob" => from_bytes::<u64>(object.get("id")?).ok().map(|id| format!("job {id}")),
            "Tube" => from_bytes::<String>(object.get("name")?).ok().map(|name| format!("tube {name}")),
            "Tubes" => from_bytes::<u32>(object.get("number")?).ok().map(|number| format!("region {number}")),
            _ => None,
        }
    }

    fn region_id_of(&self, name: &str) -> Option<RegionId> {
        match name.split_once(':')? {
            ("job", id) => id.parse().ok().map(region_of_job),
            ("tube", name) => Some(region_of_tube(name)),
            ("region", number) => number.parse().ok().filter(|number| *number < REGIONS),
            _ => None,
        }
    }

    fn find(&self, cx: &Cx<'_, Self>, name: &str) -> Option<ObjectId> {
        let region = cx.lock(self.regions.get(self.region_id_of(name)? as usize)?).ok()?;
        match name.split_once(':')? {
            ("job", id) => region.find_job(id.parse().ok()?).map(|job| job.id()),
            ("tube", name) => region.find_tube(name).map(|tube| tube.id()),
            _ => Some(region.object_id()),
        }
    }
}
