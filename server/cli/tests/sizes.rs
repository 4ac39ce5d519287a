//! A group grows and shrinks while it serves, without a restart of the replicas that stay.

use memcached_client::load::RunningLoad;
use rustix::process::Signal;
use serde_json::Value;

use crate::failover::load;
use crate::moving::{Group, Machine, another_machine};
use crate::support::cluster::{Cluster, Wish};

/// A group of three that `up` has started, and the replicas that are added to it.
struct Grown {
    group: Group,
    /// Addresses of the added ones for their peers.
    addresses: Vec<String>,
    added: Vec<Machine>,
}

impl Grown {
    fn of(wish: &Wish) -> Grown {
        Grown { group: Group::up(wish), addresses: Vec::new(), added: Vec::new() }
    }

    /// Starts two more replicas, with configurations that list all.
    fn start_two(&mut self) {
        self.addresses.extend((0..2).map(|_| another_machine()));
        let first = self.added.len();
        for number in first..self.addresses.len() {
            self.added.push(self.start(number));
        }
    }

    fn start(&self, number: usize) -> Machine {
        self.group.start(&self.configuration(number), &format!("added-{number}"))
    }

    /// The configuration of an added replica.
    fn configuration(&self, number: usize) -> String {
        let directory = self.group.directory.path();
        let own = |line: &str| match line.split(" = ").next().unwrap_or_default() {
            "this_replica" => format!("this_replica = {}\n", number + 4),
            "listen" => format!("listen = \"{}\"\n", clients_of(&self.addresses[number])),
            "admin" => format!("admin = \"{}\"\n", self.admin(number)),
            "data_dir" => format!("data_dir = \"{}\"\n", directory.join(format!("data-{number}")).display()),
            _ => format!("{line}\n"),
        };
        let text: String = self.group.configurations[0].lines().map(own).collect();
        let section = |(number, address): (usize, &String)| {
            format!("\n[[replica]]\nnumber = {}\naddress = \"{address}\"\n", number + 4)
        };
        text + &self.addresses.iter().enumerate().map(section).collect::<String>()
    }

    /// The messages of the added ones.
    fn said(&self) -> String {
        self.added.iter().map(Machine::said).collect::<Vec<_>>().join("---\n")
    }

    fn admin(&self, number: usize) -> String {
        self.group.directory.path().join(format!("added-{number}.sock")).display().to_string()
    }

    fn grow(&self, asked: usize) -> (i32, String) {
        let [.., one, other] = &self.addresses[..] else { panic!("two were started") };
        let admin = self.group.cluster.admin_of(asked);
        self.group.cluster.command(&[
            "group",
            "grow",
            "--address",
            one,
            "--address",
            other,
            "--admin",
            &admin,
        ])
    }

    /// Asks these replicas of those that `up` has started.
    fn shrink(&self, asked: &[usize]) -> (i32, String) {
        let admins: Vec<String> = asked.iter().map(|replica| self.group.cluster.admin_of(*replica)).collect();
        let options = admins.iter().flat_map(|admin| ["--admin", admin.as_str()]);
        let words: Vec<&str> = ["group", "shrink"].into_iter().chain(options).collect();
        self.group.cluster.command(&words)
    }

    /// Waits until these replicas of the first three, and all that were added, serve in a group of so many.
    fn wait_whole(&self, firsts: &[usize], size: u64) {
        let tolerates = (size - 1) / 2;
        let is_whole = |status: Value| {
            status["phase"] == "serving" && status["tolerates"] == tolerates && status["replicas"] == size
        };
        let deadline = std::time::Instant::now() + crate::support::cluster::PATIENCE;
        while !firsts.iter().all(|of| self.group.cluster.status(*of).is_some_and(is_whole)) {
            assert!(std::time::Instant::now() < deadline, "{}\n{}", self.group.cluster.seen(), self.said());
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
    }

    /// Those that were added end, and say that the group has let them go.
    fn added_are_let_go(&mut self) {
        for mut machine in self.added.drain(..) {
            let code = machine.wait_for_end(&self.group.cluster);
            let said = machine.said();
            assert!(code == Some(2) && said.contains("the group has let this replica go"), "{code:?} {said}");
        }
        self.addresses.clear();
    }
}

/// The address for clients of a replica with this address for peers.
fn clients_of(address: &str) -> String {
    address.replace(":12211", ":11211")
}

fn end_right(grown: Grown, running: RunningLoad) {
    let report = running.stop_and_audit(&grown.group.cluster.clients()[..3]);
    println!("{report}");
    report.assert_right();
    let firsts: Vec<usize> = (0..3).filter(|of| grown.group.cluster.status(*of).is_some()).collect();
    for replica in firsts {
        assert_eq!(grown.group.cluster.evidence(replica, 0), Vec::<Value>::new(), "at {}", replica + 1);
    }
    grown.group.cluster.finish();
}

impl Grown {
    /// The group grows by two replicas that run already.
    fn must_grow(&self, size: u64) {
        let (code, said) = self.grow(0);
        let reported = format!("the group has {size} replicas from now on");
        assert!(code == 0 && said.contains(&reported), "{code} {said}\n{}", self.said());
    }

    fn must_shrink(&mut self, size: u64) {
        let (code, said) = self.shrink(&[0, 1, 2]);
        let reported = format!("the group has {size} replicas from now on");
        assert!(code == 0 && said.contains(&reported), "{code} {said}\n{}", self.group.cluster.seen());
        self.added_are_let_go();
    }

    /// Starts both new replicas, and adds them.
    fn grow_to_five(&mut self) {
        self.start_two();
        self.must_grow(5);
        self.wait_whole(&[0, 1, 2], 5);
    }

    /// Starts one of the first three again, with the configuration of before, which lists three.
    fn restart(&self, replica: usize) -> Machine {
        self.group.start(&self.group.configurations[replica], &format!("first-{replica}"))
    }
}

fn grow_and_shrink_under_load(wish: &Wish) {
    let mut grown = Grown::of(wish);
    let running = load(&grown.group.cluster).start();
    running.must_go_on(500, "in a group of three");
    grown.grow_to_five();
    running.must_go_on(1_000, "in a group of five");
    grown.must_shrink(3);
    grown.wait_whole(&[0, 1, 2], 3);
    running.must_go_on(1_000, "in a group of three again");
    grown.group.cluster.assert_equal_state();
    end_right(grown, running);
}

#[test]
fn a_group_grows_and_shrinks_under_load() {
    grow_and_shrink_under_load(&Wish::default());
    grow_and_shrink_under_load(&Wish { workers: 1, reads: "local", ..Wish::default() });
}

#[test]
fn a_group_grows_and_shrinks_under_load_with_logs_on_disk() {
    grow_and_shrink_under_load(&Wish { disk: true, ..Wish::default() });
}

/// Without votes: the log alone is the group's memory.
#[test]
fn a_group_without_votes_grows_and_shrinks_under_load() {
    grow_and_shrink_under_load(&Wish { mode: "RD00", ..Wish::default() });
}

/// A replica of before ends while the new ones are added, and comes back with its old configuration; then two of the
/// five end.
#[test]
fn replicas_fail_while_a_group_grows_and_afterwards() {
    let mut grown = Grown::of(&Wish::default());
    let running = load(&grown.group.cluster).start();
    running.must_go_on(500, "in a group of three");
    grown.start_two();
    let again = std::thread::scope(|scope| {
        let command = scope.spawn(|| grown.grow(0));
        grown.group.cluster.wait_until("the growth begins", |cluster| {
            let of = |status: Value| status["adding"] == 2 || status["replicas"] == 5;
            cluster.status(0).is_some_and(of)
        });
        grown.group.kill(1);
        running.must_go_on(200, "while a replica is away");
        let again = grown.restart(1);
        let (code, said) = command.join().expect("the command ends");
        assert_eq!(code, 0, "{said}\n{}\n{}", grown.said(), again.said());
        again
    });
    grown.wait_whole(&[0, 1, 2], 5);
    grown.group.cluster.assert_equal_state();
    grown.group.kill(0);
    grown.added[1].kill();
    running.must_go_on(1_000, "while two of five are away");
    let first = grown.restart(0);
    let second = grown.start(1);
    grown.added[1] = second;
    grown.wait_whole(&[0, 1, 2], 5);
    running.must_go_on(500, "when they are back");
    grown.group.cluster.assert_equal_state();
    end_right(grown, running);
    drop((again, first));
}

/// A group that was founded with five, in which one that is to leave leads.
#[test]
fn a_leader_is_let_go_under_load() {
    let grown = Grown::of(&Wish { replicas: 5, workers: 1, ..Wish::default() });
    let cluster = &grown.group.cluster;
    let running = load(cluster).start();
    running.must_go_on(300, "in a group of five");
    // Each leader hands over until one of the last two leads.
    for _ in 0..40 {
        let leader = cluster.leader();
        if leader >= 3 {
            break;
        }
        cluster.signal(leader, Signal::STOP);
        cluster.wait_until("another one leads", |cluster| {
            let of = (leader + 1) % 5;
            cluster
                .status(of)
                .is_some_and(|status| status["leader"].as_u64().is_some_and(|now| now != leader as u64 + 1))
        });
        cluster.signal(leader, Signal::CONT);
        grown.wait_whole(&[0, 1, 2, 3, 4], 5);
    }
    let (code, said) = grown.shrink(&[0, 1, 2]);
    assert!(code == 0 && said.contains("the group has 3 replicas from now on"), "{code} {said}");
    grown.wait_whole(&[0, 1, 2], 3);
    for replica in [3, 4] {
        cluster.wait_until("it says that it was let go", |cluster| {
            cluster.lines(replica).iter().any(|line| line.contains("the group has let this replica go"))
        });
    }
    running.must_go_on(500, "in a group of three");
    end_right(grown, running);
}

/// All replicas end, and start again with what is on their disks. Three of the configurations list three.
#[test]
fn a_group_that_has_grown_starts_again_with_old_configurations() {
    let mut grown = Grown::of(&Wish { disk: true, ..Wish::default() });
    let running = load(&grown.group.cluster).start();
    running.must_go_on(500, "in a group of three");
    grown.grow_to_five();
    running.must_go_on(300, "in a group of five");
    for replica in 0..3 {
        grown.group.kill(replica);
    }
    grown.added.iter_mut().for_each(Machine::kill);
    // Three of five: one of before, which has to accept the other two, and then the other way round.
    grown.added = (0..2).map(|number| grown.start(number)).collect();
    let serves = |of: usize, grown: &Grown| {
        let is_in = |status: Value| status["replicas"] == 5 && status["leader"].is_number();
        grown
            .group
            .cluster
            .wait_until("three of five serve", |cluster| cluster.status(of).is_some_and(is_in));
        running.must_go_on(300, "with three of five");
    };
    let mut firsts = vec![grown.restart(0)];
    serves(0, &grown);
    firsts.extend([1, 2].map(|replica| grown.restart(replica)));
    grown.wait_whole(&[0, 1, 2], 5);
    grown.added.iter_mut().for_each(Machine::kill);
    firsts.iter_mut().for_each(Machine::kill);
    firsts = (0..3).map(|replica| grown.restart(replica)).collect();
    (0..3).for_each(|of| serves(of, &grown));
    grown.added = (0..2).map(|number| grown.start(number)).collect();
    grown.wait_whole(&[0, 1, 2], 5);
    grown.must_shrink(3);
    grown.wait_whole(&[0, 1, 2], 3);
    firsts.iter_mut().for_each(Machine::kill);
    let firsts: Vec<Machine> = (0..3).map(|replica| grown.restart(replica)).collect();
    grown.wait_whole(&[0, 1, 2], 3);
    running.must_go_on(500, "in a group of three again");
    grown.group.cluster.assert_equal_state();
    end_right(grown, running);
    drop(firsts);
}

/// A backup has the size of the group that it is of; the group that begins with it has that of its configurations.
#[test]
fn a_group_that_begins_with_a_backup_has_the_size_of_its_configurations() {
    let mut grown = Grown::of(&Wish { workers: 1, ..Wish::default() });
    grown.grow_to_five();
    let backup = grown.group.directory.path().join("five.backup");
    let (code, said) = grown.group.cluster.command(&["backup", "--to", backup.to_str().expect("a path")]);
    assert_eq!(code, 0, "{said}");
    let Grown { group: Group { cluster, directory: _directory, .. }, added, .. } = grown;
    cluster.finish();
    drop(added);
    for disk in [false, true] {
        let cluster = Cluster::up(&Wish { disk, restore: Some(backup.clone()), ..Wish::default() });
        (0..3).for_each(|victim| crate::failover::kill_while(&cluster, victim, || ()));
        let is_of_three = |status: Value| status["replicas"] == 3 && status["tolerates"] == 1;
        cluster.wait_until("there are three", |cluster| {
            (0..3).all(|replica| cluster.status(replica).is_some_and(is_of_three))
        });
        cluster.assert_equal_state();
        cluster.finish();
    }
}

/// A new replica is seen once, and then ends for ever: the growth waits, says for what, and is given up.
#[test]
fn a_growth_that_cannot_end_is_given_up() {
    let mut grown = Grown::of(&Wish { workers: 1, ..Wish::default() });
    grown.start_two();
    let saw_both = |status: Value| {
        let refused = status["refused"]["replicas"].to_string();
        refused.contains("replica 4: a process") && refused.contains("replica 5: a process")
    };
    grown.group.cluster.wait_until("both are seen", |cluster| {
        (0..3).all(|replica| cluster.status(replica).is_some_and(saw_both))
    });
    grown.added[1].kill();
    std::thread::scope(|scope| {
        let command = scope.spawn(|| grown.grow(0));
        grown.group.cluster.wait_until("it waits for the one that has ended", |cluster| {
            let waits = cluster.status(0).map(|status| status["resizing"].to_string());
            waits.is_some_and(|waits| waits.contains("replica 5 is not connected: start it"))
        });
        let first = scope.spawn(|| grown.shrink(&[0]));
        grown.group.cluster.wait_until("one replica alone gives nothing up", |cluster| {
            let waits = cluster.status(0).map(|status| status["resizing"].to_string());
            waits.is_some_and(|waits| waits.contains("run the command at one more of them"))
        });
        let second = scope.spawn(|| grown.shrink(&[1]));
        for command in [first, second] {
            let (code, said) = command.join().expect("the command ends");
            assert!(code == 0 && said.contains("the group has 3 replicas"), "{code} {said}");
        }
        let (code, said) = command.join().expect("the command ends");
        assert!(code == 1 && said.contains("has not come to another size"), "{code} {said}");
    });
    grown.wait_whole(&[0, 1, 2], 3);
    assert_eq!(grown.added[0].wait_for_end(&grown.group.cluster), Some(2), "the other new one is let go");
    grown.added = (0..2).map(|number| grown.start(number)).collect();
    grown.must_grow(5);
    grown.wait_whole(&[0, 1, 2], 5);
    grown.group.cluster.finish();
}

/// What an operator may get wrong: nothing is changed, and the answer says what to do.
#[test]
fn wrong_uses_of_growing_and_shrinking_are_refused_with_a_remedy() {
    let group = Group::up(&Wish { workers: 1, ..Wish::default() });
    let admin = group.cluster.admin_of(0);
    let (here, new) = (group.address(1), another_machine());
    let shrink = ["group", "shrink", "--admin", &admin];
    for (addresses, code, words) in [
        (&[&new][..], 1, "a group grows by two replicas, and 1 addresses were given"),
        (&[&new, &new], 1, "was given twice: each replica has an address of its own; nothing was changed"),
        (&[&new, &here], 1, "is the address of replica 2; nothing was changed"),
        (&[&new, &"somewhere".to_owned()], 2, "`somewhere` is no address: `:PORT` is missing"),
    ] {
        let options = addresses.iter().flat_map(|address| ["--address", address.as_str()]);
        let words_of = ["group", "grow", "--admin", &admin].into_iter().chain(options).collect::<Vec<_>>();
        let (ended, said) = group.cluster.command(&words_of);
        assert!(ended == code && said.contains(words), "{addresses:?}: {ended} {said}");
    }
    let (ended, said) = group.cluster.command(&shrink);
    assert!(ended == 1 && said.contains("the group has 3 replicas: with fewer"), "{ended} {said}");
    assert!((0..3).all(|of| group.cluster.status(of).is_some_and(|status| status["adding"].is_null())));
    group.cluster.finish();
    let verified = Group::up(&Wish { mode: "R0GV", ..Wish::default() });
    let admin = verified.cluster.admin_of(0);
    for words in [
        vec!["group", "shrink", "--admin", &admin],
        vec!["group", "grow", "--address", &new, "--address", "127.0.0.9:9", "--admin", &admin],
    ] {
        let (ended, said) = verified.cluster.command(&words);
        let reported = "the size of a group in verified mode cannot change yet";
        assert!(ended == 1 && said.contains(reported), "{ended} {said}");
    }
    verified.cluster.finish();
}
